//! The arithmetic of formulas (3) to (5), shared by everything that places tasks one after the other.
//!
//! The engine holds the remaining capacity of each cluster while a job is being placed. It evaluates a task on a
//! cluster, and commits a choice. How slots are filled is up to the [`Calendar`]: append-only, or with insertion into gaps.

use fdn_core::{Millis, Resources};

use super::calendar::{Calendar, HeldResources, SlotRequest, resize};
use super::infeasible::{Exclusion, Infeasible};
use super::memory_limits::Memory;
use super::model::{ClusterIndex, Speed};
use super::plan::Placement;
use super::problem::{Hold, Problem};
use super::timeline::Timeline;
use crate::dag::{TaskIndex, Transfer};

/// The remaining capacity of one cluster.
#[derive(Debug, Default)]
struct ClusterCapacity<C> {
    exclusion: Option<Exclusion>,
    free: Resources,
    /// The memory that others leave for this job, where the problem has [`super::MemoryLimits`].
    left: Memory,
    slots: C,
}

/// A task evaluated on one cluster; times in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) start: f64,
    pub(super) work: f64,
    pub(super) finish: f64,
    /// The selection key: the finish, plus the way back for exits if the options say so.
    pub(super) key: f64,
    pub(super) excluded: Option<Exclusion>,
}

impl Candidate {
    /// A task that starts on a cluster at `start` and takes `work`, unless it is excluded.
    pub(super) fn new(
        problem: &Problem<'_>,
        (cluster, is_exit): (usize, bool),
        (start, work): (f64, f64),
        excluded: Option<Exclusion>,
    ) -> Self {
        let finish = start + work;
        let never = (!finish.is_finite()).then_some(Exclusion::NeverFinishes);
        Self {
            start,
            work,
            finish,
            key: finish + way_back(problem, cluster, is_exit),
            excluded: excluded.or(never),
        }
    }
}

/// The requirements of the current task.
#[derive(Debug, Default)]
struct Current {
    task: usize,
    demand: Resources,
    is_exit: bool,
}

/// The state of one placement; kept from job to job for its buffers.
#[derive(Debug, Default)]
pub(super) struct Engine<C> {
    capacities: Vec<ClusterCapacity<C>>,
    spare: Vec<ClusterCapacity<C>>,
    speeds: Vec<Speed>,
    /// By cluster: a lower bound of every start from now on, in ms.
    floor: Vec<f64>,
    current: Current,
    /// Of the current task: when its data arrives on each cluster, in ms.
    ready: Vec<f64>,
    /// Of the current task: its run time on each cluster, in ms.
    work: Vec<f64>,
    placed: Vec<Placement>,
}

impl<C: Calendar> Engine<C> {
    /// Starts with the clusters in the state that the problem gives.
    pub(super) fn begin(&mut self, problem: &Problem<'_>) {
        resize(
            &mut self.capacities,
            &mut self.spare,
            problem.clusters().len(),
        );
        let barrier = problem.cluster_exclusion();
        for (p, (capacity, cluster)) in self
            .capacities
            .iter_mut()
            .zip(problem.clusters())
            .enumerate()
        {
            capacity.exclusion = barrier(p);
            capacity.free = cluster.free;
            capacity.left = left(problem, p);
            capacity.slots.begin(&cluster.slots);
        }
        self.floor.clear();
        self.floor.extend(
            self.capacities
                .iter()
                .map(|capacity| capacity.slots.floor()),
        );
        self.speeds.clear();
        self.speeds
            .extend(problem.clusters().iter().map(|cluster| cluster.speed));
        self.placed.clear();
        self.placed
            .resize(problem.dag().len(), Placement::default());
    }

    /// How many clusters there are.
    pub(super) const fn clusters(&self) -> usize {
        self.capacities.len()
    }

    /// Whether a cluster takes part in this placement.
    pub(super) fn is_usable(&self, cluster: usize) -> bool {
        self.capacities[cluster].exclusion.is_none()
    }

    /// `avail[p]`: when the first slot of a cluster is free.
    pub(super) fn available(&self, cluster: usize) -> Millis {
        Millis::new(self.capacities[cluster].slots.available())
    }

    /// When the current task's data has arrived on a cluster.
    pub(super) fn ready(&self, cluster: usize) -> Millis {
        Millis::new(self.ready[cluster])
    }

    /// Makes `task` the current one. Its parents must have been committed; a lookahead may call it earlier, and then parents not yet
    /// placed are ignored.
    pub(super) fn take_up(&mut self, problem: &Problem<'_>, task: TaskIndex) {
        let arrival = problem.arrival().get();
        self.set_current(problem, task);
        self.ready.clear();
        if task == problem.dag().entry() {
            self.ready
                .extend(problem.distance().iter().map(|d| arrival + d.get()));
            return;
        }
        self.ready.resize(self.capacities.len(), arrival);
        for (parent, transfer) in problem.dag().parents(task) {
            let Placement {
                cluster, finish, ..
            } = self.placed[parent.get()];
            let (home, finish) = (cluster.get(), finish.get());
            if home >= self.capacities.len() {
                continue;
            }
            match transfer {
                Transfer::Fixed(time) => {
                    let arrives = finish + time.get();
                    let own = self.ready[home].max(finish);
                    for ready in &mut self.ready {
                        *ready = ready.max(arrives);
                    }
                    self.ready[home] = own;
                }
                Transfer::Data(size) => {
                    let bytes = size.as_bytes() as f64;
                    let (latency, per_byte) = problem.network().row(home);
                    for ((ready, latency), per_byte) in
                        self.ready.iter_mut().zip(latency).zip(per_byte)
                    {
                        *ready = ready.max(finish + (latency + bytes * per_byte));
                    }
                }
            }
        }
    }

    /// A cheap lower bound of [`Candidate::key`]: the current task starts as soon as its data and a slot allow, resources permitting.
    #[inline]
    pub(super) fn least_key(&self, problem: &Problem<'_>, cluster: usize) -> f64 {
        let start = self.floor[cluster].max(self.ready[cluster]);
        start + self.work[cluster] + way_back(problem, cluster, self.current.is_exit)
    }

    fn set_current(&mut self, problem: &Problem<'_>, task: TaskIndex) {
        self.current = Current {
            task: task.get(),
            demand: problem.dag().task(task).demand,
            is_exit: problem.dag().is_exit(task),
        };
        self.work.clear();
        match problem.row(task) {
            Some(row) => self.work.extend_from_slice(row),
            None => {
                let work = problem.dag().task(task).work;
                let times = self.speeds.iter().map(|speed| speed.time(work).get());
                self.work.extend(times);
            }
        }
    }

    /// When the current task's data arrives on each cluster, in ms, to be handed to [`Engine::resume`].
    pub(super) fn all_ready(&self) -> &[f64] {
        &self.ready
    }

    /// Makes `task` the current one again, with the times that [`Engine::all_ready`] gave for it.
    pub(super) fn resume(&mut self, problem: &Problem<'_>, task: TaskIndex, ready: &[f64]) {
        self.set_current(problem, task);
        self.ready.clear();
        self.ready.extend_from_slice(ready);
    }

    /// Evaluates the current task on a cluster.
    pub(super) fn candidate(&self, problem: &Problem<'_>, cluster: usize) -> Candidate {
        let capacity = &self.capacities[cluster];
        let demand = &self.current.demand;
        let work = self.work[cluster];
        let excluded = capacity.exclusion.or_else(|| {
            let rest = (&capacity.free, &capacity.left);
            exclusion(problem, (self.current.task, demand), cluster, rest)
        });
        let held =
            (excluded.is_none() && problem.options().hold == Hold::Task).then_some(HeldResources {
                demand,
                free: &capacity.free,
            });
        let ready = self.ready[cluster];
        let start = capacity.slots.earliest(&SlotRequest { ready, work, held });
        let at = (cluster, self.current.is_exit);
        Candidate::new(problem, at, (start, work), excluded)
    }

    /// Places a task on a cluster that [`Engine::candidate`] does not exclude.
    pub(super) fn commit(
        &mut self,
        problem: &Problem<'_>,
        task: TaskIndex,
        cluster: usize,
        candidate: &Candidate,
    ) {
        let capacity = &mut self.capacities[cluster];
        let demand = problem.dag().task(task).demand;
        let (start, finish) = (candidate.start, candidate.finish);
        let held = match problem.options().hold {
            Hold::Task => demand,
            Hold::Job => {
                capacity.free = capacity
                    .free
                    .checked_sub(&demand)
                    .expect("a cluster with a shortage is excluded");
                Resources::default()
            }
        };
        capacity.left = capacity.left - need(problem, task, cluster);
        let slot = capacity.slots.occupy(start, finish, held);
        self.floor[cluster] = capacity.slots.floor();
        self.placed[task.get()] = Placement {
            cluster: ClusterIndex::new(cluster),
            slot,
            start: Millis::new(start),
            finish: Millis::new(finish),
        };
    }

    /// Places the current task on a cluster that does not exclude it, as early as it can start there.
    pub(super) fn put(&mut self, problem: &Problem<'_>, task: TaskIndex, cluster: usize) {
        let candidate = self.candidate(problem, cluster);
        self.commit(problem, task, cluster, &candidate);
    }

    /// Why no cluster can take the current task.
    pub(super) fn refuse(&self, problem: &Problem<'_>, task: TaskIndex) -> Infeasible {
        let excluded = |p: usize| self.candidate(problem, p).excluded;
        let clusters = problem.clusters().iter().enumerate();
        Infeasible {
            task,
            name: problem.dag().task(task).name.clone(),
            clusters: clusters
                .filter_map(|(p, cluster)| Some((cluster.id.clone(), excluded(p)?)))
                .collect(),
        }
    }

    /// The placements, by task.
    pub(super) fn placements(&self) -> &[Placement] {
        &self.placed
    }
}

/// What the way back to the user adds to the selection key.
#[inline]
fn way_back(problem: &Problem<'_>, cluster: usize, is_exit: bool) -> f64 {
    if is_exit && problem.options().exit_leg {
        problem.distance()[cluster].get()
    } else {
        0.0
    }
}

/// What keeps a task with this demand from a cluster that takes part, and of which so many resources are free and so much memory is left.
pub(super) fn exclusion(
    problem: &Problem<'_>,
    (task, demand): (usize, &Resources),
    cluster: usize,
    (free, left): (&Resources, &Memory),
) -> Option<Exclusion> {
    let shortage = || {
        [free, &problem.clusters()[cluster].largest]
            .into_iter()
            .find(|free| !demand.fits(free))
            .map(|free| Exclusion::Shortage {
                wanted: *demand,
                free: *free,
            })
    };
    let crowded = || {
        let memory_limits = problem.memory_limits()?;
        memory_limits.crowded(task, cluster, left)
    };
    let excluded = problem.exclusion(task, cluster);
    excluded.or_else(shortage).or_else(crowded)
}

/// The memory that others leave of a cluster before anything of this job is placed.
pub(super) fn left(problem: &Problem<'_>, cluster: usize) -> Memory {
    problem
        .memory_limits()
        .map_or_else(Memory::default, |memory_limits| memory_limits.left(cluster))
}

/// The memory that a task needs on a cluster.
fn need(problem: &Problem<'_>, task: TaskIndex, cluster: usize) -> Memory {
    problem
        .memory_limits()
        .map_or_else(Memory::default, |memory_limits| {
            memory_limits.need(task.get(), cluster)
        })
}

impl Engine<Timeline> {
    /// Starts a further job on the same clusters, keeping what was placed before. Slots are as this engine has
    /// them, not as the problem gives them.
    pub(super) fn begin_next(&mut self, problem: &Problem<'_>) {
        let barred = problem.cluster_exclusions();
        let capacities = self.capacities.iter_mut().zip(problem.clusters());
        for (p, ((capacity, cluster), barred)) in capacities.zip(barred).enumerate() {
            capacity.exclusion = barred;
            capacity.free = cluster.free;
            capacity.left = left(problem, p);
            capacity.slots.forget_before(problem.arrival().get());
        }
        self.placed.clear();
        self.placed
            .resize(problem.dag().len(), Placement::default());
    }

    /// Whether a task has been placed.
    pub(super) fn is_placed(&self, task: TaskIndex) -> bool {
        self.placed[task.get()] != Placement::default()
    }

    /// Undoes a placement, as if it had not been committed.
    pub(super) fn undo(&mut self, problem: &Problem<'_>, task: TaskIndex) {
        let Placement {
            cluster,
            slot,
            start,
            finish,
        } = std::mem::take(&mut self.placed[task.get()]);
        let capacity = &mut self.capacities[cluster.get()];
        capacity.left = capacity.left + need(problem, task, cluster.get());
        capacity.slots.release(slot, start.get(), finish.get());
        if problem.options().hold == Hold::Job {
            let demand = &problem.dag().task(task).demand;
            capacity.free = capacity.free.saturating_add(demand);
        }
    }
}
