//! What a run found.

use fdn_core::Millis;
use fdn_scheduling::commit::{Commit, NodeRecord, Verdict};
use serde::Serialize;

/// The figures of a run, those of the time that is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// How long was measured.
    pub time_ms: f64,
    /// Containers placed per second.
    pub placed_per_s: f64,
    /// The share of lists whose first entry had changed when the committer came to it.
    pub top_changed: f64,
    /// Changed entries per list.
    pub changed_entries: f64,
    /// The share of lists none of whose nodes had room any more.
    pub failed: f64,
    /// How many times all nodes were scanned, per list.
    pub scans: f64,
    /// From the reading of the nodes to the commit, in the mean.
    pub age_ms: f64,
    /// The standard deviation of the slots in use over the nodes, in the mean.
    pub spread: f64,
    /// The share of slots in use, in the mean.
    pub utilization: f64,
}

impl Outcome {
    /// The mean of each figure over some runs.
    #[must_use]
    pub fn mean(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64
        };
        Self {
            time_ms: of(|run| run.time_ms),
            placed_per_s: of(|run| run.placed_per_s),
            top_changed: of(|run| run.top_changed),
            changed_entries: of(|run| run.changed_entries),
            failed: of(|run| run.failed),
            scans: of(|run| run.scans),
            age_ms: of(|run| run.age_ms),
            spread: of(|run| run.spread),
            utilization: of(|run| run.utilization),
        }
    }
}

/// Gathers the figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recorder {
    lists: u64,
    placed: u64,
    top_changed: u64,
    changed: u64,
    failed: u64,
    scans: u64,
    age: f64,
    samples: u64,
    spread: f64,
    used: f64,
}

impl Recorder {
    /// A list was committed.
    pub(super) fn list(&mut self, commit: &Commit, top_changed: bool, age: Millis) {
        self.lists += 1;
        self.top_changed += u64::from(top_changed);
        self.changed += commit.changed as u64;
        self.scans += u64::from(commit.scanned);
        self.age += age.get();
        match commit.verdict {
            Verdict::Placed(_) => self.placed += 1,
            Verdict::Returned | Verdict::Waiting => {}
            Verdict::Ignored => self.lists -= 1,
        }
        let from_list = matches!(commit.verdict, Verdict::Placed(_)) && !commit.scanned;
        self.failed += u64::from(!from_list);
    }

    /// A container that had waited was placed.
    pub(super) fn placed_later(&mut self) {
        self.placed += 1;
    }

    /// The nodes at a moment.
    pub(super) fn sample(&mut self, nodes: &[NodeRecord]) {
        let count = nodes.len() as f64;
        let used = || nodes.iter().map(|node| node.used().cpu_milli.get() as f64);
        let mean = used().sum::<f64>() / count;
        let variance = used().map(|used| (used - mean).powi(2)).sum::<f64>() / count;
        self.samples += 1;
        self.spread += variance.sqrt();
        self.used += mean;
    }

    /// The figures of so long a time, for nodes of so many slots.
    pub(super) fn outcome(&self, time: Millis, slots: u32) -> Outcome {
        let per_list = |count: f64| count / (self.lists.max(1)) as f64;
        let per_sample = |sum: f64| sum / self.samples.max(1) as f64;
        Outcome {
            time_ms: time.get(),
            placed_per_s: self.placed as f64 / time.get() * 1e3,
            top_changed: per_list(self.top_changed as f64),
            changed_entries: per_list(self.changed as f64),
            failed: per_list(self.failed as f64),
            scans: per_list(self.scans as f64),
            age_ms: per_list(self.age),
            spread: per_sample(self.spread),
            utilization: per_sample(self.used) / f64::from(slots),
        }
    }
}
