//! The order of waiting tasks: shortest remaining time first, ties by arrival.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use fdn_core::Millis;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    remaining: Millis,
    arrival: u64,
    item: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.remaining, self.arrival).cmp(&(other.remaining, other.arrival))
    }
}

/// The arrival number of an item, which breaks ties; kept when the item returns to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival(u64);

/// A priority queue, shortest remaining time first.
#[derive(Clone, Debug)]
pub(super) struct ShortestFirst<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    arrivals: u64,
}

impl<T> ShortestFirst<T> {
    /// A queue with memory for `capacity` items; the caller bounds their number.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(capacity),
            arrivals: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn push(&mut self, remaining: Millis, item: T) {
        self.push_back(remaining, Arrival(self.arrivals), item);
        self.arrivals += 1;
    }

    /// Returns an item to its former position.
    pub(super) fn push_back(&mut self, remaining: Millis, arrival: Arrival, item: T) {
        self.heap.push(Reverse(Entry {
            remaining,
            arrival: arrival.0,
            item,
        }));
    }

    /// Removes the items that `keep` rejects.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse(entry)| keep(&entry.item));
    }

    pub(super) fn pop(&mut self) -> Option<(Arrival, T)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((Arrival(entry.arrival), entry.item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_first_then_by_arrival_even_after_going_back() {
        let mut queue = ShortestFirst::with_capacity(4);
        for (remaining, item) in [(5.0, 'a'), (1.0, 'b'), (5.0, 'c'), (0.5, 'd')] {
            queue.push(Millis::new(remaining), item);
        }
        assert_eq!(queue.len(), 4);
        let pop = |queue: &mut ShortestFirst<char>| queue.pop().map(|(_, item)| item);
        assert_eq!(pop(&mut queue), Some('d'));
        assert_eq!(pop(&mut queue), Some('b'));
        let (arrival, item) = queue.pop().unwrap();
        queue.push(Millis::new(5.0), 'e');
        queue.push_back(Millis::new(5.0), arrival, item);
        let rest: Vec<char> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(rest, ['a', 'c', 'e']);
        assert!(queue.is_empty());
    }
}
