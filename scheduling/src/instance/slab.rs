//! Entries in numbered slots, linked in an order of their own; all memory is allocated at the start.
//!
//! The order is that of insertion, unless an entry is moved to the end. If each entry is due a constant time after insertion, the first
//! is the first due, and finished entries leave at once, so the list never holds stale ones. The slot vacated last is reused first, so
//! the memory touched is what was in use at one time, not the limit.
//!
//! **Complexity.** O(1) for every operation.
//!
//! **Bounds.** The limit given at the start; beyond it nothing is added.

/// No slot.
const NONE: u32 = u32::MAX;
/// Stored as the previous slot of a vacant slot.
const VACANT: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    value: T,
    before: u32,
    after: u32,
}

/// The list.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    limit: usize,
    len: usize,
    first: u32,
    last: u32,
    vacant: u32,
}

impl<T: Copy> Slab<T> {
    /// A list of at most `limit` entries, itself at most 2^24.
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(1 << 24);
        Self {
            entries: Vec::with_capacity(limit),
            limit,
            len: 0,
            first: NONE,
            last: NONE,
            vacant: NONE,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// The number of slots ever in use; slots from this number on hold nothing.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("the limit is far below")
    }

    /// Adds an entry at the end and returns its slot; `None` at the limit.
    pub(super) fn push(&mut self, value: T) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let entry = Entry {
            value,
            before: NONE,
            after: NONE,
        };
        let slot = if self.vacant == NONE {
            self.entries.push(entry);
            self.slots() - 1
        } else {
            let slot = self.vacant;
            let place = &mut self.entries[slot as usize];
            self.vacant = place.after;
            *place = entry;
            slot
        };
        self.len += 1;
        self.link(slot);
        Some(slot)
    }

    /// The entry in a slot; `None` if the slot is vacant.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        let entry = self.entries.get(slot as usize)?;
        (entry.before != VACANT).then_some(&entry.value)
    }

    /// As [`Slab::get`], mutable.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot as usize)?;
        (entry.before != VACANT).then_some(&mut entry.value)
    }

    /// The first entry in the order, with its slot.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, &T)> {
        let entry = self.entries.get(self.first as usize)?;
        Some((self.first, &entry.value))
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = *self.get(slot)?;
        self.unlink(slot);
        let entry = &mut self.entries[slot as usize];
        entry.before = VACANT;
        entry.after = self.vacant;
        self.vacant = slot;
        self.len -= 1;
        Some(value)
    }

    /// Moves an entry to the end of the order.
    pub(super) fn renew(&mut self, slot: u32) {
        if self.get(slot).is_some() && self.last != slot {
            self.unlink(slot);
            self.link(slot);
        }
    }

    fn link(&mut self, slot: u32) {
        let last = self.last;
        let entry = &mut self.entries[slot as usize];
        (entry.before, entry.after) = (last, NONE);
        match self.entries.get_mut(last as usize) {
            Some(last) => last.after = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { before, after, .. } = self.entries[slot as usize];
        match self.entries.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => self.first = after,
        }
        match self.entries.get_mut(after as usize) {
            Some(after) => after.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The entries in their order.
    fn all(slab: &Slab<u32>) -> Vec<u32> {
        let mut slab = slab.clone();
        std::iter::from_fn(|| {
            let (slot, _) = slab.first()?;
            slab.remove(slot)
        })
        .collect()
    }

    proptest! {
        #[test]
        fn it_is_a_list_with_a_limit(steps in prop::collection::vec((0u8..3, 0usize..8), 0..200)) {
            let mut slab = Slab::new(5);
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (number, (step, at)) in (0u32..).zip(steps) {
                match step {
                    0 => match slab.push(number) {
                        Some(slot) => {
                            prop_assert!(model.len() < 5);
                            prop_assert!(model.iter().all(|(other, _)| *other != slot));
                            model.push((slot, number));
                        }
                        None => prop_assert_eq!(model.len(), 5),
                    },
                    _ if at >= model.len() => {}
                    1 => {
                        let (slot, value) = model.remove(at);
                        prop_assert_eq!(slab.remove(slot), Some(value));
                        prop_assert_eq!(slab.remove(slot), None);
                        prop_assert_eq!(slab.get(slot), None);
                    }
                    _ => {
                        let entry = model.remove(at);
                        model.push(entry);
                        slab.renew(entry.0);
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(slab.slots() <= 5);
                let expected: Vec<u32> = model.iter().map(|(_, value)| *value).collect();
                prop_assert_eq!(all(&slab), expected);
                for (slot, value) in &model {
                    prop_assert_eq!(slab.get(*slot), Some(value));
                }
            }
        }
    }

    #[test]
    fn what_is_taken_at_the_start_is_enough() {
        let mut slab = Slab::new(3);
        let room = slab.entries.capacity();
        for _ in 0..100 {
            let slots: Vec<u32> = std::iter::from_fn(|| slab.push(7)).collect();
            assert_eq!(slots.len(), 3);
            for slot in slots {
                *slab.get_mut(slot).unwrap() += 1;
                assert_eq!(slab.remove(slot), Some(8));
            }
        }
        assert_eq!(slab.entries.capacity(), room);
    }
}
