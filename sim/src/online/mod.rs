//! The world around event-driven placement: users who send jobs, clusters that work and fail, data that is late.
//!
//! [`Scenario`] is what happens whoever schedules: who sends which job when, how late each transfer is, how long each container
//! takes, which clusters are lost when. All of it is drawn beforehand, so every policy meets the very same world. [`run`]
//! lets the state machine of `fdn_scheduling::online` decide as time goes by; [`planned::run`] plans each job whole when it
//! arrives and then carries the plans out. Both give a [`Schedule`], what ran where and when, which [`check`] verifies
//! against the rules without looking at who made it.

mod arrivals;
pub mod check;
pub mod planned;
mod world;

use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::dag::{Dag, TaskIndex, Transfer};
use fdn_scheduling::place::{Cluster, ClusterIndex, Network};
use rand::RngExt;

pub use arrivals::{Mix, poisson};
pub use world::run;

use crate::seed::Seed;

/// A job and who sends it.
#[derive(Clone, Debug)]
pub struct Job {
    /// When it is sent.
    pub at: Millis,
    /// What it consists of.
    pub dag: Arc<Dag>,
    /// How far its user is from each cluster, one way.
    pub distance: Vec<Millis>,
}

/// What happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is lost with everything on it.
    Lost,
    /// It takes no new work.
    Drained,
    /// It is back.
    Returned,
}

/// What the world does with expectations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Each transfer, and each way to and from the user, takes up to this much longer.
    pub jitter: Millis,
    /// A container takes between `1 - spread` and `1 + spread` times as long as expected; less than 1.
    pub spread: f64,
    /// What happens to clusters, in order of time.
    pub changes: Vec<(Millis, ClusterIndex, Change)>,
}

/// Everything that happens whoever schedules.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The clusters at time 0.
    pub clusters: Vec<Cluster>,
    /// What joins them.
    pub network: Network,
    /// The jobs, in order of time.
    pub jobs: Vec<Job>,
    changes: Vec<(Millis, ClusterIndex, Change)>,
    /// By job.
    draws: Vec<Draws>,
}

/// What one job's transfers and containers draw.
#[derive(Clone, Debug)]
struct Draws {
    /// By task: where its parents' transfers begin in `late`.
    first: Vec<usize>,
    /// How late each transfer is, parents in their order.
    late: Vec<f64>,
    /// How late the request and each answer is, by task.
    leg: Vec<f64>,
    /// How many times as long as expected each task takes.
    factor: Vec<f64>,
}

impl Draws {
    fn draw(dag: &Dag, conditions: &Conditions, seed: Seed) -> Self {
        let (mut late, mut factor) = (seed.stream("jitter"), seed.stream("duration"));
        let mut jitter = |at_most: f64| match at_most > 0.0 {
            true => late.random_range(0.0..at_most),
            false => 0.0,
        };
        let mut draws = Self {
            first: Vec::with_capacity(dag.len()),
            late: Vec::with_capacity(dag.edge_count()),
            leg: Vec::with_capacity(dag.len()),
            factor: Vec::with_capacity(dag.len()),
        };
        let (most, spread) = (conditions.jitter.get(), conditions.spread);
        for task in dag.indices() {
            draws.first.push(draws.late.len());
            draws.late.extend(dag.parents(task).map(|_| jitter(most)));
            draws.leg.push(jitter(most));
            draws.factor.push(match spread > 0.0 {
                true => factor.random_range(1.0 - spread..1.0 + spread),
                false => 1.0,
            });
        }
        draws
    }
}

impl Scenario {
    /// Jobs, in order of time, on clusters, with everything drawn that the conditions leave open.
    #[must_use]
    pub fn new(
        clusters: Vec<Cluster>,
        network: Network,
        jobs: Vec<Job>,
        conditions: Conditions,
        seed: Seed,
    ) -> Self {
        let draw = |(n, job): (u64, &Job)| Draws::draw(&job.dag, &conditions, seed.nth(n));
        Self {
            draws: (0..).zip(&jobs).map(draw).collect(),
            clusters,
            network,
            jobs,
            changes: conditions.changes,
        }
    }

    /// When a job's request is on a cluster if it is sent at a time.
    fn request(&self, job: usize, sent: Millis, cluster: ClusterIndex) -> Millis {
        let entry = self.jobs[job].dag.entry();
        sent + self.leg(job, entry, cluster)
    }

    /// How long an answer travels from a cluster to the user.
    fn leg(&self, job: usize, task: TaskIndex, cluster: ClusterIndex) -> Millis {
        let late = Millis::new(self.draws[job].leg[task.get()]);
        self.jobs[job].distance[cluster.get()] + late
    }

    /// When all data of a task is on a cluster, given where and when its parents ended. Nothing travels within a cluster.
    fn data(
        &self,
        job: usize,
        task: TaskIndex,
        cluster: ClusterIndex,
        ended: impl Fn(TaskIndex) -> (ClusterIndex, Millis),
    ) -> Millis {
        let draws = &self.draws[job];
        let late = &draws.late[draws.first[task.get()]..];
        let arrives = |((parent, transfer), late): ((TaskIndex, Transfer), &f64)| {
            let (from, end) = ended(parent);
            if from == cluster {
                return end;
            }
            end + self.transfer(from, cluster, transfer) + Millis::new(*late)
        };
        let parents = self.jobs[job].dag.parents(task);
        parents
            .zip(late)
            .map(arrives)
            .fold(Millis::ZERO, Millis::max)
    }

    /// How long a transfer takes if nothing is late.
    fn transfer(&self, from: ClusterIndex, to: ClusterIndex, transfer: Transfer) -> Millis {
        match transfer {
            Transfer::Fixed(time) => time,
            Transfer::Data(size) => self.network.time(from.get(), to.get(), size.as_bytes()),
        }
    }

    /// How long a task takes on a cluster.
    fn duration(&self, job: usize, task: TaskIndex, cluster: ClusterIndex) -> Millis {
        let work = self.jobs[job].dag.task(task).work;
        self.clusters[cluster.get()].speed.time(work) * self.draws[job].factor[task.get()]
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The container finished.
    Finished,
    /// It was paused, and keeps its progress.
    Paused,
    /// Its cluster was lost, and its progress with it.
    Lost,
}

/// A stretch of time in which a container ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// The job.
    pub job: usize,
    /// The task.
    pub task: TaskIndex,
    /// Where.
    pub cluster: ClusterIndex,
    /// In which slot.
    pub slot: u32,
    /// From when.
    pub start: Millis,
    /// To when.
    pub end: Millis,
    /// How it ended.
    pub how: End,
}

/// What ran where and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The runs, in the order of their ends.
    pub runs: Vec<Ran>,
    /// By job: from sending it until the user has all answers; `None` if it was refused.
    pub latency: Vec<Option<Millis>>,
    /// How often a container was bound.
    pub bindings: usize,
}

impl Schedule {
    /// The latencies of the jobs that were taken, in ms.
    #[must_use]
    pub fn latencies(&self) -> Vec<f64> {
        let taken = self.latency.iter().flatten();
        taken.map(|latency| latency.get()).collect()
    }
}
