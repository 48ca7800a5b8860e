//! What goes into the state machine and what comes out.

use std::fmt;

use fdn_core::{Coded, ErrorCode, Millis};

use super::settings::Limits;
use crate::dag::TaskIndex;
use crate::place::{ClusterIndex, Infeasible, ProblemError, Speed};

/// A job under way. No other job ever has the same one, as long as fewer than 2^32 jobs pass through one place.
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
    /// Where the job is kept: smaller than the number of jobs that were ever under way at once.
    #[must_use]
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// One attempt at one container. Whenever a container is bound anew or pre-empted the attempt counts up, and what is still
/// reported of the earlier one is ignored: that is why nothing counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunRef {
    /// The job.
    pub job: JobRef,
    /// The container's task.
    pub task: TaskIndex,
    /// The attempt.
    pub attempt: u32,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// All data of a bound container is on its cluster.
    Delivered(RunRef),
    /// A container has finished.
    Finished(RunRef),
    /// A slot that was busy from the beginning is free.
    SlotFreed {
        /// The cluster.
        cluster: ClusterIndex,
        /// The slot.
        slot: u32,
    },
    /// A cluster does not answer; what was bound there is bound anew.
    Lost(ClusterIndex),
    /// A cluster takes no new work; what is bound there runs.
    Drained(ClusterIndex),
    /// A cluster takes work again; one that was lost comes back empty.
    Returned(ClusterIndex),
    /// A cluster works faster or slower than before.
    SpeedChanged(ClusterIndex, Speed),
    /// Nobody waits for a job any more.
    Cancelled(JobRef),
}

/// Whether an event said anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It did.
    Applied,
    /// It did not: it is of an attempt, a job or a state that is past.
    Stale,
}

/// Where a container's data is when it is bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// On the cluster: the container is in its queue.
    Here,
    /// On its way; [`Event::Delivered`] puts the container into the queue.
    Expected(Millis),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Send a container's data to a cluster.
    Bind {
        /// The attempt.
        run: RunRef,
        /// The cluster.
        cluster: ClusterIndex,
        /// Where the data is.
        input: Input,
    },
    /// Start a container, or go on with it.
    Start {
        /// The attempt.
        run: RunRef,
        /// The cluster.
        cluster: ClusterIndex,
        /// The slot.
        slot: u32,
        /// When it is expected to finish.
        until: Millis,
    },
    /// Pause a running container; it keeps its progress and its resources.
    Preempt {
        /// The attempt, which is over.
        run: RunRef,
        /// The cluster.
        cluster: ClusterIndex,
        /// The slot, which is free.
        slot: u32,
    },
    /// Stop a running container of a job that was cancelled.
    Stop {
        /// The attempt, which is over.
        run: RunRef,
        /// The cluster.
        cluster: ClusterIndex,
        /// The slot, which is free.
        slot: u32,
    },
    /// No cluster can take a container that could start now. It is bound when one can.
    Strand {
        /// The job.
        job: JobRef,
        /// The task.
        task: TaskIndex,
    },
    /// All containers of a job have finished.
    Done(JobRef),
}

/// A job that is not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too much is under way.
    #[error("{jobs} jobs with {tasks} tasks are under way, {} jobs and {} tasks are allowed; try again later", limits.jobs, limits.tasks)]
    Full {
        /// Jobs under way.
        jobs: usize,
        /// Their tasks.
        tasks: usize,
        /// How much may be.
        limits: Limits,
    },
    /// The job does not belong to these clusters.
    #[error("the job is not consistent with the clusters")]
    Problem(#[from] ProblemError),
    /// One of its containers fits nowhere, even if nothing else ran.
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
