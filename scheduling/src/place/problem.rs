//! A placement problem: one job, the clusters as they are, the links between them, and who waits for the answer.

use fdn_core::{Coded, ErrorCode, Millis};

use super::bars::Bars;
use super::infeasible::Exclusion;
use super::model::{Availability, Cluster, ClusterIndex};
use super::network::Network;
use super::rooms::Rooms;
use crate::dag::{Dag, TaskIndex};

/// A cluster slower than the fastest by more than this factor is treated as absent.
pub const SLOWEST_RATIO: f64 = 1e-6;

/// How long a container holds its resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Until its job ends.
    #[default]
    Job,
    /// Until it ends itself.
    Task,
}

/// Which containers are placed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Score {
    /// The longest path to the end first (formula 6, HEFT's upward rank).
    #[default]
    Normal,
    /// The opposite, under precedence: the reading that the article's prose suggests, kept for the record.
    Inverse,
}

/// Readings of the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the way back to the user counts when an exit's cluster is chosen.
    pub exit_leg: bool,
    /// How long resources are held.
    pub hold: Hold,
    /// Which containers are placed first.
    pub score: Score,
}

/// Run times per task and cluster where they do not follow from work and speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    tasks: usize,
    clusters: usize,
    times: Vec<f64>,
}

impl Costs {
    /// One row per task with one time per cluster; infinity where a task cannot run.
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

    /// One of them.
    ///
    /// # Panics
    /// If there is no such task or cluster.
    #[must_use]
    pub fn get(&self, task: usize, cluster: usize) -> Millis {
        Millis::new(self.times[task * self.clusters + cluster])
    }

    /// The same from a function of task and cluster, into the memory of these. What is less than nothing counts as nothing.
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

/// Why the parts of a problem do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A list has the wrong length.
    #[error("{given} {what}, but there must be {wanted}")]
    Size {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        given: usize,
        /// How many there must be.
        wanted: usize,
    },
    /// A time is negative.
    #[error("{0} is negative; give zero or more")]
    Negative(&'static str),
}

impl Coded for ProblemError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Internal
    }
}

/// One job to place.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    dag: &'a Dag,
    clusters: &'a [Cluster],
    network: &'a Network,
    distance: &'a [Millis],
    costs: Option<&'a Costs>,
    times: Option<&'a Costs>,
    rooms: Option<&'a Rooms>,
    bars: Option<&'a Bars>,
    arrival: Millis,
    options: Options,
}

impl<'a> Problem<'a> {
    /// A job on clusters, joined by a network, for a client at `distance` (one way, `d(u,p)`) from each; it arrives at time 0.
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
            rooms: None,
            bars: None,
            arrival: Millis::ZERO,
            options: Options::default(),
        })
    }

    /// The same under other readings.
    #[must_use]
    pub const fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The same for a job that the user sends at `arrival`.
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn with_arrival(mut self, arrival: Millis) -> Result<Self, ProblemError> {
        if !(arrival.is_finite() && arrival.get() >= 0.0) {
            return Err(ProblemError::Negative("the arrival"));
        }
        self.arrival = arrival;
        Ok(self)
    }

    /// The same with run times that do not follow from work and speed.
    ///
    /// # Errors
    /// When there is not a row for each given task or not a time for each cluster.
    pub fn with_costs(mut self, costs: &'a Costs) -> Result<Self, ProblemError> {
        self.fits(costs)?;
        (self.costs, self.times) = (Some(costs), None);
        Ok(self)
    }

    /// The same with costs that are more than the time which a task takes: `costs` decide, and what they have beyond `times` is the toll
    /// ([`crate::compete::Load::toll`]), which is told apart.
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

    /// The same where tasks need more of a cluster's memory than one container of each, and others need some of it.
    ///
    /// # Errors
    /// When the needs are of other tasks or clusters.
    pub fn with_rooms(mut self, rooms: &'a Rooms) -> Result<Self, ProblemError> {
        rooms.check(self.dag.given(), self.clusters.len())?;
        self.rooms = Some(rooms);
        Ok(self)
    }

    /// The same where some tasks are kept out of some clusters.
    ///
    /// # Errors
    /// When that is said of other tasks or clusters.
    pub fn with_bars(mut self, bars: &'a Bars) -> Result<Self, ProblemError> {
        bars.check(self.dag.given(), self.clusters.len())?;
        self.bars = Some(bars);
        Ok(self)
    }

    /// What keeps a task out of a cluster beside room and time.
    pub(super) fn bar(&self, task: usize, cluster: usize) -> Option<Exclusion> {
        self.bars?.get(task, cluster)
    }

    /// What tasks need of the clusters' memory and what is left of it, if that was said.
    pub(super) const fn rooms(&self) -> Option<&'a Rooms> {
        self.rooms
    }

    /// Whether run times are given, instead of following from work and speed.
    #[must_use]
    pub const fn has_costs(&self) -> bool {
        self.costs.is_some()
    }

    /// What is placed.
    #[must_use]
    pub const fn dag(&self) -> &'a Dag {
        self.dag
    }

    /// Where it may go.
    #[must_use]
    pub const fn clusters(&self) -> &'a [Cluster] {
        self.clusters
    }

    /// The links.
    #[must_use]
    pub const fn network(&self) -> &'a Network {
        self.network
    }

    /// `d(u,p)` of each cluster.
    #[must_use]
    pub const fn distance(&self) -> &'a [Millis] {
        self.distance
    }

    /// When the user sends the job.
    #[must_use]
    pub const fn arrival(&self) -> Millis {
        self.arrival
    }

    /// The readings.
    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// The cluster of this name.
    #[must_use]
    pub fn cluster_index(&self, id: &fdn_core::ClusterId) -> Option<ClusterIndex> {
        self.clusters
            .iter()
            .position(|cluster| cluster.id == *id)
            .map(ClusterIndex::new)
    }

    /// `w(c,p)`.
    ///
    /// # Panics
    /// If there is no such task or cluster.
    #[must_use]
    pub fn work(&self, task: TaskIndex, cluster: ClusterIndex) -> Millis {
        match self.row(task) {
            None => self.clusters[cluster.get()]
                .speed
                .time(self.dag.task(task).work),
            Some(row) => Millis::new(row[cluster.get()]),
        }
    }

    /// What of `w(c,p)` is no time of the task's own.
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

    /// What keeps the whole job out of each cluster, if anything does; see the module for why these clusters count as absent.
    #[must_use]
    pub fn barred(&self) -> Vec<Option<Exclusion>> {
        (0..self.clusters.len()).map(self.barrier()).collect()
    }

    /// [`Problem::barred`] of one cluster after the other, into no memory.
    pub(super) fn barrier(&self) -> impl Fn(usize) -> Option<Exclusion> + use<'a> {
        let problem = *self;
        let fastest = (0..problem.clusters.len())
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

    /// What keeps the whole job out of a cluster, however fast it is.
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

/// The mean; 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}
