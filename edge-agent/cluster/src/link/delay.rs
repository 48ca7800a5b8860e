//! An emulated delay between nodes, for benchmarks and tests.
//!
//! Tokio's timers have a resolution of a millisecond, which is more than the delay between two machines in one room. A thread that
//! sleeps until the next message is due is exact to some tens of microseconds.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Wakes the outboxes that wait for a message to be due.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine {
    delay: Duration,
    wakes: Arc<Wakes>,
}

#[derive(Debug, Default)]
struct Wakes {
    /// Outboxes that wait; each waits for one message at a time.
    waiting: Mutex<BTreeMap<Instant, Vec<Waker>>>,
    changed: Condvar,
}

impl DelayLine {
    /// Creates a delay line and its thread, which ends after the last copy of the line is dropped.
    pub(crate) fn start(delay: Duration) -> std::io::Result<Self> {
        let wakes = Arc::new(Wakes::default());
        let weak = Arc::downgrade(&wakes);
        std::thread::Builder::new()
            .name("fdn-delay".to_owned())
            .spawn(move || run(&weak))?;
        Ok(Self { delay, wakes })
    }

    /// When a message sent now arrives.
    pub(crate) fn due(&self) -> Instant {
        Instant::now() + self.delay
    }

    pub(crate) fn wake_at(&self, at: Instant, waker: Waker) {
        let mut waiting = self
            .wakes
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting
            .first_key_value()
            .is_none_or(|(first, _)| at < *first);
        waiting.entry(at).or_default().push(waker);
        drop(waiting);
        if is_first {
            self.wakes.changed.notify_one();
        }
    }
}

/// How long the thread sleeps when nothing waits, before it checks whether any copy of the line is left.
const IDLE: Duration = Duration::from_millis(200);

fn run(wakes: &Weak<Wakes>) {
    while let Some(wakes) = wakes.upgrade() {
        let mut waiting = wakes.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some(entry) = waiting.first_entry()
            && *entry.key() <= now
        {
            due.extend(entry.remove());
        }
        if due.is_empty() {
            let next = waiting.first_key_value().map(|(at, _)| Reverse(*at));
            let pause = next.map_or(IDLE, |Reverse(at)| (at - now).min(IDLE));
            drop(wakes.changed.wait_timeout(waiting, pause));
            continue;
        }
        drop(waiting);
        due.into_iter().for_each(Waker::wake);
    }
}
