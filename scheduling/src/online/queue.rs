//! The queue of one cluster: a heap of jobs, and in each job a heap of its containers whose data has arrived.
//!
//! Two levels, because the key of a whole job may change at once (its remaining work, whenever one of its containers ends anywhere): that
//! moves one job among the J that wait here, O(log J), instead of each of its containers. A job is ordered by its own key, then by that
//! of its first container; orders that ignore jobs give all of them the same key. A second heap yields the job that has waited longest.
//! Insertion and removal: O(log J + log w) for w containers of the job.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::Millis;

use super::heap::IndexedHeap;
use crate::dag::TaskIndex;

/// The sort key of a job: smaller first, ties by arrival.
pub(super) type JobKey = (Millis, u64);

/// The sort key of a container: smaller first, ties by the second part.
pub(super) type TaskKey = (Millis, u64);

/// A waiting container.
type Entry = Reverse<(TaskKey, TaskIndex)>;

/// The queue: see the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By the job's place.
    waiting: Vec<BinaryHeap<Entry>>,
    order: IndexedHeap<(JobKey, TaskKey)>,
    oldest: IndexedHeap<u64>,
}

impl Queue {
    /// Inserts a container. `arrival` is the sequence number of its job.
    pub(super) fn push(
        &mut self,
        job: u32,
        arrival: u64,
        key: JobKey,
        task: TaskIndex,
        task_key: TaskKey,
    ) {
        let wanted = job as usize + 1;
        if self.waiting.len() < wanted {
            self.waiting.resize_with(wanted, BinaryHeap::new);
        }
        self.waiting[job as usize].push(Reverse((task_key, task)));
        self.oldest.set(job, arrival);
        self.rekey(job, key);
    }

    /// The first container in order.
    pub(super) fn first(&self) -> Option<(u32, TaskIndex)> {
        let (_, job) = self.order.first()?;
        Some((job, self.head(job)?.1))
    }

    /// The key of the first container in order.
    pub(super) fn first_key(&self) -> Option<(JobKey, TaskKey)> {
        self.order.first().map(|(key, _)| key)
    }

    /// The first container of the job that arrived first, by place and task.
    pub(super) fn oldest(&self) -> Option<(u32, TaskIndex)> {
        let (_, job) = self.oldest.first()?;
        Some((job, self.head(job)?.1))
    }

    /// Removes the first container of a job.
    pub(super) fn pop(&mut self, job: u32, key: JobKey) -> Option<TaskIndex> {
        let Reverse((_, task)) = self.waiting.get_mut(job as usize)?.pop()?;
        self.rekey(job, key);
        Some(task)
    }

    /// Changes the key of a job.
    pub(super) fn rekey(&mut self, job: u32, key: JobKey) {
        match self.head(job) {
            Some((task_key, _)) => self.order.set(job, (key, task_key)),
            None => {
                self.order.remove(job);
                self.oldest.remove(job);
            }
        }
    }

    /// Removes all containers of a job.
    pub(super) fn remove(&mut self, job: u32) {
        if let Some(waiting) = self.waiting.get_mut(job as usize) {
            waiting.clear();
        }
        self.order.remove(job);
        self.oldest.remove(job);
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.waiting.iter_mut().for_each(BinaryHeap::clear);
        self.order.clear();
        self.oldest.clear();
    }

    fn head(&self, job: u32) -> Option<(TaskKey, TaskIndex)> {
        let Reverse(head) = self.waiting.get(job as usize)?.peek()?;
        Some(*head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ms: f64, arrival: u64) -> JobKey {
        (Millis::new(ms), arrival)
    }

    fn drain(queue: &mut Queue, keys: &[JobKey]) -> Vec<(u32, usize)> {
        std::iter::from_fn(|| {
            let (job, task) = queue.first()?;
            assert_eq!(queue.pop(job, keys[job as usize]), Some(task));
            Some((job, task.get()))
        })
        .collect()
    }

    #[test]
    fn jobs_by_their_key_then_containers_by_theirs() {
        let mut queue = Queue::default();
        let mut keys = [key(30.0, 0), key(20.0, 1), key(20.0, 2)];
        for (job, task, order) in [
            (0u32, 0usize, 1.0),
            (1, 5, 2.0),
            (1, 4, 1.0),
            (2, 7, 0.0),
            (1, 3, 2.0),
        ] {
            let at = (Millis::new(order), task as u64);
            let arrival = u64::from(job);
            queue.push(job, arrival, keys[job as usize], TaskIndex::new(task), at);
        }
        assert_eq!(queue.oldest(), Some((0, TaskIndex::new(0))));
        keys[2] = key(10.0, 2);
        queue.rekey(2, keys[2]);
        assert_eq!(
            drain(&mut queue, &keys),
            [(2, 7), (1, 4), (1, 3), (1, 5), (0, 0)]
        );
        assert_eq!(queue.oldest(), None);
    }

    #[test]
    fn a_job_that_is_taken_out_leaves_nothing() {
        let mut queue = Queue::default();
        for job in 0..3 {
            queue.push(
                job,
                u64::from(job),
                key(0.0, 0),
                TaskIndex::new(1),
                key(1.0, u64::from(job)),
            );
        }
        queue.remove(0);
        queue.remove(7);
        assert_eq!(queue.first(), Some((1, TaskIndex::new(1))));
        assert_eq!(queue.oldest().map(|(job, _)| job), Some(1));
        queue.clear();
        assert_eq!((queue.first(), queue.oldest()), (None, None));
        assert_eq!(queue.pop(2, key(0.0, 0)), None);
    }
}
