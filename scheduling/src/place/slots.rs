//! The slots of one cluster: how many containers run at once, and when each slot becomes free.
//!
//! Containers are only ever appended, always to the slot that is free first (ties: the smaller slot). Two facts follow, on which the code
//! relies: the earliest start is the least `available` of all slots, and of the containers in a slot only the last can still be running
//! at that time or later, so that one record per slot describes all resources held.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use fdn_core::{Millis, Resources};

/// One slot and the last container in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// When the slot becomes free.
    pub(super) available: Millis,
    /// The slot's number.
    pub(super) index: u32,
    /// When the last container starts; it ends at `available`.
    pub(super) start: Millis,
    /// What the last container holds from `start` until it ends.
    pub(super) demand: Resources,
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.available, self.index).cmp(&(other.available, other.index))
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The slots of a cluster. Times are in ms from the moment of planning.
#[derive(Debug, Default)]
pub struct Slots {
    heap: BinaryHeap<Reverse<Slot>>,
    held: Resources,
}

impl Clone for Slots {
    fn clone(&self) -> Self {
        Self {
            heap: self.heap.clone(),
            held: self.held,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.heap.clone_from(&source.heap);
        self.held = source.held;
    }
}

impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        self.held == other.held && self.available().eq(&other.available())
    }
}

impl Slots {
    /// `count` slots that are free at time 0.
    #[must_use]
    pub fn idle(count: usize) -> Self {
        std::iter::repeat_n(Millis::ZERO, count).collect()
    }

    /// The number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are no slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// `avail[p]`: when the first slot becomes free; infinity without slots.
    #[must_use]
    pub fn earliest(&self) -> Millis {
        self.heap
            .peek()
            .map_or(Millis::INFINITY, |slot| slot.0.available)
    }

    /// The number of the slot that is free first; 0 without slots.
    pub(super) fn first(&self) -> u32 {
        self.heap.peek().map_or(0, |slot| slot.0.index)
    }

    /// When each slot becomes free, by slot number.
    #[must_use]
    pub fn available(&self) -> Vec<Millis> {
        let mut slots: Vec<(u32, Millis)> = self
            .heap
            .iter()
            .map(|slot| (slot.0.index, slot.0.available))
            .collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, available)| available).collect()
    }

    /// Every slot once, in no particular order.
    pub(super) fn records(&self) -> impl Iterator<Item = &Slot> {
        self.heap.iter().map(|slot| &slot.0)
    }

    /// Puts a container into the slot that is free first and returns the slot's number.
    pub(crate) fn occupy(&mut self, start: Millis, finish: Millis, demand: Resources) -> u32 {
        let Some(mut top) = self.heap.peek_mut() else {
            return 0;
        };
        let slot = &mut top.0;
        self.held = subtract(&self.held, &slot.demand).saturating_add(&demand);
        slot.available = finish.max(slot.available);
        slot.start = start;
        slot.demand = demand;
        slot.index
    }

    /// The earliest time from `from` on at which `demand` fits for the duration `work`, beside the containers that hold some of
    /// `free` while they run. A container of no duration holds nothing, and so waits for nothing.
    pub(crate) fn earliest_fit(
        &self,
        free: &Resources,
        demand: &Resources,
        from: Millis,
        work: Millis,
    ) -> Millis {
        if work == Millis::ZERO || self.held.saturating_add(demand).fits(free) {
            return from;
        }
        let mut start = from;
        while !self.fits_during(free, demand, start, start + work) {
            let next = self
                .heap
                .iter()
                .map(|slot| slot.0.available)
                .filter(|end| *end > start)
                .min();
            match next {
                Some(end) => start = end,
                None => break,
            }
        }
        start
    }

    /// Each slot once, in no particular order: its number, when it becomes free, and what its container holds until then.
    pub(crate) fn busy_until(&self) -> impl Iterator<Item = (u32, Millis, Resources)> {
        self.heap
            .iter()
            .map(|slot| (slot.0.index, slot.0.available, slot.0.demand))
    }

    /// Whether `demand` fits at `start` and whenever another container starts before `end`.
    fn fits_during(
        &self,
        free: &Resources,
        demand: &Resources,
        start: Millis,
        end: Millis,
    ) -> bool {
        let fits_at = |at: Millis| {
            self.heap
                .iter()
                .filter(|slot| slot.0.start <= at && at < slot.0.available)
                .fold(*demand, |sum, slot| sum.saturating_add(&slot.0.demand))
                .fits(free)
        };
        fits_at(start)
            && self
                .heap
                .iter()
                .map(|slot| slot.0.start)
                .filter(|at| start < *at && *at < end)
                .all(fits_at)
    }
}

impl FromIterator<Millis> for Slots {
    /// Slots numbered from 0, one for each time at which one becomes free.
    fn from_iter<I: IntoIterator<Item = Millis>>(available: I) -> Self {
        let heap = (0u32..)
            .zip(available)
            .map(|(index, available)| {
                Reverse(Slot {
                    available: available.max(Millis::ZERO),
                    index,
                    start: Millis::ZERO,
                    demand: Resources::default(),
                })
            })
            .collect();
        Self {
            heap,
            held: Resources::default(),
        }
    }
}

fn subtract(from: &Resources, what: &Resources) -> Resources {
    Resources {
        cpu_milli: from.cpu_milli.saturating_sub(what.cpu_milli),
        memory_mib: from.memory_mib.saturating_sub(what.memory_mib),
        gpu_memory_mib: from.gpu_memory_mib.saturating_sub(what.gpu_memory_mib),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, MilliCpu};

    use super::*;

    fn ms(value: f64) -> Millis {
        Millis::new(value)
    }

    fn mib(value: u64) -> Resources {
        Resources::new(MilliCpu(0), MebiBytes(value))
    }

    #[test]
    fn the_slot_that_is_free_first_is_taken_ties_by_number() {
        let mut slots: Slots = [5.0, 0.0, 0.0].map(ms).into_iter().collect();
        assert_eq!(slots.occupy(ms(0.0), ms(7.0), mib(0)), 1);
        assert_eq!(slots.occupy(ms(0.0), ms(6.0), mib(0)), 2);
        assert_eq!(slots.earliest(), ms(5.0));
        assert_eq!(slots.occupy(ms(5.0), ms(9.0), mib(0)), 0);
        assert_eq!(slots.available(), [9.0, 7.0, 6.0].map(ms));
        assert_eq!(Slots::idle(0).earliest(), Millis::INFINITY);
    }

    #[test]
    fn resources_held_by_running_containers_delay_a_start() {
        let mut slots = Slots::idle(3);
        slots.occupy(ms(0.0), ms(10.0), mib(60));
        // Starts late, because its data was late: the slot is taken, the memory is not until 4.
        slots.occupy(ms(4.0), ms(8.0), mib(30));
        let fit = |demand, work| slots.earliest_fit(&mib(100), &mib(demand), ms(0.0), ms(work));
        assert_eq!(fit(10, 50.0), ms(0.0));
        // 40 fit beside 60, but only until the second starts.
        assert_eq!(fit(40, 4.0), ms(0.0));
        assert_eq!(fit(40, 5.0), ms(8.0));
        assert_eq!(fit(41, 1.0), ms(10.0));
        assert_eq!(fit(100, 1.0), ms(10.0));
        assert_eq!(fit(100, 0.0), ms(0.0));
    }
}
