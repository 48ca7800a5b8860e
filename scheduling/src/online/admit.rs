//! Admission of jobs, and their first steps.

use fdn_core::Millis;

use super::bind::transfer_time;
use super::job::{Job, State, Work};
use super::machine::Online;
use super::message::{Action, Refused};
use crate::dag::TaskIndex;
use crate::place::{Availability, ClusterIndex, Exclusion, Infeasible, ProblemError, fill_upward};

impl<W: Work> Online<W> {
    pub(super) fn check(&self, work: &W, distance: &[Millis]) -> Result<(), Refused> {
        let limits = self.settings.limits;
        let (jobs, tasks) = (self.under_way, self.tasks);
        if jobs >= limits.jobs || tasks + work.dag().len() > limits.tasks {
            return Err(Refused::Full {
                jobs,
                tasks,
                limits,
            });
        }
        if distance.len() != self.cluster_states.len() {
            return Err(Refused::Problem(ProblemError::Size {
                what: "distances",
                given: distance.len(),
                wanted: self.cluster_states.len(),
            }));
        }
        if distance.iter().any(|d| *d < Millis::ZERO) {
            return Err(Refused::Problem(ProblemError::Negative("a distance")));
        }
        let homeless = work.dag().indices().find(|task| {
            (0..self.cluster_states.len())
                .all(|p| self.exclusion(work, distance[p], *task, p).is_some())
        });
        homeless.map_or(Ok(()), |task| {
            Err(self.infeasible(work, distance, task).into())
        })
    }

    /// What excludes a task of a job from a cluster even if nothing else ran there; `None` if nothing does.
    pub(super) fn exclusion(
        &self,
        work: &W,
        distance: Millis,
        task: TaskIndex,
        p: usize,
    ) -> Option<Exclusion> {
        let cluster_state = &self.cluster_states[p];
        let wanted = work.dag().task(task).demand;
        let room = [cluster_state.capacity, cluster_state.largest];
        match cluster_state.availability {
            Availability::Down => Some(Exclusion::Down),
            Availability::Draining => Some(Exclusion::Draining),
            Availability::Up if !cluster_state.is_open() => Some(Exclusion::NoSlots),
            Availability::Up if !distance.is_finite() => Some(Exclusion::OutOfReach),
            Availability::Up if cluster_state.slow && work.follows_speed() => {
                Some(Exclusion::TooSlow)
            }
            Availability::Up => match room.into_iter().find(|free| !wanted.fits(free)) {
                Some(free) => Some(Exclusion::Shortage { wanted, free }),
                None => {
                    let time = work.time(task, ClusterIndex::new(p), cluster_state.speed);
                    (!time.is_finite()).then_some(Exclusion::NeverFinishes)
                }
            },
        }
    }

    pub(super) fn infeasible(&self, work: &W, distance: &[Millis], task: TaskIndex) -> Infeasible {
        let why = |p: usize| {
            let why = self.exclusion(work, distance[p], task, p);
            let id = self.cluster_states[p].id.clone();
            (id, why.unwrap_or(Exclusion::NeverFinishes))
        };
        Infeasible {
            task,
            name: work.dag().task(task).name.clone(),
            clusters: (0..self.cluster_states.len()).map(why).collect(),
        }
    }

    /// Whether a container of a job may be bound to a cluster, apart from resources that others hold.
    pub(super) fn is_usable(&self, job: &Job<W>, task: TaskIndex, p: usize) -> bool {
        let cluster_state = &self.cluster_states[p];
        let demand = &job.dag().task(task).demand;
        cluster_state.is_open()
            && job.distance[p].is_finite()
            && !(cluster_state.slow && job.work().follows_speed())
            && demand.fits(&cluster_state.capacity)
            && demand.fits(&cluster_state.largest)
            && self.time(job, task, p).is_finite()
    }

    /// The full run time of a container on a cluster, in ms.
    pub(super) fn time(&self, job: &Job<W>, task: TaskIndex, p: usize) -> f64 {
        let speed = self.cluster_states[p].speed;
        job.work().time(task, ClusterIndex::new(p), speed).get()
    }

    /// The key by which containers of one cluster are compared in run time; it does not depend on the cluster's speed.
    pub(super) fn weight(&self, job: &Job<W>, task: TaskIndex, p: usize) -> f64 {
        if job.work().follows_speed() {
            job.tasks[task.get()].size
        } else {
            self.time(job, task, p)
        }
    }

    pub(super) fn fill(&mut self, now: Millis, place: u32, work: W, distance: &[Millis]) {
        let (cluster_states, settings) = (&self.cluster_states, &self.settings);
        let times = |work: &W, task| {
            let usable = |p: &usize| cluster_states[*p].is_open() && distance[*p].is_finite();
            let time = |p| {
                work.time(task, ClusterIndex::new(p), cluster_states[p].speed)
                    .get()
            };
            let times = (0..cluster_states.len()).filter(usable).map(time);
            let (sum, count) = times
                .filter(|time| time.is_finite())
                .fold((0.0, 0.0), |(sum, count), time| (sum + time, count + 1.0));
            if count == 0.0 { 0.0 } else { sum / count }
        };
        let job = &mut self.jobs[place as usize];
        job.work = Some(work);
        job.begin(now, self.arrivals, distance, |work, task| {
            if work.follows_speed() {
                work.dag().task(task).work.get()
            } else {
                times(work, task)
            }
        });
        self.arrivals += 1;
        if settings.order.by_score() {
            let (latency, per_byte) = self.network.mean(|p| cluster_states[p].is_open());
            let work = job.work.as_ref().expect("it was put in above");
            let omega = |transfer| transfer_time(transfer, latency, per_byte);
            fill_upward(work.dag(), |task| times(work, task), omega, &mut job.scores);
        }
    }

    /// Handles the binding of the job's first container: the job becomes active.
    pub(super) fn activate(&mut self, now: Millis, place: u32, actions: &mut Vec<Action>) {
        let job = &mut self.jobs[place as usize];
        job.state = State::Active;
        let entry = job.dag().entry();
        self.bind_or_strand(now, place, entry, actions);
    }
}
