//! Jobs as the state machine keeps them.

use fdn_core::Millis;

use super::message::{JobRef, RunRef};
use crate::dag::{Dag, TaskIndex};
use crate::place::{ClusterIndex, Problem, Speed};

/// What a job consists of and how long it takes.
///
/// Whatever is given for the same task, cluster and speed must always be the same.
pub trait Work {
    /// The tasks and what passes between them.
    fn dag(&self) -> &Dag;

    /// How long a task takes on a cluster that works at `speed`; infinity where it cannot run.
    fn time(&self, task: TaskIndex, cluster: ClusterIndex, speed: Speed) -> Millis {
        let _ = cluster;
        speed.time(self.dag().task(task).work)
    }

    /// Whether times follow from speeds; if so, a cluster that is a million times slower than the fastest counts as absent.
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

/// Times are the problem's; speeds do not change them.
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

/// How far a container is.
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

/// One container.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub(super) phase: Phase,
    /// Parents that are not done.
    pub(super) waiting: u32,
    pub(super) attempt: u32,
    /// Once bound.
    pub(super) cluster: usize,
    /// While running.
    pub(super) slot: u32,
    /// While running: since when.
    pub(super) started: f64,
    /// Once done: when.
    pub(super) finish: f64,
    /// The share of its work that is left, less than all once it was pre-empted.
    pub(super) left: f64,
    /// Whether it holds its resources until it ends.
    pub(super) holds: bool,
    /// Where resources are kept for it until its job ends.
    pub(super) claim: Option<usize>,
    /// `delta(c)`, or its mean time where times do not follow from speeds.
    pub(super) size: f64,
}

/// What a place holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// No job.
    #[default]
    Vacant,
    /// A job that waits until its resources can be kept for it.
    Held,
    /// A job under way.
    Active,
}

/// A place for a job, with buffers that serve one job after the other.
#[derive(Debug)]
pub(super) struct Job<W> {
    pub(super) state: State,
    pub(super) work: Option<W>,
    pub(super) generation: u32,
    /// Counts jobs as they arrived.
    pub(super) arrival: u64,
    pub(super) arrived: Millis,
    pub(super) distance: Vec<f64>,
    pub(super) tasks: Vec<Task>,
    /// Formula (6), if the order goes by it.
    pub(super) scores: Vec<Millis>,
    /// Tasks that are not done.
    pub(super) unfinished: usize,
    /// Their work.
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

    /// Fills the place; `size` says how much work a task is.
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
