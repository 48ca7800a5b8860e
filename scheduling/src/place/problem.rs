//! A placement problem: one job, the clusters in their present state, the links between them, and the user who waits for the answer.

use fdn_core::{Coded, ErrorCode, Millis};

use super::constraints::Constraints;
use super::infeasible::Exclusion;
use super::memory_limits::MemoryLimits;
use super::model::{Availability, Cluster, ClusterIndex};
use super::network::Network;
use crate::dag::{Dag, TaskIndex};

/// A cluster whose speed is below this fraction of the fastest one's takes no part in the placement.
pub const SLOWEST_RATIO: f64 = 1e-6;

/// How long a container holds its resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Until its job ends. The article's reading, on which its NP-hardness proof relies.
    #[default]
    Job,
    /// Until the container itself ends.
    Task,
}

/// Which tasks are placed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Score {
    /// The task with the longest path to the end (formula 6, HEFT's upward rank).
    #[default]
    Normal,
    /// The reverse order, under precedence: what the article's prose suggests, against its formula; kept to reproduce the comparison.
    Inverse,
}

/// Options where the article is ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the way back to the user counts when an exit's cluster is chosen; it always counts in the latency (formula 5).
    pub exit_leg: bool,
    /// How long containers hold their resources.
    pub hold: Hold,
    /// Which tasks are placed first.
    pub score: Score,
}

/// Run times per task and cluster, in ms, where they do not follow from work and speed (unrelated machines).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    tasks: usize,
    clusters: usize,
    times: Vec<f64>,
}

impl Costs {
    /// One row per task with one run time per cluster; infinity where a task cannot run.
    ///
    /// # Errors
    /// When the rows differ in length or a time is negative.
    pub fn new<R: AsRef<[Millis]>>(rows: &[R]) -> Result<Self, ProblemError> {
        let clusters = rows.first().map_or(0, |row| row.as_ref().len());
        let mut times = Vec::with_capacity(rows.len() * clusters);
        for row in rows {
            let row = row.as_ref();
            if row.len() != clusters {
                return Err(ProblemError::Size {
                    what: "times in a row of costs",
                    given: row.len(),
                    wanted: clusters,
                });
            }
            if row.iter().any(|time| *time < Millis::ZERO) {
                return Err(ProblemError::Negative("a cost"));
            }
            times.extend(row.iter().map(|time| time.get()));
        }
        Ok(Self {
            tasks: rows.len(),
            clusters,
            times,
        })
    }

    /// The run time of a task on a cluster.
    ///
    /// # Panics
    /// If either index is out of range.
    #[must_use]
    pub fn get(&self, task: usize, cluster: usize) -> Millis {
        Millis::new(self.times[task * self.clusters + cluster])
    }

    /// Recomputes all entries from a function of task and cluster, into the existing buffer. Negative times count as zero.
    pub fn refill(
        &mut self,
        tasks: usize,
        clusters: usize,
        mut time: impl FnMut(usize, usize) -> Millis,
    ) {
        (self.tasks, self.clusters) = (tasks, clusters);
        self.times.clear();
        for task in 0..tasks {
            let row = (0..clusters).map(|cluster| time(task, cluster).max(Millis::ZERO).get());
            self.times.extend(row);
        }
    }
}

/// The parts of a problem are inconsistent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A list has the wrong length.
    #[error("{given} {what}, but there must be {wanted}")]
    Size {
        /// What the list holds, for the message.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length it must have.
        wanted: usize,
    },
    /// A time is negative; the text names it.
    #[error("{0} is negative; give zero or more")]
    Negative(&'static str),
    /// A time that must be finite is not, or it is negative; the text names it.
    #[error("{0} must be finite and not negative")]
    NotFinite(&'static str),
}

impl Coded for ProblemError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Internal
    }
}

/// One job to place, with all that decides where.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    dag: &'a Dag,
    clusters: &'a [Cluster],
    network: &'a Network,
    distance: &'a [Millis],
    costs: Option<&'a Costs>,
    times: Option<&'a Costs>,
    memory_limits: Option<&'a MemoryLimits>,
    constraints: Option<&'a Constraints>,
    arrival: Millis,
    options: Options,
}

impl<'a> Problem<'a> {
    /// A job on clusters joined by a network, for a client at `distance` (one way, `d(u,p)`, by cluster), sent at time 0. An infinite
    /// distance means out of reach.
    ///
    /// # Errors
    /// When the parts differ in the number of clusters, or a distance is negative.
    pub fn new(
        dag: &'a Dag,
        clusters: &'a [Cluster],
        network: &'a Network,
        distance: &'a [Millis],
    ) -> Result<Self, ProblemError> {
        let size = |what, given| {
            if given == clusters.len() {
                Ok(())
            } else {
                Err(ProblemError::Size {
                    what,
                    given,
                    wanted: clusters.len(),
                })
            }
        };
        size("clusters in the network", network.clusters())?;
        size("distances", distance.len())?;
        if distance.iter().any(|d| *d < Millis::ZERO) {
            return Err(ProblemError::Negative("a distance"));
        }
        Ok(Self {
            dag,
            clusters,
            network,
            distance,
            costs: None,
            times: None,
            memory_limits: None,
            constraints: None,
            arrival: Millis::ZERO,
            options: Options::default(),
        })
    }

    /// Sets the options.
    #[must_use]
    pub const fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets the time at which the user sends the job.
    ///
    /// # Errors
    /// When `arrival` is negative or not finite.
    pub fn with_arrival(mut self, arrival: Millis) -> Result<Self, ProblemError> {
        if !(arrival.is_finite() && arrival.get() >= 0.0) {
            return Err(ProblemError::NotFinite("the arrival"));
        }
        self.arrival = arrival;
        Ok(self)
    }

    /// Replaces the run times that follow from work and speed.
    ///
    /// # Errors
    /// When there is not a row for each given task or not a time for each cluster.
    pub fn with_costs(mut self, costs: &'a Costs) -> Result<Self, ProblemError> {
        self.fits(costs)?;
        (self.costs, self.times) = (Some(costs), None);
        Ok(self)
    }

    /// As [`Problem::with_costs`], where costs include more than run time: placement decides by `costs`; their excess over `times` is
    /// the congestion toll ([`crate::compete::Load::toll`]), which reports list separately.
    ///
    /// # Errors
    /// When there is not a row for each given task or not a value for each cluster.
    pub fn with_tolls(self, costs: &'a Costs, times: &'a Costs) -> Result<Self, ProblemError> {
        self.fits(times)?;
        let mut problem = self.with_costs(costs)?;
        problem.times = Some(times);
        Ok(problem)
    }

    fn fits(&self, costs: &Costs) -> Result<(), ProblemError> {
        for (what, given, wanted) in [
            ("rows of costs", costs.tasks, self.dag.given()),
            ("columns of costs", costs.clusters, self.clusters.len()),
        ] {
            if given != wanted {
                return Err(ProblemError::Size {
                    what,
                    given,
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// Adds memory constraints beyond one container per task: what the instances for all calls need, and what other apps leave.
    ///
    /// # Errors
    /// When the needs are for another number of tasks or clusters.
    pub fn with_memory_limits(
        mut self,
        memory_limits: &'a MemoryLimits,
    ) -> Result<Self, ProblemError> {
        memory_limits.check(self.dag.given(), self.clusters.len())?;
        self.memory_limits = Some(memory_limits);
        Ok(self)
    }

    /// Excludes some tasks from some clusters.
    ///
    /// # Errors
    /// When the table is for another number of tasks or clusters.
    pub fn with_constraints(mut self, constraints: &'a Constraints) -> Result<Self, ProblemError> {
        constraints.check(self.dag.given(), self.clusters.len())?;
        self.constraints = Some(constraints);
        Ok(self)
    }

    /// What [`Constraints`] says about a task and a cluster; `None` if the task is not excluded.
    pub(super) fn exclusion(&self, task: usize, cluster: usize) -> Option<Exclusion> {
        self.constraints?.get(task, cluster)
    }

    /// The memory constraints, if there are any.
    pub(super) const fn memory_limits(&self) -> Option<&'a MemoryLimits> {
        self.memory_limits
    }

    /// Whether run times are given, instead of following from work and speed.
    #[must_use]
    pub const fn has_costs(&self) -> bool {
        self.costs.is_some()
    }

    /// The job's tasks and the data between them.
    #[must_use]
    pub const fn dag(&self) -> &'a Dag {
        self.dag
    }

    /// The clusters, in the order of [`ClusterIndex`].
    #[must_use]
    pub const fn clusters(&self) -> &'a [Cluster] {
        self.clusters
    }

    /// The links between the clusters.
    #[must_use]
    pub const fn network(&self) -> &'a Network {
        self.network
    }

    /// `d(u,p)` of each cluster: the one-way latency between user and cluster.
    #[must_use]
    pub const fn distance(&self) -> &'a [Millis] {
        self.distance
    }

    /// When the user sends the job, in ms from the moment of planning.
    #[must_use]
    pub const fn arrival(&self) -> Millis {
        self.arrival
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// The position of the cluster with this id; `None` if it is not part of the problem.
    #[must_use]
    pub fn cluster_index(&self, id: &fdn_core::ClusterId) -> Option<ClusterIndex> {
        self.clusters
            .iter()
            .position(|cluster| cluster.id == *id)
            .map(ClusterIndex::new)
    }

    /// `w(c,p)`: the run time of a task on a cluster, the toll included.
    ///
    /// # Panics
    /// If either index is out of range.
    #[must_use]
    pub fn work(&self, task: TaskIndex, cluster: ClusterIndex) -> Millis {
        match self.row(task) {
            None => self.clusters[cluster.get()]
                .speed
                .time(self.dag.task(task).work),
            Some(row) => Millis::new(row[cluster.get()]),
        }
    }

    /// The congestion toll within `w(c,p)`; zero where no tolls were given.
    pub(super) fn toll(&self, task: TaskIndex, cluster: usize) -> Millis {
        let row = task.get() * self.clusters.len();
        let times = self
            .times
            .filter(|_| Some(task) != self.dag.virtual_entry());
        let time = times.and_then(|times| times.times.get(row + cluster));
        time.filter(|time| time.is_finite())
            .map_or(Millis::ZERO, |time| {
                let cost = self.work(task, ClusterIndex::new(cluster));
                (cost - Millis::new(*time)).max(Millis::ZERO)
            })
    }

    /// The run times that were given for a task, by cluster; `None` where they follow from work and speed, as they do for a
    /// virtual entry, which has no work.
    pub(super) fn row(&self, task: TaskIndex) -> Option<&'a [f64]> {
        let costs = self.costs?;
        if Some(task) == self.dag.virtual_entry() {
            return None;
        }
        let row = task.get() * costs.clusters;
        Some(&costs.times[row..row + costs.clusters])
    }

    /// `wbar(c)` of each task: the mean over the usable clusters on which it can run.
    pub(super) fn mean_work(&self, usable: impl Fn(usize) -> bool) -> impl Fn(TaskIndex) -> f64 {
        let inverse = mean(
            (0..self.clusters.len())
                .filter(|&p| usable(p))
                .map(|p| 1.0 / self.clusters[p].speed.get())
                .filter(|inverse| inverse.is_finite()),
        );
        move |task| match self.costs {
            None => self.dag.task(task).work.get() * inverse,
            Some(_) => mean(
                (0..self.clusters.len())
                    .filter(|&p| usable(p))
                    .map(|p| self.work(task, ClusterIndex::new(p)).get())
                    .filter(|time| time.is_finite()),
            ),
        }
    }

    /// What excludes each cluster from the whole job, if anything does; see [the module](crate::place) for why such clusters take no part.
    #[must_use]
    pub fn cluster_exclusions(&self) -> Vec<Option<Exclusion>> {
        (0..self.clusters.len())
            .map(self.cluster_exclusion())
            .collect()
    }

    /// [`Problem::cluster_exclusions`] cluster by cluster, without allocating.
    pub(super) fn cluster_exclusion(&self) -> impl Fn(usize) -> Option<Exclusion> + use<'a> {
        let problem = *self;
        // Speeds exclude nobody where run times are given.
        let compared = if problem.costs.is_some() {
            0
        } else {
            problem.clusters.len()
        };
        let fastest = (0..compared)
            .filter(|&p| problem.closed(p).is_none())
            .map(|p| problem.clusters[p].speed.get())
            .fold(0.0, f64::max);
        let slowest = fastest * SLOWEST_RATIO;
        move |p| {
            let speed = problem.clusters[p].speed.get();
            let too_slow = problem.costs.is_none() && (speed == 0.0 || speed < slowest);
            problem
                .closed(p)
                .or_else(|| too_slow.then_some(Exclusion::TooSlow))
        }
    }

    /// What excludes a cluster from the whole job regardless of its speed.
    fn closed(&self, p: usize) -> Option<Exclusion> {
        let cluster = &self.clusters[p];
        match cluster.availability {
            Availability::Down => Some(Exclusion::Down),
            Availability::Draining => Some(Exclusion::Draining),
            Availability::Up if !cluster.slots.earliest().is_finite() => Some(Exclusion::NoSlots),
            Availability::Up if !self.distance[p].is_finite() => Some(Exclusion::OutOfReach),
            Availability::Up => None,
        }
    }
}

/// The arithmetic mean; 0 of no values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}
