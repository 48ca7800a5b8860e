//! Samples queries for metrics and the query log: the time to answer, the length of the bound prefix, and lines of the log.

use std::time::Instant;

use fdn_core::ClientPrefix;
use hickory_proto::op::ResponseCode;

use super::Responder;
use crate::metrics::Transport;
use crate::query_log::{Line, Told};

/// One query in this many is timed.
const TIMED: u16 = 16;

/// A sampled query.
pub(super) struct Watch {
    started: Instant,
    timed: bool,
    logged: bool,
}

impl Watch {
    /// Whether a line is written to the query log.
    pub(super) const fn is_logged(&self) -> bool {
        self.logged
    }
}

impl Responder {
    /// Starts watching the query with this message id, if it is in a sample.
    pub(super) fn watch(&self, id: u16) -> Option<Watch> {
        let timed = id.is_multiple_of(TIMED);
        let logged = self.query_log.as_ref().is_some_and(|log| log.samples(id));
        (timed || logged).then(|| Watch {
            started: Instant::now(),
            timed,
            logged,
        })
    }

    /// Records the metrics and the log line of a sampled query that was answered.
    pub(super) fn watched(
        &self,
        watch: &Watch,
        (question, client): (&[u8], ClientPrefix),
        (code, transport): (ResponseCode, Transport),
        told: Option<Told>,
    ) {
        let took = watch.started.elapsed();
        if watch.timed {
            self.metrics.timed(took);
            if let Some(told) = &told {
                self.metrics.watched.steered(client, told);
            }
        }
        if let Some(log) = self.query_log.as_ref().filter(|_| watch.logged)
            && let Some(line) = Line::new(question, code, client, transport, took, told)
        {
            log.tell(line);
        }
    }
}
