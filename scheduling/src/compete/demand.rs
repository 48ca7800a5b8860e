//! The demand of a client group of an app: what takes part in the competition.

use fdn_core::Millis;

use super::Rate;
use crate::dag::{Dag, TaskIndex};
use crate::place::{ClusterIndex, Constraints};

/// The demand of one client group of an app.
#[derive(Clone, Copy, Debug)]
pub struct GroupDemand<'a> {
    /// The app's number: groups of one app share it, and its instances. Numbers should be dense, since tables are as long as the largest.
    pub app: usize,
    /// The workflow that each call runs; the same for all groups of an app.
    pub dag: &'a Dag,
    /// By cluster: the one-way latency from the group's clients.
    pub distance: &'a [Millis],
    /// The group's call rate.
    pub rate: Rate,
    /// The present cluster of each task as given to the DAG; `None` for a group not placed yet. A cluster that no longer exists has
    /// an out-of-range index.
    pub before: Option<&'a [ClusterIndex]>,
    /// Hard constraints of tasks and clusters; `None` if there are none.
    pub constraints: Option<&'a Constraints>,
    /// By task, then by cluster: the ratio of the measured run time to work over speed; `None` if all are 1.
    pub factors: Option<&'a [f64]>,
    /// Whether the group was moved for a gain so recently that it stays for now, unless it must leave (minimum dwell time).
    pub dwells: bool,
}

impl GroupDemand<'_> {
    /// The ratio of a task's run time to work over speed; 1 where none is given.
    pub(super) fn factor(&self, task: usize, at: usize, clusters: usize) -> f64 {
        let factors = self.factors.unwrap_or_default();
        factors.get(task * clusters + at).copied().unwrap_or(1.0)
    }

    /// The share of a cluster's slots open to a task, from 0 to 1.
    pub(super) fn share(&self, task: usize, at: usize) -> f64 {
        self.constraints.map_or(1.0, |all| all.share(task, at))
    }
}

/// The mean work of one call, in ms at speed 1, summed over its tasks.
fn whole(dag: &Dag) -> Millis {
    (0..dag.given()).fold(Millis::ZERO, |sum, task| {
        sum + dag.task(TaskIndex::new(task)).mean()
    })
}

/// A group's offered load at speed 1, in erlangs.
pub(super) fn work(demand: &GroupDemand<'_>) -> f64 {
    demand.rate.erlangs(whole(demand.dag))
}
