//! A hash index from tasks to slots: open addressing, linear probing, one fixed hash function, no growth.
//!
//! A cell holds the slot and half of the task's hash, so that a look-up reads eight bytes per cell and the entry itself only where the
//! half matches. At least half of the cells stay empty. Nothing iterates over the index, so its order reaches no output; removal shifts
//! back the cells behind, so there are no tombstones and look-ups stay short however many tasks have come and gone.

use super::message::TaskId;

/// The index; it takes 16 to 32 bytes per task of the limit.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// The hash half in the upper 32 bits, the slot plus one in the lower; zero is empty.
    cells: Vec<u64>,
    /// The right shift that turns a hash half into a cell position.
    shift: u32,
}

/// The cell at which an absent task would be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    at: usize,
    half: u32,
}

/// The upper half of the id times 2^64 over the golden ratio (Fibonacci hashing).
const fn half(id: TaskId) -> u32 {
    (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

const fn cell(half: u32, slot: u32) -> u64 {
    ((half as u64) << 32) | (slot as u64 + 1)
}

impl Index {
    /// An index for at most `limit` tasks, at most 2^24, in slots below the limit.
    pub(super) fn new(limit: usize) -> Self {
        let size = (limit.clamp(1, 1 << 24) * 2).next_power_of_two();
        Self {
            cells: vec![0; size],
            shift: 32 - size.trailing_zeros(),
        }
    }

    /// Touches all cells, so that the system provides their memory now. Tasks are spread over all of them, so the first few thousand
    /// would otherwise each wait for a page fault, of 2 MiB where the allocator asks for huge pages: 72 of them in the first burst of
    /// 2,000 tasks took 8 to 200 ms.
    pub(super) fn touch(&mut self) {
        for cell in self.cells.iter_mut().step_by(4096 / size_of::<u64>()) {
            *cell = std::hint::black_box(*cell);
        }
    }

    #[inline]
    const fn home(&self, half: u32) -> usize {
        (half >> self.shift) as usize
    }

    #[inline]
    const fn next(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    /// The slot of a task, or the vacancy where it would go; `is` tells whether a slot holds the task.
    #[inline]
    pub(super) fn find(&self, id: TaskId, is: impl Fn(u32) -> bool) -> Result<u32, Vacancy> {
        let half = half(id);
        let mut at = self.home(half);
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return Err(Vacancy { at, half });
            }
            let slot = (cell as u32) - 1;
            if (cell >> 32) as u32 == half && is(slot) {
                return Ok(slot);
            }
            at = self.next(at);
        }
    }

    /// Stores the slot of a task in a vacancy; the index must not have changed since it was found.
    #[inline]
    pub(super) fn fill(&mut self, vacancy: Vacancy, slot: u32) {
        self.cells[vacancy.at] = cell(vacancy.half, slot);
    }

    /// Removes a task, which must be present.
    pub(super) fn remove(&mut self, id: TaskId, slot: u32) {
        let wanted = cell(half(id), slot);
        let mut hole = self.home(half(id));
        while self.cells[hole] != wanted {
            if self.cells[hole] == 0 {
                return;
            }
            hole = self.next(hole);
        }
        let mask = self.cells.len() - 1;
        let mut at = self.next(hole);
        while self.cells[at] != 0 {
            // An entry may move back as far as its home cell, if that is not behind the hole.
            let home = self.home((self.cells[at] >> 32) as u32);
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(home) >= distance(hole) {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.cells[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..40, any::<bool>()), 0..400)) {
            let mut index = Index::new(40);
            let mut model: BTreeMap<TaskId, u32> = BTreeMap::new();
            let mut holds = [TaskId(u64::MAX); 40];
            for (id, put) in steps {
                // Ids that share the upper bits of their hash collide.
                let id = TaskId(id % 4 + (id / 4) * 0x1000_0000_0000);
                let found = index.find(id, |slot| holds[slot as usize] == id);
                prop_assert_eq!(found.ok(), model.get(&id).copied());
                match (put, found) {
                    (true, Err(vacancy)) => {
                        let slot = (0..40).find(|slot| !model.values().any(|used| used == slot));
                        let slot = slot.expect("there are as many as ids");
                        holds[slot as usize] = id;
                        index.fill(vacancy, slot);
                        model.insert(id, slot);
                    }
                    (false, Ok(slot)) => {
                        index.remove(id, slot);
                        model.remove(&id);
                    }
                    _ => {}
                }
                for (id, slot) in &model {
                    let found = index.find(*id, |slot| holds[slot as usize] == *id);
                    prop_assert_eq!(found.ok(), Some(*slot));
                }
            }
        }
    }

    #[test]
    fn tasks_with_the_same_half_of_the_hash_are_told_apart() {
        let mut index = Index::new(4);
        // The inverse of the factor turns any hash into its task.
        let mut inverse = 1u64;
        for _ in 0..6 {
            let product = inverse.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(product));
        }
        let ids =
            [7u64, 8, 9].map(|low| TaskId((0x1234_5678_0000_0000 | low).wrapping_mul(inverse)));
        let is = |id: TaskId| move |slot: u32| ids[slot as usize] == id;
        for (id, slot) in ids.into_iter().zip(0..) {
            let vacancy = index.find(id, is(id)).unwrap_err();
            assert_eq!(vacancy.half, 0x1234_5678);
            index.fill(vacancy, slot);
        }
        index.remove(ids[1], 1);
        assert_eq!(index.find(ids[0], is(ids[0])).ok(), Some(0));
        assert!(index.find(ids[1], is(ids[1])).is_err());
        assert_eq!(index.find(ids[2], is(ids[2])).ok(), Some(2));
        index.remove(TaskId(1), 3);
    }
}
