//! Jobs as stored by the state machine.

use fdn_core::Millis;

use super::message::{JobRef, RunRef};
use crate::dag::{Dag, TaskIndex};
use crate::place::{ClusterIndex, Problem, Speed};

/// A job's tasks and their run times.
///
/// The functions must be pure: the same arguments always give the same result.
pub trait Work {
    /// The tasks and the data between them.
    fn dag(&self) -> &Dag;

    /// The run time of a task on a cluster that works at `speed`; infinity where it cannot run. By default the task's work over `speed`.
    fn time(&self, task: TaskIndex, cluster: ClusterIndex, speed: Speed) -> Millis {
        let _ = cluster;
        speed.time(self.dag().task(task).work)
    }

    /// Whether run times depend on speeds only; if so, a cluster more than a million times slower than the fastest takes no part.
    fn follows_speed(&self) -> bool {
        true
    }
}

impl<T: Work + ?Sized> Work for &T {
    fn dag(&self) -> &Dag {
        (**self).dag()
    }

    fn time(&self, task: TaskIndex, cluster: ClusterIndex, speed: Speed) -> Millis {
        (**self).time(task, cluster, speed)
    }

    fn follows_speed(&self) -> bool {
        (**self).follows_speed()
    }
}

impl<T: Work + ?Sized> Work for std::sync::Arc<T> {
    fn dag(&self) -> &Dag {
        (**self).dag()
    }

    fn time(&self, task: TaskIndex, cluster: ClusterIndex, speed: Speed) -> Millis {
        (**self).time(task, cluster, speed)
    }

    fn follows_speed(&self) -> bool {
        (**self).follows_speed()
    }
}

impl Work for Dag {
    fn dag(&self) -> &Dag {
        self
    }
}

/// Run times are the problem's; changes of a cluster's speed do not affect them.
impl Work for Problem<'_> {
    fn dag(&self) -> &Dag {
        (*self).dag()
    }

    fn time(&self, task: TaskIndex, cluster: ClusterIndex, _: Speed) -> Millis {
        self.work(task, cluster)
    }

    fn follows_speed(&self) -> bool {
        !self.has_costs()
    }
}

/// The state of a container.
///
/// | from | to | when |
/// | --- | --- | --- |
/// | `Blocked` | `Ready` | its last parent is done |
/// | `Ready` | `Travelling`, `Queued` | it is bound; its data has to travel, or is there |
/// | `Travelling` | `Queued` | its data is there |
/// | `Queued` | `Running` | a slot starts it |
/// | `Running` | `Queued` | it is pre-empted |
/// | `Running` | `Done` | it has finished |
/// | `Travelling` | `Done` | it is the entry in front of several, which takes no slot |
/// | `Travelling`, `Queued`, `Running` | `Ready` | its cluster is lost |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Blocked,
    Ready,
    Travelling,
    Queued,
    Running,
    Done,
}

impl Phase {
    /// Whether the container is on a cluster and not done.
    pub(super) const fn is_bound(self) -> bool {
        matches!(self, Self::Travelling | Self::Queued | Self::Running)
    }
}

/// The state of one task's container. Times are in ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub(super) phase: Phase,
    /// The number of parents that are not done.
    pub(super) waiting: u32,
    pub(super) attempt: u32,
    /// Valid once bound.
    pub(super) cluster: usize,
    /// Valid while running.
    pub(super) slot: u32,
    /// Valid while running: the start of this run.
    pub(super) started: f64,
    /// Valid once done.
    pub(super) finish: f64,
    /// The fraction of its work that is left; below 1 once it was pre-empted.
    pub(super) left: f64,
    /// Whether it holds resources until it ends.
    pub(super) holds: bool,
    /// The cluster on which resources are reserved for it until its job ends.
    pub(super) claim: Option<usize>,
    /// `delta(c)`, or its mean run time where run times do not follow from speeds.
    pub(super) size: f64,
}

/// The state of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It holds no job.
    #[default]
    Vacant,
    /// Its job waits until resources can be reserved for it.
    Held,
    /// Its job is in progress.
    Active,
}

/// A place for a job, with buffers that are reused from job to job.
#[derive(Debug)]
pub(super) struct Job<W> {
    pub(super) state: State,
    pub(super) work: Option<W>,
    pub(super) generation: u32,
    /// The job's sequence number by arrival.
    pub(super) arrival: u64,
    pub(super) arrived: Millis,
    pub(super) distance: Vec<f64>,
    pub(super) tasks: Vec<Task>,
    /// The priorities of formula (6), if the order uses them.
    pub(super) scores: Vec<Millis>,
    /// The number of tasks that are not done.
    pub(super) unfinished: usize,
    /// The work of those tasks, in units of [`Task::size`].
    pub(super) remaining: f64,
}

impl<W> Default for Job<W> {
    fn default() -> Self {
        Self {
            state: State::Vacant,
            work: None,
            generation: 0,
            arrival: 0,
            arrived: Millis::ZERO,
            distance: Vec::new(),
            tasks: Vec::new(),
            scores: Vec::new(),
            unfinished: 0,
            remaining: 0.0,
        }
    }
}

impl<W: Work> Job<W> {
    pub(super) fn work(&self) -> &W {
        self.work
            .as_ref()
            .expect("only places with a job are looked at")
    }

    pub(super) fn dag(&self) -> &Dag {
        self.work().dag()
    }

    pub(super) fn job_ref(&self, place: u32) -> JobRef {
        JobRef {
            place,
            generation: self.generation,
        }
    }

    pub(super) fn run_ref(&self, place: u32, task: TaskIndex) -> RunRef {
        RunRef {
            job: self.job_ref(place),
            task,
            attempt: self.tasks[task.get()].attempt,
        }
    }

    /// Fills the place with a job; `size` gives the work of a task.
    pub(super) fn begin(
        &mut self,
        now: Millis,
        arrival: u64,
        distance: &[Millis],
        size: impl Fn(&W, TaskIndex) -> f64,
    ) {
        (self.arrived, self.arrival) = (now, arrival);
        self.distance.clear();
        self.distance.extend(distance.iter().map(|d| d.get()));
        self.tasks.clear();
        self.scores.clear();
        let work = self
            .work
            .as_ref()
            .expect("the job is put in before it begins");
        self.tasks.extend(work.dag().indices().map(|task| Task {
            size: size(work, task),
            left: 1.0,
            ..Task::default()
        }));
        for task in work.dag().indices() {
            for (child, _) in work.dag().children(task) {
                self.tasks[child.get()].waiting += 1;
            }
        }
        self.unfinished = self.tasks.len();
        self.remaining = self.tasks.iter().map(|task| task.size).sum();
    }
}
