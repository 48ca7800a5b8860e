//! The events and actions of the state machine.

use std::fmt;

use fdn_core::{Coded, ErrorCode, Millis};

use super::settings::Limits;
use crate::dag::TaskIndex;
use crate::place::{ClusterIndex, Infeasible, ProblemError, Speed};

/// A job in progress. References are unique as long as fewer than 2^32 jobs pass through one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    pub(super) place: u32,
    pub(super) generation: u32,
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place, self.generation)
    }
}

impl JobRef {
    /// The job's place: unique among the jobs in progress, and smaller than the largest number of them at any one time.
    #[must_use]
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// One attempt at one container. The attempt is incremented whenever a container is bound anew or pre-empted, and reports about earlier
/// attempts are ignored, so that nothing counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunRef {
    /// The job.
    pub job: JobRef,
    /// The container's task in the job's DAG.
    pub task: TaskIndex,
    /// The attempt's number.
    pub attempt: u32,
}

/// An event reported to the state machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// All data of a bound container has arrived on its cluster.
    Delivered(RunRef),
    /// A container has finished.
    Finished(RunRef),
    /// A slot that was busy from the beginning is free.
    SlotFreed {
        /// The slot's cluster.
        cluster: ClusterIndex,
        /// The slot's number.
        slot: u32,
    },
    /// A cluster does not respond; what was bound there is bound anew.
    Lost(ClusterIndex),
    /// A cluster accepts no new work; what is bound there still runs.
    Drained(ClusterIndex),
    /// A cluster accepts work again; one that was lost returns empty.
    Returned(ClusterIndex),
    /// A cluster's speed has changed to this.
    SpeedChanged(ClusterIndex, Speed),
    /// A job is no longer wanted.
    Cancelled(JobRef),
}

/// Whether an event had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It had.
    Applied,
    /// It had not: it concerns an outdated attempt, job or state.
    Stale,
}

/// Where a container's data is when the container is bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// On the cluster: the container is in its queue.
    Here,
    /// In transit, expected to arrive at this time; [`Event::Delivered`] puts the container into the queue.
    Expected(Millis),
}

/// An action for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Send a container's data to a cluster.
    Bind {
        /// The attempt.
        run: RunRef,
        /// The cluster to which the container is bound.
        cluster: ClusterIndex,
        /// Where the container's data is.
        input: Input,
    },
    /// Start or resume a container.
    Start {
        /// The attempt.
        run: RunRef,
        /// Its cluster.
        cluster: ClusterIndex,
        /// Its slot.
        slot: u32,
        /// When it is expected to finish.
        until: Millis,
    },
    /// Pre-empt a running container; it keeps its progress and its resources.
    Preempt {
        /// The attempt, which has ended.
        run: RunRef,
        /// Its cluster.
        cluster: ClusterIndex,
        /// Its former slot, now free.
        slot: u32,
    },
    /// Stop a running container whose job was cancelled.
    Stop {
        /// The attempt, which has ended.
        run: RunRef,
        /// Its cluster.
        cluster: ClusterIndex,
        /// Its former slot, now free.
        slot: u32,
    },
    /// Reports that no cluster can take a ready container at present; it is bound when one can.
    Strand {
        /// The container's job.
        job: JobRef,
        /// The container's task.
        task: TaskIndex,
    },
    /// All containers of a job have finished.
    Done(JobRef),
}

/// A job was not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A bound would be exceeded.
    #[error("{jobs} jobs with {tasks} tasks are under way, {} jobs and {} tasks are allowed; try again later", limits.jobs, limits.tasks)]
    Full {
        /// The number of jobs in progress.
        jobs: usize,
        /// The number of their tasks.
        tasks: usize,
        /// The bounds.
        limits: Limits,
    },
    /// The job's tables do not match the clusters.
    #[error("the job is not consistent with the clusters")]
    Problem(#[from] ProblemError),
    /// A container of the job fits nowhere, even if nothing else ran.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
}

impl Coded for Refused {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Full { .. } => ErrorCode::Overloaded,
            Self::Problem(error) => error.code(),
            Self::Infeasible(error) => error.code(),
        }
    }
}
