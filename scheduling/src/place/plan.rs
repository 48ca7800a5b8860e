//! The outcome of a placement: immutable data that whoever executes it has no choice left in.

use fdn_core::Millis;

use super::explain::Report;
use super::model::{Cluster, ClusterIndex};
use super::problem::{Hold, Problem};
use crate::dag::{Dag, TaskIndex};

/// Where and when one task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The cluster.
    pub cluster: ClusterIndex,
    /// The slot of the cluster.
    pub slot: u32,
    /// Actual start time.
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

/// A stretch of time in which a task runs without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The task.
    pub task: TaskIndex,
    /// The slot, of the task's cluster.
    pub slot: u32,
    /// When it starts, or goes on.
    pub start: Millis,
    /// When it is paused, or done.
    pub finish: Millis,
}

/// Where and when every task of a job runs. The default is a plan of nothing, as memory for [`super::Placer::place_into`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    placements: Vec<Placement>,
    runs: Vec<Run>,
    order: Vec<TaskIndex>,
    latency: Millis,
}

impl Plan {
    /// A plan from its parts; the checker tells whether it is one.
    ///
    /// `order` is the order in which the tasks were placed. The latency is computed from the placements (formula 5).
    ///
    /// # Panics
    /// If there is no placement for each task.
    #[must_use]
    pub fn new(problem: &Problem<'_>, placements: Vec<Placement>, order: Vec<TaskIndex>) -> Self {
        Self {
            latency: latency(problem, &placements),
            placements,
            runs: Vec::new(),
            order,
        }
    }

    /// The same with tasks that are paused and go on: all runs of all tasks, in the order of their starts.
    ///
    /// A task's placement then says when its first run starts, when its last one ends, and in which slot; its runs together
    /// last as long as its work. It holds its resources from start to finish, paused or not.
    #[must_use]
    pub fn with_runs(mut self, runs: Vec<Run>) -> Self {
        self.runs = runs;
        self
    }

    /// The runs of all tasks; empty if every task runs from start to finish without a break.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// As [`Plan::new`], into the memory of this plan.
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

    /// The placements, by task.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// One task's placement.
    ///
    /// # Panics
    /// If `task` is of another job and too large.
    #[must_use]
    pub fn placement(&self, task: TaskIndex) -> &Placement {
        &self.placements[task.get()]
    }

    /// The tasks in the order in which they were placed.
    #[must_use]
    pub fn order(&self) -> &[TaskIndex] {
        &self.order
    }

    /// From the user's sending the job until the user has all answers (formula 5).
    #[must_use]
    pub const fn latency(&self) -> Millis {
        self.latency
    }

    /// The cluster of the entry: where the user is sent.
    #[must_use]
    pub fn entry(&self, dag: &Dag) -> ClusterIndex {
        self.placement(dag.entry()).cluster
    }

    /// Carries what this plan occupies over to the clusters it was made from, for the next job.
    ///
    /// The tasks are appended in the order of their starts, whatever the order in which they were placed: with containers in
    /// gaps, only then has what ran before in a slot ended when the next begins. The times at which slots are free do not
    /// depend on it: they are the latest ends.
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
            // What takes no time, while all slots are busy, takes nothing.
            if start < finish || start >= slots.earliest() {
                slots.occupy(start, finish, held);
            }
        }
    }

    /// When what runs, in the order of the starts; a task that is paused several times.
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

    /// Gives back the resources that [`Plan::apply`] took for a job that held them ([`Hold::Job`]) and has ended. With
    /// [`Hold::Task`] each container gives back its own as it ends.
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

/// Formula (5).
fn latency(problem: &Problem<'_>, placements: &[Placement]) -> Millis {
    let arrives = |exit: &TaskIndex| {
        let placement = &placements[exit.get()];
        placement.finish + problem.distance()[placement.cluster.get()]
    };
    let last = problem.dag().exits().iter().map(arrives).max();
    last.map_or(Millis::ZERO, |last| last - problem.arrival())
}

/// A plan and the reasons for it.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// What each cluster would have meant for each task; empty with [`super::Detail::Nothing`].
    pub report: Report,
}
