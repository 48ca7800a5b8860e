//! The events of the world, in order of time.
//!
//! Most of them come after a constant span: a message after the delay, the end of a node's work on it after its cost. Such events
//! are scheduled in the order in which they happen, so a plain queue each is enough, and a heap keeps the rest: the ends of
//! instances and what goes wrong. Measured against one heap for all, this halves the time of a run.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use fdn_core::Millis;

/// Events that come a constant span after they are scheduled.
#[derive(Debug)]
pub(super) struct Lane<E> {
    span: Millis,
    queue: VecDeque<(Millis, E)>,
}

impl<E> Lane<E> {
    pub(super) const fn new(span: Millis) -> Self {
        Self {
            span,
            queue: VecDeque::new(),
        }
    }

    /// Schedules an event; `now` must not go back.
    pub(super) fn push(&mut self, now: Millis, event: E) {
        self.queue.push_back((now + self.span, event));
    }

    /// When the next one comes; infinity without one.
    pub(super) fn next_at(&self) -> Millis {
        self.queue.front().map_or(Millis::INFINITY, |(at, _)| *at)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.queue.pop_front().map(|(_, event)| event)
    }
}

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
    /// Reversed, because the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Events at any time.
#[derive(Debug)]
pub(super) struct Heap<E> {
    heap: BinaryHeap<Entry<E>>,
    numbers: u64,
}

impl<E> Default for Heap<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            numbers: 0,
        }
    }
}

impl<E> Heap<E> {
    pub(super) fn push(&mut self, at: Millis, event: E) {
        let number = self.numbers;
        self.numbers += 1;
        self.heap.push(Entry { at, number, event });
    }

    pub(super) fn next_at(&self) -> Millis {
        self.heap.peek().map_or(Millis::INFINITY, |entry| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.heap.pop().map(|entry| entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_heap_give_events_in_order_of_time_then_of_scheduling() {
        let mut lane = Lane::new(Millis::new(2.0));
        assert_eq!(lane.next_at(), Millis::INFINITY);
        lane.push(Millis::new(1.0), 'a');
        lane.push(Millis::new(1.5), 'b');
        assert_eq!(lane.next_at(), Millis::new(3.0));
        assert_eq!(
            [lane.pop(), lane.pop(), lane.pop()],
            [Some('a'), Some('b'), None]
        );
        let mut heap = Heap::default();
        for (at, event) in [(5.0, 'c'), (1.0, 'a'), (5.0, 'd'), (1.0, 'b')] {
            heap.push(Millis::new(at), event);
        }
        assert_eq!(heap.next_at(), Millis::new(1.0));
        let all: String = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(all, "abcd");
    }
}
