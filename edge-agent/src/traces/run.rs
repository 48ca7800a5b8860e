//! The spans of a workflow's run, while it runs.

use std::time::Instant;

use fdn_core::runs::RunInfo;

use super::Traced;
use super::spans::{Attempt, EndedWork, LedRun};
use crate::gateway::trace::Trace;

/// The maximum number of exported attempts of one run: more are too many to look at.
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
    /// Without attempts; `method` is the request's method.
    #[must_use]
    pub fn new(traced: Traced, method: &str) -> Self {
        Self {
            traced,
            method: method.to_owned(),
            attempts: Vec::new(),
            status: None,
        }
    }

    /// Records that an attempt was sent.
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

    /// Records that an attempt has ended.
    pub fn ended(&mut self, stage: usize, attempt: u32) {
        let is = |one: &&mut Attempt| (one.stage, one.attempt) == (stage, attempt);
        if let Some(one) = self.attempts.iter_mut().find(is) {
            one.ended = Some(Instant::now());
        }
    }

    /// Sets the status of the response.
    pub const fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Hands the finished run to the exporter.
    pub fn submit(self, run: RunInfo, arrived: Instant) {
        self.traced.submit(EndedWork::Run(Box::new(LedRun {
            run,
            method: self.method,
            status: self.status,
            arrived,
            attempts: self.attempts,
        })));
    }
}
