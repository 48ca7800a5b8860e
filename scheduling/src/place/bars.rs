//! What keeps single tasks out of clusters beside room and time: there is nothing that runs them, or they are not ready there. And out of a part
//! of a cluster: of many nodes only some have what a task needs.

use super::infeasible::Exclusion;
use super::problem::ProblemError;

/// What keeps each task out of each cluster, if anything does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    clusters: usize,
    cells: Vec<Option<Exclusion>>,
    /// The share of a cluster's slots that is open to a task; all of them, if empty.
    shares: Vec<f64>,
}

impl Bars {
    /// From a function of task and cluster.
    #[must_use]
    pub fn from_fn(
        (tasks, clusters): (usize, usize),
        mut bar: impl FnMut(usize, usize) -> Option<Exclusion>,
    ) -> Self {
        let mut cells = Vec::with_capacity(tasks * clusters);
        for task in 0..tasks {
            cells.extend((0..clusters).map(|cluster| bar(task, cluster)));
        }
        Self {
            clusters,
            cells,
            shares: Vec::new(),
        }
    }

    /// The same with the share of each cluster's slots that is open to each task, from a function of both; what is above 1 counts as 1.
    #[must_use]
    pub fn with_shares(mut self, mut share: impl FnMut(usize, usize) -> f64) -> Self {
        let clusters = self.clusters.max(1);
        let cells = 0..self.cells.len();
        self.shares = cells
            .map(|at| share(at / clusters, at % clusters))
            .collect();
        self
    }

    /// Whether nothing is barred, and all of every cluster is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(Option::is_none) && self.shares.iter().all(|share| *share >= 1.0)
    }

    /// The share of a cluster's slots that is open to a task.
    #[must_use]
    pub fn share(&self, task: usize, cluster: usize) -> f64 {
        let at = task * self.clusters + cluster;
        self.shares
            .get(at)
            .map_or(1.0, |share| share.clamp(0.0, 1.0))
    }

    /// What keeps a task out of a cluster; nothing a virtual entry.
    #[must_use]
    pub fn get(&self, task: usize, cluster: usize) -> Option<Exclusion> {
        let at = task * self.clusters + cluster;
        self.cells.get(at).copied().flatten()
    }

    /// Whether these are of so many tasks and clusters.
    pub(super) fn check(&self, tasks: usize, clusters: usize) -> Result<(), ProblemError> {
        if self.clusters == clusters && self.cells.len() == tasks * clusters {
            return Ok(());
        }
        Err(ProblemError::Size {
            what: "bars",
            given: self.cells.len(),
            wanted: tasks * clusters,
        })
    }
}
