//! A map from task to value: open addressing, linear probing, one hash function for all time.
//!
//! Nothing iterates over it, so its order reaches no output; removing shifts back what follows, so it holds no tombstones and a
//! look-up stays short however many tasks have come and gone. It doubles at three quarters full and never shrinks.

use super::message::TaskId;

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    slots: Vec<Option<(TaskId, V)>>,
    len: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            len: 0,
        }
    }
}

const LEAST: usize = 16;

impl<V: Copy> Table<V> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Where a task belongs: the upper bits of a multiplication by 2^64 over the golden ratio.
    const fn home(&self, id: TaskId) -> usize {
        let mixed = id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    const fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// The slot of a task, or the free one where it would go.
    fn find(&self, id: TaskId) -> Result<usize, usize> {
        let mut at = self.home(id);
        loop {
            match &self.slots[at] {
                None => return Err(at),
                Some((other, _)) if *other == id => return Ok(at),
                Some(_) => at = self.next(at),
            }
        }
    }

    pub(super) fn get(&self, id: TaskId) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let at = self.find(id).ok()?;
        self.slots[at].map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut V> {
        if self.len == 0 {
            return None;
        }
        let at = self.find(id).ok()?;
        self.slots[at].as_mut().map(|(_, value)| value)
    }

    /// Puts a value; the one before is replaced.
    pub(super) fn put(&mut self, id: TaskId, value: V) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let at = match self.find(id) {
            Ok(at) => at,
            Err(at) => {
                self.len += 1;
                at
            }
        };
        self.slots[at] = Some((id, value));
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(LEAST);
        let old = std::mem::replace(&mut self.slots, vec![None; size]);
        for (id, value) in old.into_iter().flatten() {
            let (Ok(at) | Err(at)) = self.find(id);
            self.slots[at] = Some((id, value));
        }
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let mut hole = self.find(id).ok()?;
        let removed = self.slots[hole].take();
        self.len -= 1;
        let mut at = self.next(hole);
        while let Some((other, _)) = &self.slots[at] {
            // What lies between its home and here may move back as far as its home.
            let mask = self.slots.len() - 1;
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(self.home(*other)) >= distance(hole) {
                self.slots[hole] = self.slots[at].take();
                hole = at;
            }
            at = self.next(at);
        }
        removed.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..40, any::<bool>(), any::<u32>()), 0..400)) {
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            for (id, put, value) in steps {
                // Ids that share the upper bits of their hash collide.
                let id = TaskId(id % 4 + (id / 4) * 0x1000_0000_0000);
                if put {
                    table.put(id, value);
                    model.insert(id, value);
                } else {
                    prop_assert_eq!(table.remove(id), model.remove(&id));
                }
                prop_assert_eq!(table.len(), model.len());
                for (id, value) in &model {
                    prop_assert_eq!(table.get(*id), Some(*value));
                }
                prop_assert_eq!(table.get(TaskId(u64::MAX)), None);
            }
        }
    }

    #[test]
    fn a_value_can_be_changed_in_place() {
        let mut table = Table::default();
        assert!(table.get_mut(TaskId(1)).is_none());
        table.put(TaskId(1), 5);
        *table.get_mut(TaskId(1)).unwrap() += 1;
        assert_eq!(table.get(TaskId(1)), Some(6));
    }
}
