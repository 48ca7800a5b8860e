//! Injected faults.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// The fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status and a `Retry-After` of this many seconds.
    Status(u16, u32),
    /// It is answered after a delay.
    Slow(Duration),
    /// It is executed, and its connection closed before the answer.
    AnswerLost,
}

/// The faults of an API server.
#[derive(Debug, Default)]
pub struct Faults {
    /// Pending faults by verb and resource, in order.
    next: Mutex<VecDeque<(String, Fault)>>,
    /// The number of times that watches and followed logs were cut.
    cuts: watch::Sender<u64>,
    /// Whether 410 is the status of the response rather than an event of the watch. Real servers do both.
    gone_by_status: watch::Sender<bool>,
}

impl Faults {
    /// Injects this fault into the next `times` requests with a verb, such as `create pods`.
    pub fn next(&self, verb: &str, fault: &Fault, times: usize) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.extend(std::iter::repeat_n((verb.to_owned(), fault.clone()), times));
    }

    /// The number of faults that have not occurred yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Removes the faults that have not occurred.
    pub fn clear(&self) {
        self.next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(super) fn take(&self, verb: &str) -> Option<Fault> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.iter().position(|(wanted, _)| wanted == verb)?;
        next.remove(at).map(|(_, fault)| fault)
    }

    /// Cuts all streaming connections: watches and logs.
    pub fn cut_streams(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(super) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Sets how 410 is reported to a watch.
    pub fn tell_gone_by_status(&self, by_status: bool) {
        self.gone_by_status.send_replace(by_status);
    }

    pub(super) fn gone_by_status(&self) -> bool {
        *self.gone_by_status.borrow()
    }
}
