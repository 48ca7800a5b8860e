//! What goes wrong on purpose.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// What happens to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status and asked to come back after so many seconds.
    Status(u16, u32),
    /// It is answered after a while.
    Slow(Duration),
    /// It is carried out, and its connection closed before the answer.
    AnswerLost,
}

/// The faults of one API server.
#[derive(Debug, Default)]
pub struct Faults {
    /// For which verb on which resource; taken in order.
    next: Mutex<VecDeque<(String, Fault)>>,
    /// How often watches and logs that were followed have been cut.
    cuts: watch::Sender<u64>,
    /// Whether 410 is the status of the answer rather than an event of the watch. Real servers do both.
    gone_by_status: watch::Sender<bool>,
}

impl Faults {
    /// The next `times` requests of a verb, such as `create pods`, get this fault.
    pub fn next(&self, verb: &str, fault: &Fault, times: usize) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.extend(std::iter::repeat_n((verb.to_owned(), fault.clone()), times));
    }

    /// How many faults have not been met yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Forgets the faults that have not been met.
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

    /// Cuts all connections that stream: watches and logs.
    pub fn cut_streams(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(super) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Says how 410 is told to a watch.
    pub fn tell_gone_by_status(&self, by_status: bool) {
        self.gone_by_status.send_replace(by_status);
    }

    pub(super) fn gone_by_status(&self) -> bool {
        *self.gone_by_status.borrow()
    }
}
