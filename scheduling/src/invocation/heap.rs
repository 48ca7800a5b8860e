//! A binary heap whose items know their positions, so that any of them can be re-keyed or removed in O(log n).
//!
//! Items are small numbers (rows of a table); ties go to the smaller number. [`Heap`] leaves the positions to its owner, so that many
//! heaps (one for each function, one for each worker) share one column of a table; [`IndexedHeap`] stores them itself.
//!
//! Neither allocates once it has reached its largest size.

/// The position of an item that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Entries with the smallest key first; the caller is told every position that changes.
#[derive(Clone, Debug)]
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with the smallest key.
    pub(super) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// All items with their keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, u32)> {
        self.entries.iter().copied()
    }

    /// The entry with the largest key, by linear search.
    pub(super) fn last(&self) -> Option<(K, u32)> {
        self.entries.iter().max_by_key(|(key, _)| *key).copied()
    }

    /// Adds an item; `place(item, position)` is called for each item that moves.
    pub(super) fn push(&mut self, key: K, item: u32, place: impl FnMut(u32, u32)) {
        self.entries.push((key, item));
        self.rise(self.entries.len() - 1, place);
    }

    /// Removes the item at a position.
    pub(super) fn remove(&mut self, at: u32, mut place: impl FnMut(u32, u32)) -> (K, u32) {
        let at = at as usize;
        let removed = self.entries.swap_remove(at);
        place(removed.1, NOWHERE);
        if at < self.entries.len() {
            self.settle(at, place);
        }
        removed
    }

    /// Changes the key of the item at a position.
    pub(super) fn rekey(&mut self, at: u32, key: K, place: impl FnMut(u32, u32)) {
        let at = at as usize;
        self.entries[at].0 = key;
        self.settle(at, place);
    }

    fn settle(&mut self, at: usize, place: impl FnMut(u32, u32)) {
        if at > 0 && self.entries[at] < self.entries[(at - 1) / 2] {
            self.rise(at, place);
        } else {
            self.sink(at, place);
        }
    }

    /// Moves the entry towards the root until its parent is not larger.
    fn rise(&mut self, mut at: usize, mut place: impl FnMut(u32, u32)) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent] <= entry {
                break;
            }
            self.put(at, self.entries[parent], &mut place);
            at = parent;
        }
        self.put(at, entry, &mut place);
    }

    /// Moves the entry away from the root until its children are not smaller.
    fn sink(&mut self, mut at: usize, mut place: impl FnMut(u32, u32)) {
        let entry = self.entries[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1] < self.entries[child] {
                child += 1;
            }
            if entry <= self.entries[child] {
                break;
            }
            self.put(at, self.entries[child], &mut place);
            at = child;
        }
        self.put(at, entry, &mut place);
    }

    fn put(&mut self, at: usize, entry: (K, u32), place: &mut impl FnMut(u32, u32)) {
        self.entries[at] = entry;
        place(entry.1, position(at));
    }
}

/// A heap has at most as many entries as its table has rows, which are numbered by `u32`.
const fn position(at: usize) -> u32 {
    at as u32
}

/// A heap that stores the positions of its items itself.
#[derive(Clone, Debug)]
pub(super) struct IndexedHeap<K> {
    heap: Heap<K>,
    at: Vec<u32>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        Self {
            heap: Heap::default(),
            at: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    pub(super) fn peek(&self) -> Option<(K, u32)> {
        self.heap.peek()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Inserts an item with a key, or changes its key if present.
    pub(super) fn set(&mut self, item: u32, key: K) {
        let Self { heap, at } = self;
        let row = item as usize;
        if row >= at.len() {
            at.resize(row + 1, NOWHERE);
        }
        let now = at[row];
        let place = |item: u32, to| at[item as usize] = to;
        if now == NOWHERE {
            heap.push(key, item, place);
        } else {
            heap.rekey(now, key, place);
        }
    }

    /// Removes an item; false if it was not present.
    pub(super) fn remove(&mut self, item: u32) -> bool {
        let Self { heap, at } = self;
        match at.get(item as usize) {
            None | Some(&NOWHERE) => false,
            Some(&now) => {
                heap.remove(now, |item, to| at[item as usize] = to);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_smallest_is_first_whatever_is_set_and_removed(
            steps in prop::collection::vec((0u32..20, prop::option::of(0u8..10)), 0..200),
        ) {
            let mut heap = IndexedHeap::default();
            let mut model = BTreeMap::new();
            for (item, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(item, key);
                        model.insert(item, key);
                    }
                    None => prop_assert_eq!(heap.remove(item), model.remove(&item).is_some()),
                }
                let first = model.iter().map(|(&item, &key)| (key, item)).min();
                prop_assert_eq!(heap.peek(), first);
                prop_assert_eq!(heap.is_empty(), model.is_empty());
                for (at, &(_, item)) in heap.heap.entries.iter().enumerate() {
                    prop_assert_eq!(heap.at[item as usize] as usize, at);
                }
            }
        }
    }
}
