//! The memory of workers, and which worker takes a new container.
//!
//! **Rule.** The worker with most free memory, if the container fits there; else the worker with most free plus idle memory, if it fits
//! there once idle containers are released. Ties: the smaller index. Busy containers are never released.
//!
//! **Complexity.** O(log m) for each change, O(1) for each query, m workers.
//!
//! **Invariant.** On a worker whose memory was not reduced, the containers hold at most its capacity.

use std::cmp::Reverse;

use super::heap::{Heap, IndexedHeap};
use super::id::WorkerIndex;
use super::order::Rank;
use super::weight::Weight;

#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    capacity: u64,
    held: u64,
    idle_memory: u64,
    /// Idle containers, the next one to be evicted first.
    pub(super) idle: Heap<(Rank, u64)>,
}

impl Worker {
    /// Free memory; negative where the worker's memory was reduced under its containers.
    fn free(&self) -> i64 {
        signed(self.capacity) - signed(self.held)
    }
}

/// The memory of a worker and of all its containers together is bounded far below 2^63 MiB.
fn signed(memory: u64) -> i64 {
    i64::try_from(memory).unwrap_or(i64::MAX)
}

/// The most memory one worker may have, in MiB: 1 EiB.
pub(super) const CAPACITY_MAX: u64 = 1 << 40;

/// All workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    by_free: IndexedHeap<Reverse<i64>>,
    by_room: IndexedHeap<Reverse<i64>>,
    by_capacity: IndexedHeap<Reverse<u64>>,
}

impl Workers {
    pub(super) const fn len(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn add(&mut self, memory: Weight) -> WorkerIndex {
        let index = WorkerIndex::new(self.workers.len());
        self.workers.push(Worker::default());
        self.set_capacity(index.raw(), memory.get());
        index
    }

    pub(super) fn set_capacity(&mut self, worker: u32, memory: u64) {
        self.workers[worker as usize].capacity = memory.min(CAPACITY_MAX);
        let capacity = self.workers[worker as usize].capacity;
        self.by_capacity.set(worker, Reverse(capacity));
        self.resort(worker);
    }

    pub(super) fn capacity(&self, worker: u32) -> u64 {
        self.workers[worker as usize].capacity
    }

    pub(super) fn held(&self, worker: u32) -> u64 {
        self.workers[worker as usize].held
    }

    pub(super) fn is_overfull(&self, worker: u32) -> bool {
        self.workers[worker as usize].free() < 0
    }

    /// The idle container of a worker that would be evicted next.
    pub(super) fn victim(&self, worker: u32) -> Option<u32> {
        Some(self.workers[worker as usize].idle.peek()?.1)
    }

    pub(super) fn idle_mut(&mut self, worker: u32) -> &mut Heap<(Rank, u64)> {
        &mut self.workers[worker as usize].idle
    }

    /// The capacity of the largest worker.
    pub(super) fn largest(&self) -> Weight {
        Weight(self.by_capacity.peek().map_or(0, |(Reverse(most), _)| most))
    }

    /// The largest free memory of any worker.
    pub(super) fn most_free(&self) -> u64 {
        let most = self.by_free.peek().map_or(0, |(Reverse(most), _)| most);
        u64::try_from(most).unwrap_or(0)
    }

    /// The worker with most free memory, if this much fits there.
    pub(super) fn with_free(&self, memory: u64) -> Option<u32> {
        fitting(&self.by_free, memory)
    }

    /// The worker with most free plus idle memory, if this much fits there.
    pub(super) fn with_room(&self, memory: u64) -> Option<u32> {
        fitting(&self.by_room, memory)
    }

    /// Whether a container fits without a release.
    pub(super) fn fits(&self, worker: u32, memory: u64) -> bool {
        self.workers[worker as usize].free() >= signed(memory)
    }

    /// Adds a container's memory to a worker.
    pub(super) fn hold(&mut self, worker: u32, memory: u64) {
        self.workers[worker as usize].held += memory;
        self.resort(worker);
    }

    /// Removes the memory of a container that is not idle from a worker.
    pub(super) fn give_back(&mut self, worker: u32, memory: u64) {
        self.workers[worker as usize].held -= memory;
        self.resort(worker);
    }

    /// Marks a container's memory on a worker as idle, or as no longer idle.
    pub(super) fn turn_idle(&mut self, worker: u32, memory: u64, idle: bool) {
        let row = &mut self.workers[worker as usize];
        if idle {
            row.idle_memory += memory;
        } else {
            row.idle_memory -= memory;
        }
        self.resort(worker);
    }

    fn resort(&mut self, worker: u32) {
        let row = &self.workers[worker as usize];
        let (free, idle) = (row.free(), signed(row.idle_memory));
        self.by_free.set(worker, Reverse(free));
        self.by_room.set(worker, Reverse(free + idle));
    }
}

fn fitting(by: &IndexedHeap<Reverse<i64>>, memory: u64) -> Option<u32> {
    let (Reverse(most), worker) = by.peek()?;
    (most >= signed(memory)).then_some(worker)
}
