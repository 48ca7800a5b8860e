//! Which answers are looked at more closely, and what comes of it: how long they took, how long the prefix was that they followed from, and
//! lines in the log of queries.

use std::time::Instant;

use fdn_core::ClientPrefix;
use hickory_proto::op::ResponseCode;

use super::Responder;
use crate::metrics::Transport;
use crate::query_log::{Line, Told};

/// One query in so many is timed.
const TIMED: u16 = 16;

/// A query that is looked at.
pub(super) struct Watch {
    started: Instant,
    timed: bool,
    logged: bool,
}

impl Watch {
    /// Whether a line is written about it.
    pub(super) const fn is_logged(&self) -> bool {
        self.logged
    }
}

impl Responder {
    /// Begins to look at the query with this message id, if it is one of those.
    pub(super) fn watch(&self, id: u16) -> Option<Watch> {
        let timed = id.is_multiple_of(TIMED);
        let logged = self.query_log.as_ref().is_some_and(|log| log.samples(id));
        (timed || logged).then(|| Watch {
            started: Instant::now(),
            timed,
            logged,
        })
    }

    /// Says what was seen of a query that has its answer.
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
