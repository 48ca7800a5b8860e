//! One cluster as stored by the state machine: slots, resources, queue, and the work bound to it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::{ClusterId, Millis, Resources};

use super::queue::Queue;
use super::settings::Starvation;
use crate::dag::TaskIndex;
use crate::place::{Availability, Cluster, Hold, Speed};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// It is idle.
    Idle,
    /// It runs work from before the first job, which holds these resources.
    Foreign(Resources),
    /// It runs the container of a job (by place) and task.
    Busy(u32, TaskIndex),
}

/// The state of one cluster.
#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) id: ClusterId,
    pub(super) speed: Speed,
    pub(super) availability: Availability,
    /// Whether it is so much slower than the fastest that it takes no part.
    pub(super) slow: bool,
    pub(super) capacity: Resources,
    pub(super) largest: Resources,
    /// What is free when nothing foreign is counted: not held by a container and not claimed by a job.
    pub(super) free: Resources,
    /// What work from before the first job holds; summed over all of it, which may not run at one time, so it can exceed the capacity.
    foreign: Resources,
    pub(super) queue: Queue,
    /// Pre-empted containers, which keep their resources.
    pub(super) paused: Queue,
    /// The run time of the containers that are bound here and not running, in ms.
    pending: f64,
    pending_count: usize,
    slots: Vec<Slot>,
    /// Idle slots, by the time since when they are.
    idle: BinaryHeap<Reverse<(Millis, u32)>>,
    /// Busy slots, by the time when they are expected to be free.
    busy: Vec<(Millis, u32)>,
    /// The credit for serving jobs out of order, in ms of work.
    credit: f64,
}

impl ClusterState {
    pub(super) fn new(cluster: &Cluster, hold: Hold) -> Self {
        let count = cluster.slots.len();
        let mut cluster_state = Self {
            id: cluster.id.clone(),
            speed: cluster.speed,
            availability: cluster.availability,
            slow: false,
            capacity: cluster.free,
            largest: cluster.largest,
            free: cluster.free,
            foreign: Resources::default(),
            queue: Queue::default(),
            paused: Queue::default(),
            pending: 0.0,
            pending_count: 0,
            slots: vec![Slot::Idle; count],
            idle: BinaryHeap::with_capacity(count),
            busy: Vec::with_capacity(count),
            credit: 0.0,
        };
        for (slot, available, held) in cluster.slots.busy_until() {
            if available > Millis::ZERO {
                // Under Hold::Job it is already excluded from what is free.
                let held = match hold {
                    Hold::Task => held,
                    Hold::Job => Resources::default(),
                };
                cluster_state.foreign = cluster_state.foreign.saturating_add(&held);
                cluster_state.slots[slot as usize] = Slot::Foreign(held);
                cluster_state.insert_busy(available, slot);
            } else {
                cluster_state.idle.push(Reverse((Millis::ZERO, slot)));
            }
        }
        cluster_state
    }

    /// Whether the cluster accepts new work and has slots.
    pub(super) fn is_open(&self) -> bool {
        self.availability == Availability::Up && !self.slots.is_empty()
    }

    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// The resources free at this moment.
    pub(super) const fn room(&self) -> Resources {
        let (free, taken) = (&self.free, &self.foreign);
        Resources {
            cpu_milli: free.cpu_milli.saturating_sub(taken.cpu_milli),
            memory_mib: free.memory_mib.saturating_sub(taken.memory_mib),
            gpu_memory_mib: free.gpu_memory_mib.saturating_sub(taken.gpu_memory_mib),
        }
    }

    /// Frees a slot that was busy from the beginning.
    pub(super) fn vacate_foreign(&mut self, now: Millis, slot: u32, held: &Resources) {
        self.foreign = self.foreign.checked_sub(held).unwrap_or_default();
        self.vacate(now, slot);
    }

    pub(super) fn slot(&self, slot: u32) -> Option<Slot> {
        self.slots.get(slot as usize).copied()
    }

    /// The busy slots, by the time when they are expected to be free.
    pub(super) fn busy(&self) -> &[(Millis, u32)] {
        &self.busy
    }

    /// The run time of the containers that are bound here and not running, in ms.
    pub(super) const fn pending(&self) -> f64 {
        self.pending
    }

    /// Adds a container that is bound here and waits.
    pub(super) fn add_pending(&mut self, time: f64) {
        self.pending += time;
        self.pending_count += 1;
    }

    /// Removes a container that starts or is gone. With none left the sum is reset to zero, so that rounding errors do not accumulate.
    pub(super) fn remove_pending(&mut self, time: f64) {
        self.pending_count = self.pending_count.saturating_sub(1);
        self.pending = if self.pending_count == 0 {
            0.0
        } else {
            (self.pending - time).max(0.0)
        };
    }

    /// The remaining run time of the containers that are bound here and not done, in ms. O(k).
    pub(super) fn backlog(&self, now: Millis) -> f64 {
        let running = self.busy.iter().map(|(until, _)| until.get() - now.get());
        self.pending + running.map(|left| left.max(0.0)).sum::<f64>()
    }

    /// The wait from `now`, in ms, for work that comes after `ahead` ms of other work: the level to which that work fills the slots,
    /// each from the time when it is expected to be free. O(k).
    pub(super) fn wait(&self, now: Millis, ahead: f64) -> f64 {
        let mut slots = self.idle.len() as f64;
        let mut busy = 0.0;
        for (until, _) in &self.busy {
            let until = (until.get() - now.get()).max(0.0);
            if slots > 0.0 && (ahead + busy) / slots <= until {
                break;
            }
            slots += 1.0;
            busy += until;
        }
        (ahead + busy) / slots
    }

    /// Occupies the slot that has been idle longest; `None` if none is idle.
    pub(super) fn occupy(&mut self, job: u32, task: TaskIndex, until: Millis) -> Option<u32> {
        let Reverse((_, slot)) = self.idle.pop()?;
        self.slots[slot as usize] = Slot::Busy(job, task);
        self.insert_busy(until, slot);
        Some(slot)
    }

    /// Frees a busy slot.
    pub(super) fn vacate(&mut self, now: Millis, slot: u32) {
        self.busy.retain(|(_, busy)| *busy != slot);
        self.slots[slot as usize] = Slot::Idle;
        self.idle.push(Reverse((now, slot)));
    }

    /// Removes everything that ran or waited here.
    pub(super) fn empty(&mut self, now: Millis) {
        self.busy.clear();
        self.idle.clear();
        for (slot, state) in (0u32..).zip(&mut self.slots) {
            *state = Slot::Idle;
            self.idle.push(Reverse((now, slot)));
        }
        self.queue.clear();
        self.paused.clear();
        (self.pending, self.pending_count, self.credit) = (0.0, 0, 0.0);
        (self.free, self.foreign) = (self.capacity, Resources::default());
    }

    /// Resets the pending time, to be summed again.
    pub(super) fn reset_pending(&mut self) {
        (self.pending, self.pending_count) = (0.0, 0);
    }

    /// Changes when a running container is expected to end.
    pub(super) fn expect(&mut self, slot: u32, until: Millis) {
        self.busy.retain(|(_, busy)| *busy != slot);
        self.insert_busy(until, slot);
    }

    /// Whether the credit allows serving the oldest job out of order.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0.0
    }

    /// Books the start of a container that takes `time`, in or out of order. The credit is capped at the share of what all slots do
    /// within the threshold.
    pub(super) fn account(&mut self, rule: &Starvation, time: f64, out_of_order: bool) {
        let most = rule.share() * rule.after().get() * self.slots.len() as f64;
        self.credit += rule.share() * time;
        if out_of_order {
            self.credit -= time;
        }
        self.credit = self.credit.min(most.max(rule.share() * time));
    }

    fn insert_busy(&mut self, until: Millis, slot: u32) {
        let at = self.busy.partition_point(|busy| *busy < (until, slot));
        self.busy.insert(at, (until, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster_state(slots: usize) -> ClusterState {
        let id = "a".parse().expect("a label");
        ClusterState::new(&Cluster::new(id, Speed::new(1.0), slots), Hold::Task)
    }

    #[test]
    fn the_wait_is_the_level_to_which_work_ahead_fills_the_slots() {
        let mut cluster_state = cluster_state(3);
        let now = Millis::new(100.0);
        let wait = |cluster_state: &ClusterState, ahead| cluster_state.wait(now, ahead);
        assert_eq!(wait(&cluster_state, 0.0), 0.0);
        assert_eq!(wait(&cluster_state, 6.0), 2.0);
        for until in [104.0, 110.0] {
            cluster_state.occupy(0, TaskIndex::new(0), Millis::new(until));
        }
        // One idle slot takes the first 4 ms, then two share the next 12, then three.
        let expected = [
            (0.0, 0.0),
            (3.0, 3.0),
            (4.0, 4.0),
            (8.0, 6.0),
            (16.0, 10.0),
            (22.0, 12.0),
        ];
        for (ahead, level) in expected {
            assert_eq!(wait(&cluster_state, ahead), level);
        }
        cluster_state.occupy(0, TaskIndex::new(0), Millis::new(101.0));
        assert_eq!(wait(&cluster_state, 0.0), 1.0);
        // A container past its expected end is expected to end now.
        assert_eq!(cluster_state.wait(Millis::new(102.0), 0.0), 0.0);
    }

    #[test]
    fn the_slot_that_has_been_idle_longest_is_taken_ties_by_number() {
        let mut cluster_state = cluster_state(3);
        let task = TaskIndex::new(0);
        let occupy =
            |cluster_state: &mut ClusterState| cluster_state.occupy(0, task, Millis::new(9.0));
        assert_eq!(
            [0, 1, 2].map(|_| occupy(&mut cluster_state)),
            [0, 1, 2].map(Some)
        );
        assert_eq!(occupy(&mut cluster_state), None);
        cluster_state.vacate(Millis::new(5.0), 2);
        cluster_state.vacate(Millis::new(6.0), 0);
        cluster_state.vacate(Millis::new(6.0), 1);
        assert_eq!(
            [0, 1, 2].map(|_| occupy(&mut cluster_state)),
            [2, 0, 1].map(Some)
        );
    }

    #[test]
    fn no_more_than_the_share_goes_out_of_order() {
        let rule = Starvation::new(Millis::new(100.0), 0.25).expect("a share");
        let mut cluster_state = cluster_state(2);
        let (mut out, mut all) = (0.0, 0.0);
        for n in 0..1000 {
            let time = f64::from(n % 7 + 1);
            let out_of_order = cluster_state.has_credit();
            cluster_state.account(&rule, time, out_of_order);
            all += time;
            if out_of_order {
                out += time;
            }
            assert!(out <= 0.25 * all + 7.0);
        }
        assert!(out >= 0.2 * all);
        for _ in 0..1000 {
            cluster_state.account(&rule, 1.0, false);
        }
        assert_eq!(cluster_state.credit, 50.0);
    }

    #[test]
    fn savings_have_a_bound_are_spent_and_are_lost_with_the_cluster() {
        let rule = Starvation::new(Millis::new(10.0), 0.5).expect("valid");
        let mut cluster_state = cluster_state(1);
        assert!(!cluster_state.has_credit(), "nothing has started yet");
        for _ in 0..10 {
            cluster_state.account(&rule, 10.0, false);
        }
        // The credit is capped at half of what one slot does in 10 ms, i.e. 5, not of all 100 ms; then 5 + 3 - 6, then 2 + 3 - 6.
        cluster_state.account(&rule, 6.0, true);
        assert!(cluster_state.has_credit());
        cluster_state.account(&rule, 6.0, true);
        assert!(!cluster_state.has_credit());
        cluster_state.account(&rule, 4.0, false);
        assert!(cluster_state.has_credit());
        cluster_state.empty(Millis::ZERO);
        assert!(!cluster_state.has_credit());
    }
}
