//! The spans of a run of a workflow, while it runs.

use std::time::Instant;

use fdn_core::runs::RunInfo;

use super::Traced;
use super::spans::{Attempt, Led, What};
use crate::gateway::trace::Trace;

/// Attempts of one run that are exported: more are too many to be looked at.
const ATTEMPTS_MAX: usize = 512;

/// The attempts of a run that is exported.
#[derive(Debug)]
pub struct RunSpans {
    traced: Traced,
    method: String,
    attempts: Vec<Attempt>,
    status: Option<u16>,
}

impl RunSpans {
    /// No attempt yet; called with `method`.
    #[must_use]
    pub fn new(traced: Traced, method: &str) -> Self {
        Self {
            traced,
            method: method.to_owned(),
            attempts: Vec::new(),
            status: None,
        }
    }

    /// An attempt was sent.
    pub fn begun(&mut self, stage: usize, attempt: u32, trace: Trace) {
        if self.attempts.len() < ATTEMPTS_MAX {
            self.attempts.push(Attempt {
                stage,
                attempt,
                trace,
                begun: Instant::now(),
                ended: None,
            });
        }
    }

    /// An attempt has ended.
    pub fn ended(&mut self, stage: usize, attempt: u32) {
        let is = |one: &&mut Attempt| (one.stage, one.attempt) == (stage, attempt);
        if let Some(one) = self.attempts.iter_mut().find(is) {
            one.ended = Some(Instant::now());
        }
    }

    /// The caller is answered with this status.
    pub const fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The run is over.
    pub fn hand_over(self, run: RunInfo, arrived: Instant) {
        self.traced.hand_over(What::Led(Box::new(Led {
            run,
            method: self.method,
            status: self.status,
            arrived,
            attempts: self.attempts,
        })));
    }
}
