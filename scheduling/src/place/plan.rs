//! The outcome of a placement: immutable data that leaves no choice to whoever executes it.

use fdn_core::Millis;

use super::explain::Report;
use super::model::{Cluster, ClusterIndex};
use super::problem::{Hold, Problem};
use crate::dag::{Dag, TaskIndex};

/// Where and when one task runs. Times are in ms from the moment of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The cluster's position in the problem.
    pub cluster: ClusterIndex,
    /// The slot's number within the cluster.
    pub slot: u32,
    /// `AST`: actual start time.
    pub start: Millis,
    /// `AFT`: actual finish time.
    pub finish: Millis,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            cluster: ClusterIndex::new(usize::MAX),
            slot: 0,
            start: Millis::ZERO,
            finish: Millis::ZERO,
        }
    }
}

/// An interval in which a task runs without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The task's index in the DAG.
    pub task: TaskIndex,
    /// The slot's number within the task's cluster.
    pub slot: u32,
    /// When the task starts or resumes.
    pub start: Millis,
    /// When the task is pre-empted or done.
    pub finish: Millis,
}

/// Where and when every task of a job runs. The default is an empty plan, as a buffer for [`super::Placer::place_into`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    placements: Vec<Placement>,
    runs: Vec<Run>,
    order: Vec<TaskIndex>,
    latency: Millis,
}

impl Plan {
    /// A plan from its parts, unchecked; [`crate::checker`] verifies it.
    ///
    /// `order` is the order in which the tasks were placed. The latency is computed from the placements (formula 5).
    ///
    /// # Panics
    /// If there is not one placement for each task.
    #[must_use]
    pub fn new(problem: &Problem<'_>, placements: Vec<Placement>, order: Vec<TaskIndex>) -> Self {
        Self {
            latency: latency(problem, &placements),
            placements,
            runs: Vec::new(),
            order,
        }
    }

    /// Adds pre-emption: the runs of all tasks, in the order of their starts.
    ///
    /// A task's placement then gives the start of its first run, the end of its last one, and the slot; its runs together last as
    /// long as its work. It holds its resources from start to finish, pre-empted or not.
    #[must_use]
    pub fn with_runs(mut self, runs: Vec<Run>) -> Self {
        self.runs = runs;
        self
    }

    /// The runs of all tasks; empty if no task is pre-empted.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// As [`Plan::new`], into the buffers of this plan.
    pub(super) fn fill(
        &mut self,
        problem: &Problem<'_>,
        placements: &[Placement],
        order: &[TaskIndex],
    ) {
        self.latency = latency(problem, placements);
        self.placements.clear();
        self.placements.extend_from_slice(placements);
        self.runs.clear();
        self.order.clear();
        self.order.extend_from_slice(order);
    }

    /// The placements, indexed by task.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// One task's placement.
    ///
    /// # Panics
    /// If the plan has no such task.
    #[must_use]
    pub fn placement(&self, task: TaskIndex) -> &Placement {
        &self.placements[task.get()]
    }

    /// The tasks in the order in which they were placed.
    #[must_use]
    pub fn order(&self) -> &[TaskIndex] {
        &self.order
    }

    /// The time from the user's sending the job to the arrival of all answers (formula 5).
    #[must_use]
    pub const fn latency(&self) -> Millis {
        self.latency
    }

    /// The entry's cluster, which is where the user is sent.
    #[must_use]
    pub fn entry(&self, dag: &Dag) -> ClusterIndex {
        self.placement(dag.entry()).cluster
    }

    /// Charges the clusters from which this plan was made with what it occupies, so that the next job can be placed on them.
    ///
    /// Tasks are appended in the order of their starts, whatever the order in which they were placed: with insertion, only then has
    /// what ran before in a slot ended when the next begins. The times at which slots become free do not depend on this order: they
    /// are the latest ends.
    ///
    /// # Panics
    /// If the clusters or the DAG are not those of the plan.
    pub fn apply(&self, dag: &Dag, hold: Hold, clusters: &mut [Cluster]) {
        if hold == Hold::Job {
            for &task in &self.order {
                clusters[self.placement(task).cluster.get()].take(&dag.task(task).demand);
            }
        }
        for (start, finish, task) in self.stretches() {
            let slots = &mut clusters[self.placement(task).cluster.get()].slots;
            let held = match hold {
                Hold::Task => dag.task(task).demand,
                Hold::Job => fdn_core::Resources::default(),
            };
            // A run of no duration, while all slots are busy, takes no slot.
            if start < finish || start >= slots.earliest() {
                slots.occupy(start, finish, held);
            }
        }
    }

    /// Start, finish and task of every run, in the order of the starts; a pre-empted task occurs several times.
    fn stretches(&self) -> Vec<(Millis, Millis, TaskIndex)> {
        let whole = |task: &TaskIndex| {
            let placement = self.placement(*task);
            (placement.start, placement.finish, *task)
        };
        let mut all: Vec<_> = if self.runs.is_empty() {
            self.order.iter().map(whole).collect()
        } else {
            let runs = self.runs.iter();
            runs.map(|run| (run.start, run.finish, run.task)).collect()
        };
        all.sort_by_key(|(start, finish, _)| (*start, *finish));
        all
    }

    /// Returns the resources that [`Plan::apply`] charged for a job that held them ([`Hold::Job`]) and has ended. With [`Hold::Task`]
    /// each container's resources become free as it ends, so nothing is left to return.
    ///
    /// # Panics
    /// If the clusters or the DAG are not those of the plan.
    pub fn release(&self, dag: &Dag, hold: Hold, clusters: &mut [Cluster]) {
        if hold == Hold::Job {
            for &task in &self.order {
                clusters[self.placement(task).cluster.get()].return_free(&dag.task(task).demand);
            }
        }
    }
}

/// The user's latency by formula (5).
fn latency(problem: &Problem<'_>, placements: &[Placement]) -> Millis {
    let arrives = |exit: &TaskIndex| {
        let placement = &placements[exit.get()];
        placement.finish + problem.distance()[placement.cluster.get()]
    };
    let last = problem.dag().exits().iter().map(arrives).max();
    last.map_or(Millis::ZERO, |last| last - problem.arrival())
}

/// A plan with its explanation.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Planned {
    /// The placements.
    pub plan: Plan,
    /// The evaluation of each cluster for each task; empty with [`super::Detail::Nothing`].
    pub report: Report,
}
