//! Why a task cannot go to a cluster, and why a job cannot be placed at all.

use std::fmt;

use fdn_core::manifest::RuntimeKind;
use fdn_core::{ClusterId, Coded, ErrorCode, Resources};

use crate::dag::TaskIndex;

/// How many clusters an error text names; the rest are only counted.
const NAMED_MAX: usize = 8;

/// The constraint that keeps a task from a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// The cluster does not answer.
    Down,
    /// The cluster is draining: it finishes its work and takes no more.
    Draining,
    /// The cluster no longer exists.
    Gone,
    /// None of the cluster's nodes has the runtime that the task needs.
    NoRuntime {
        /// The kind of function, and so of the runtime that is missing.
        kind: RuntimeKind,
    },
    /// The cluster has not made the task ready yet, and another one has.
    NotReady,
    /// None of its nodes could make the task ready.
    CannotServe,
    /// The cluster has no slot, or none that ever becomes free.
    NoSlots,
    /// The client cannot reach the cluster: its distance is infinite.
    OutOfReach,
    /// The cluster's speed is 0, or below [`super::SLOWEST_RATIO`] times that of the fastest.
    TooSlow,
    /// The free resources of the cluster, or of each of its nodes, are less than the task demands.
    Shortage {
        /// The task's demand.
        wanted: Resources,
        /// The free resources.
        free: Resources,
    },
    /// The instances that the clients' calls need do not fit into the memory beside those that others need.
    Crowded {
        /// The additional memory that those instances need.
        wanted: Resources,
        /// The memory that others leave.
        left: Resources,
    },
    /// The task would never finish: it has no finite run time on this cluster, or its data never arrives there.
    NeverFinishes,
    /// The job has more tasks than the exact search accepts ([`super::Exact`]).
    NotSearched {
        /// How many tasks the job has.
        tasks: usize,
    },
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("does not answer"),
            Self::Draining => f.write_str("is draining"),
            Self::Gone => f.write_str("no longer exists"),
            Self::NoRuntime { kind } => f.write_str(match kind {
                RuntimeKind::Wasm => "has no node that runs components",
                RuntimeKind::Docker => "has no node that runs containers",
            }),
            Self::NotReady => f.write_str("is not ready yet to serve it"),
            Self::CannotServe => f.write_str("has no node that could make it ready"),
            Self::NoSlots => f.write_str("has no slot for calls"),
            Self::OutOfReach => f.write_str("cannot be reached by the client"),
            Self::TooSlow => f.write_str("is too slow to count"),
            Self::Shortage { wanted, free } => match wanted.shortage(free) {
                Some(text) => f.write_str(&text),
                None => f.write_str("has no room"),
            },
            Self::Crowded { wanted, left } => {
                f.write_str("has its memory promised to others: ")?;
                match wanted.shortage(left) {
                    Some(text) => f.write_str(&text),
                    None => f.write_str("none is left"),
                }
            }
            Self::NeverFinishes => f.write_str("would never finish it"),
            Self::NotSearched { tasks } => {
                write!(f, "is not searched for a job of {tasks} tasks")
            }
        }
    }
}

/// No cluster can take one of the tasks, so the whole job is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Infeasible {
    /// The task's index in the DAG.
    pub task: TaskIndex,
    /// The task's name in the DAG.
    pub name: String,
    /// What excludes it from each cluster, in the order of the problem.
    pub clusters: Vec<(ClusterId, Exclusion)>,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no cluster can take {}", self.name)?;
        if self.clusters.is_empty() {
            return f.write_str(": there is none");
        }
        for (i, (id, why)) in self.clusters.iter().take(NAMED_MAX).enumerate() {
            write!(f, "{} {id} ({why})", if i == 0 { ":" } else { "," })?;
        }
        match self.clusters.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for Infeasible {}

impl Coded for Infeasible {
    fn code(&self) -> ErrorCode {
        ErrorCode::NoClusterFits
    }
}
