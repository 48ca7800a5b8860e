//! Hard constraints per task and cluster beside resources and time: the cluster has no runtime for the task, or has not made it ready.
//! Within a cluster: the share of its slots on nodes that can run the task.

use super::infeasible::Exclusion;
use super::problem::ProblemError;

/// Which clusters each task is excluded from, and which share of the other clusters' slots it can use. Rows are the tasks as given to the
/// DAG, without a virtual entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    clusters: usize,
    cells: Vec<Option<Exclusion>>,
    /// By task, then by cluster: the share of the slots open to the task, from 0 to 1; empty if every share is 1.
    shares: Vec<f64>,
}

impl Constraints {
    /// Evaluates `exclusion` for each (task, cluster) index pair; `None` leaves the cluster open to the task.
    #[must_use]
    pub fn from_fn(
        (tasks, clusters): (usize, usize),
        mut exclusion: impl FnMut(usize, usize) -> Option<Exclusion>,
    ) -> Self {
        let mut cells = Vec::with_capacity(tasks * clusters);
        for task in 0..tasks {
            cells.extend((0..clusters).map(|cluster| exclusion(task, cluster)));
        }
        Self {
            clusters,
            cells,
            shares: Vec::new(),
        }
    }

    /// Restricts each (task, cluster) index pair to a share of the cluster's slots; values outside 0 to 1 are clamped when read.
    #[must_use]
    pub fn with_shares(mut self, mut share: impl FnMut(usize, usize) -> f64) -> Self {
        let clusters = self.clusters.max(1);
        let cells = 0..self.cells.len();
        self.shares = cells
            .map(|at| share(at / clusters, at % clusters))
            .collect();
        self
    }

    /// Whether no cluster is excluded for any task and all slots of each are open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(Option::is_none) && self.shares.iter().all(|share| *share >= 1.0)
    }

    /// The share of a cluster's slots open to a task, from 0 to 1; 1 where none was given, as for a virtual entry.
    #[must_use]
    pub fn share(&self, task: usize, cluster: usize) -> f64 {
        let at = task * self.clusters + cluster;
        self.shares
            .get(at)
            .map_or(1.0, |share| share.clamp(0.0, 1.0))
    }

    /// Why a task is excluded from a cluster, if it is; a virtual entry never is.
    #[must_use]
    pub fn get(&self, task: usize, cluster: usize) -> Option<Exclusion> {
        let at = task * self.clusters + cluster;
        self.cells.get(at).copied().flatten()
    }

    /// Whether the table has `tasks` rows of `clusters` columns.
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
