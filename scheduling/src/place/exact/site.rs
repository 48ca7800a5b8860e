//! One cluster while a schedule is built in order of start time; every step can be undone.

use fdn_core::Resources;

use super::super::model::Cluster;
use super::super::problem::Hold;

/// A container that runs for a time and holds resources meanwhile.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: f64,
    end: f64,
    held: Resources,
}

/// The remaining capacity of a cluster.
#[derive(Debug)]
pub(super) struct Site {
    /// When each slot is free, and its number; at most one slot per task of the job, those that are free first.
    slots: Vec<(f64, u32)>,
    free: Resources,
    largest: Resources,
    /// The containers that hold resources only while they run ([`Hold::Task`]), those from before this job first.
    runs: Vec<Run>,
}

/// What [`Site::undo`] needs to revert a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    slot: usize,
    available: f64,
    free: Resources,
    runs: usize,
}

impl Site {
    /// The cluster as the problem gives it, for a job of `tasks` tasks.
    pub(super) fn new(cluster: &Cluster, tasks: usize, hold: Hold) -> Self {
        let records = || cluster.slots.records();
        let mut slots: Vec<(f64, u32)> = records()
            .map(|slot| (slot.available.get(), slot.index))
            .collect();
        slots.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        slots.truncate(tasks);
        let runs = match hold {
            Hold::Job => Vec::new(),
            Hold::Task => records()
                .map(|slot| Run {
                    start: slot.start.get(),
                    end: slot.available.get(),
                    held: slot.demand,
                })
                .collect(),
        };
        Self {
            slots,
            free: cluster.free,
            largest: cluster.largest,
            runs,
        }
    }

    /// Whether a container could ever get its resources here.
    pub(super) fn has_room(&self, demand: &Resources) -> bool {
        demand.fits(&self.free) && demand.fits(&self.largest)
    }

    /// The earliest start from `ready` on of a container that runs for `work`.
    pub(super) fn earliest(&self, ready: f64, work: f64, demand: &Resources) -> f64 {
        let mut start = self.slots[self.first()].0.max(ready);
        if work == 0.0 || self.runs.is_empty() {
            return start;
        }
        while !self.fits_during(start, start + work, demand) {
            let ends = self
                .runs
                .iter()
                .map(|run| run.end)
                .filter(|end| *end > start);
            start = ends.fold(f64::INFINITY, f64::min);
            if start.is_infinite() {
                break;
            }
        }
        start
    }

    /// Whether `demand` fits at `start` and whenever another container starts before `end`: only at those moments does the held amount grow.
    fn fits_during(&self, start: f64, end: f64, demand: &Resources) -> bool {
        let fits_at = |time: f64| {
            let running = self
                .runs
                .iter()
                .filter(|run| run.start <= time && time < run.end);
            running
                .fold(*demand, |sum, run| sum.saturating_add(&run.held))
                .fits(&self.free)
        };
        let starts = self.runs.iter().map(|run| run.start);
        fits_at(start) && starts.filter(|at| start < *at && *at < end).all(fits_at)
    }

    /// The idle time of all slots between two times, summed.
    pub(super) fn idle(&self, from: f64, to: f64) -> f64 {
        let slots = self.slots.iter();
        slots.map(|(free, _)| (to - free.max(from)).max(0.0)).sum()
    }

    /// The slot that is free first, ties by number.
    fn first(&self) -> usize {
        let mut first = 0;
        for slot in 1..self.slots.len() {
            if self.slots[slot] < self.slots[first] {
                first = slot;
            }
        }
        first
    }

    /// Starts a container in the slot that is free first; returns the slot's number.
    pub(super) fn put(
        &mut self,
        start: f64,
        finish: f64,
        demand: &Resources,
        hold: Hold,
    ) -> (u32, Undo) {
        let slot = self.first();
        let (available, number) = self.slots[slot];
        let undo = Undo {
            slot,
            available,
            free: self.free,
            runs: self.runs.len(),
        };
        self.slots[slot].0 = finish;
        match hold {
            Hold::Job => {
                let free = self.free.checked_sub(demand);
                self.free = free.expect("only what has room is started");
            }
            Hold::Task if start < finish && *demand != Resources::default() => {
                self.runs.push(Run {
                    start,
                    end: finish,
                    held: *demand,
                });
            }
            Hold::Task => {}
        }
        (number, undo)
    }

    /// Reverts the last step.
    pub(super) fn undo(&mut self, undo: Undo) {
        self.slots[undo.slot].0 = undo.available;
        self.free = undo.free;
        self.runs.truncate(undo.runs);
    }
}
