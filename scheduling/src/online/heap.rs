//! A binary heap of small numbers with keys that may change: smallest key first, ties by the smaller number.
//!
//! Each number is in the heap at most once; a table holds its position, so that changing its key costs O(log n) without a search. Memory:
//! O(largest number + 1), kept when the heap empties.

/// Stored as the position of a number that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// The heap: see the module.
#[derive(Clone, Debug)]
pub(super) struct IndexedHeap<K> {
    items: Vec<(K, u32)>,
    place: Vec<u32>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            place: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// The number with the smallest key.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    /// Inserts a number, or changes its key.
    pub(super) fn set(&mut self, number: u32, key: K) {
        let wanted = number as usize + 1;
        if self.place.len() < wanted {
            self.place.resize(wanted, ABSENT);
        }
        let at = match self.place[number as usize] {
            ABSENT => {
                self.items.push((key, number));
                self.items.len() - 1
            }
            at => {
                self.items[at as usize].0 = key;
                at as usize
            }
        };
        self.settle(at);
    }

    /// Removes a number if it is present.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(at) = self.place.get(number as usize).copied() else {
            return;
        };
        if at == ABSENT {
            return;
        }
        self.place[number as usize] = ABSENT;
        let last = self
            .items
            .pop()
            .expect("a number with a place is in the heap");
        if let Some(hole) = self.items.get_mut(at as usize) {
            *hole = last;
            self.settle(at as usize);
        }
    }

    /// Removes all numbers.
    pub(super) fn clear(&mut self) {
        for (_, number) in self.items.drain(..) {
            self.place[number as usize] = ABSENT;
        }
    }

    /// Restores the heap order at one position.
    fn settle(&mut self, mut at: usize) {
        let item = self.items[at];
        while at > 0 && item < self.items[(at - 1) / 2] {
            self.put(at, self.items[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        while let Some(child) = self.smaller_child(at).filter(|c| self.items[*c] < item) {
            self.put(at, self.items[child]);
            at = child;
        }
        self.put(at, item);
    }

    fn smaller_child(&self, at: usize) -> Option<usize> {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        if right < self.items.len() && self.items[right] < self.items[left] {
            Some(right)
        } else {
            (left < self.items.len()).then_some(left)
        }
    }

    fn put(&mut self, at: usize, item: (K, u32)) {
        self.place[item.1 as usize] = u32::try_from(at).unwrap_or(ABSENT);
        self.items[at] = item;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_smaller_number() {
        let mut heap = IndexedHeap::default();
        for number in [5, 3, 9, 4] {
            heap.set(number, 1);
        }
        assert_eq!(heap.first(), Some((1, 3)));
        heap.set(3, 2);
        assert_eq!(heap.first(), Some((1, 4)));
        heap.clear();
        assert_eq!(heap.first(), None);
        heap.remove(4);
        heap.set(4, 7);
        assert_eq!(heap.first(), Some((7, 4)));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(steps in prop::collection::vec((0u32..12, prop::option::of(0i32..6)), 0..200)) {
            let mut heap = IndexedHeap::default();
            let mut model = BTreeMap::new();
            for (number, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(number, key);
                        model.insert(number, key);
                    }
                    None => {
                        heap.remove(number);
                        model.remove(&number);
                    }
                }
                let least = model.iter().map(|(number, key)| (*key, *number)).min();
                prop_assert_eq!(heap.first(), least);
            }
        }
    }
}
