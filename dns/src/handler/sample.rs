//! Samples queries for metrics and the query log: the time to answer, the length of the bound prefix, and lines of the log.

use std::time::Instant;

use fdn_core::ClientPrefix;
use hickory_proto::op::ResponseCode;

use super::Responder;
use crate::metrics::Transport;
use crate::query_log::{Line, SteeringNote};

/// One query in this many is timed.
const TIMED: u16 = 16;

/// A sampled query.
pub(super) struct Sample {
    started: Instant,
    timed: bool,
    logged: bool,
}

impl Sample {
    /// Whether a line is written to the query log.
    pub(super) const fn is_logged(&self) -> bool {
        self.logged
    }
}

impl Responder {
    /// Samples the query with this message id, if it is one of those.
    pub(super) fn sample(&self, id: u16) -> Option<Sample> {
        let timed = id.is_multiple_of(TIMED);
        let logged = self.query_log.as_ref().is_some_and(|log| log.samples(id));
        (timed || logged).then(|| Sample {
            started: Instant::now(),
            timed,
            logged,
        })
    }

    /// Records the metrics and the log line of a sampled query that was answered.
    pub(super) fn record_sample(
        &self,
        sample: &Sample,
        (question, client): (&[u8], ClientPrefix),
        (code, transport): (ResponseCode, Transport),
        note: Option<SteeringNote>,
    ) {
        let took = sample.started.elapsed();
        if sample.timed {
            self.metrics.timed(took);
            if let Some(note) = &note {
                self.metrics.sampled.observe(client, note);
            }
        }
        if let Some(log) = self.query_log.as_ref().filter(|_| sample.logged)
            && let Some(line) = Line::new(question, code, client, transport, took, note)
        {
            log.enqueue(line);
        }
    }
}
