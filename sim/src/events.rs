//! The queue of events and the virtual clock.
//!
//! Events leave in order of their time, ties in the order in which they were scheduled, so a run does not depend on anything
//! else. The clock only moves by popping.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use fdn_core::Millis;

#[derive(Debug)]
struct Entry<E> {
    at: Millis,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Events in virtual time.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    now: Millis,
    scheduled: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            now: Millis::ZERO,
            scheduled: 0,
        }
    }
}

impl<E> Events<E> {
    /// The time of the event that was popped last; 0 before the first.
    #[must_use]
    pub const fn now(&self) -> Millis {
        self.now
    }

    /// Schedules an event at a time; what lies in the past happens now.
    pub fn at(&mut self, at: Millis, event: E) {
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Entry {
            at: at.max(self.now),
            number,
            event,
        }));
    }

    /// Schedules an event after a span of time.
    pub fn after(&mut self, span: Millis, event: E) {
        self.at(self.now + span, event);
    }

    /// The next event, to whose time the clock moves.
    pub fn pop(&mut self) -> Option<(Millis, E)> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// When the next event is.
    #[must_use]
    pub fn next_at(&self) -> Option<Millis> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// How many events wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is left to happen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// How many events were ever scheduled.
    #[must_use]
    pub const fn scheduled(&self) -> u64 {
        self.scheduled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_by_time_then_by_order_of_scheduling_and_never_in_the_past() {
        let mut events = Events::default();
        events.at(Millis::new(5.0), 'c');
        events.at(Millis::new(1.0), 'a');
        events.at(Millis::new(5.0), 'd');
        assert_eq!(events.pop(), Some((Millis::new(1.0), 'a')));
        events.at(Millis::new(0.5), 'b');
        events.after(Millis::new(9.0), 'e');
        let rest: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        let at = |ms, event| (Millis::new(ms), event);
        assert_eq!(
            rest,
            [at(1.0, 'b'), at(5.0, 'c'), at(5.0, 'd'), at(10.0, 'e')]
        );
        assert_eq!((events.now(), events.scheduled()), (Millis::new(10.0), 5));
    }
}
