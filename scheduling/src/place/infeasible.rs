//! Why a task cannot go to a cluster, and why a job cannot be placed at all.

use std::fmt;

use fdn_core::manifest::RuntimeKind;
use fdn_core::{ClusterId, Coded, ErrorCode, Resources};

use crate::dag::TaskIndex;

/// How many clusters an error text names before it only counts them.
const NAMED_MAX: usize = 8;

/// Why a task cannot go to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// The cluster does not answer.
    Down,
    /// The cluster takes no new work.
    Draining,
    /// The cluster no longer exists.
    Gone,
    /// None of its nodes has what the task runs in.
    NoRuntime {
        /// What kind of function it is.
        kind: RuntimeKind,
    },
    /// The task is being made ready there, and is ready elsewhere.
    NotReady,
    /// None of its nodes could make the task ready.
    CannotServe,
    /// The cluster has no slot that is ever free.
    NoSlots,
    /// The client cannot reach the cluster.
    OutOfReach,
    /// The cluster is so slow that it counts as absent.
    TooSlow,
    /// The cluster, or each of its nodes, has less free than the task wants.
    Shortage {
        /// What the task wants.
        wanted: Resources,
        /// What is free.
        free: Resources,
    },
    /// The instances that the calls of its clients need do not fit beside those that others need.
    Crowded {
        /// The memory that they need more than there is now.
        wanted: Resources,
        /// The memory that others leave.
        left: Resources,
    },
    /// The task cannot run on this cluster, or its data never gets there.
    NeverFinishes,
    /// The job is too large for the search that was asked for.
    NotSearched {
        /// How many tasks it has.
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

/// No cluster can take one of the tasks, so nothing is placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Infeasible {
    /// The task.
    pub task: TaskIndex,
    /// Its name.
    pub name: String,
    /// What keeps it out of each cluster, in the order of the problem.
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
