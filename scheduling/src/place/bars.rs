//! What keeps single tasks out of clusters beside room and time: there is nothing that runs them, or they are not ready there.

use super::infeasible::Exclusion;
use super::problem::ProblemError;

/// What keeps each task out of each cluster, if anything does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    clusters: usize,
    cells: Vec<Option<Exclusion>>,
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
        Self { clusters, cells }
    }

    /// Whether nothing is barred.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(Option::is_none)
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
