//! The choice of a cluster for a container whose parents are done (late binding).

use fdn_core::Millis;

use super::job::{Job, Phase, Work};
use super::machine::Online;
use super::message::{Action, Input};
use super::settings::{Choice, Delivery};
use crate::dag::{TaskIndex, Transfer};
use crate::place::{ClusterIndex, Hold};

impl<W: Work> Online<W> {
    /// Binds a container whose parents are done, or keeps it as stranded until some cluster can take it.
    pub(super) fn bind_or_strand(
        &mut self,
        now: Millis,
        place: u32,
        task: TaskIndex,
        actions: &mut Vec<Action>,
    ) {
        if !self.bind(now, place, task, actions) {
            let job = &self.jobs[place as usize];
            self.stranded.push((job.arrival, place, task));
            actions.push(Action::Strand {
                job: job.job_ref(place),
                task,
            });
        }
    }

    /// Binds a container; false if no cluster can take it.
    pub(super) fn bind(
        &mut self,
        now: Millis,
        place: u32,
        task: TaskIndex,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.jobs[place as usize].tasks[task.get()].phase = Phase::Ready;
        let home = self.find_ready(now, place, task);
        self.find_open(place, task);
        let Some(p) = self.choose(now, place, task) else {
            return false;
        };
        self.claim(place, task, p);
        let time = self.time(&self.jobs[place as usize], task, p);
        self.cluster_states[p].add_pending(time);
        let job = &mut self.jobs[place as usize];
        let state = &mut job.tasks[task.get()];
        (state.cluster, state.left) = (p, 1.0);
        state.phase = Phase::Travelling;
        let input = if home == Some(p) {
            Input::Here
        } else {
            Input::Expected(Millis::new(self.ready[p]).max(now))
        };
        actions.push(Action::Bind {
            run: job.run_ref(place, task),
            cluster: ClusterIndex::new(p),
            input,
        });
        if input == Input::Here {
            self.enqueue(place, task);
        }
        true
    }

    /// Computes when a container's data arrives on each cluster; returns the cluster that already has all of it, if there is one.
    fn find_ready(&mut self, now: Millis, place: u32, task: TaskIndex) -> Option<usize> {
        let Self {
            jobs,
            ready,
            network,
            settings,
            cluster_states,
            ..
        } = self;
        let job = &jobs[place as usize];
        ready.clear();
        if task == job.dag().entry() {
            // The request is sent again if the cluster to which it was sent is lost.
            let again = job.tasks[task.get()].attempt > 0;
            let sent = if again { now } else { job.arrived };
            ready.extend(job.distance.iter().map(|d| sent.get() + d));
            return None;
        }
        ready.resize(cluster_states.len(), 0.0);
        let mut home = None;
        for (parent, transfer) in job.dag().parents(task) {
            let parent = &job.tasks[parent.get()];
            let from = parent.cluster;
            home = match home {
                None => Some(Some(from)),
                Some(Some(home)) if home == from => Some(Some(home)),
                Some(_) => Some(None),
            };
            let leaves = match settings.delivery {
                Delivery::Pushed => parent.finish,
                Delivery::Pulled => now.get(),
            };
            let (latencies, rates) = network.row(from);
            for (to, ready) in ready.iter_mut().enumerate() {
                let arrives = if to == from {
                    parent.finish
                } else {
                    leaves + transfer_time(transfer, latencies[to], rates[to])
                };
                *ready = ready.max(arrives);
            }
        }
        home.flatten()
    }

    fn choose(&mut self, now: Millis, place: u32, task: TaskIndex) -> Option<usize> {
        let job = &self.jobs[place as usize];
        let usable = |p: &usize| self.open[*p];
        let all = 0..self.cluster_states.len();
        match self.settings.choice {
            Choice::EarliestFinish => least(all.filter(usable), |p| self.finish(now, job, task, p)),
            Choice::LeastQueued => {
                least(all.filter(usable), |p| self.cluster_states[p].backlog(now))
            }
            Choice::Nearest => {
                let room =
                    |p: &usize| self.settings.hold == Hold::Job || self.is_free(job, task, *p);
                least(all.clone().filter(usable).filter(room), |p| job.distance[p])
                    .or_else(|| least(all.filter(usable), |p| job.distance[p]))
            }
            Choice::RoundRobin => {
                let turn = self.turn;
                let mut cycle = (turn..all.end).chain(0..turn.min(all.end));
                let chosen = cycle.find(usable)?;
                self.turn = (chosen + 1) % self.cluster_states.len();
                Some(chosen)
            }
        }
    }

    /// The expected finish of a container on a cluster, in ms, with the way back for exits if the settings count that.
    fn finish(&self, now: Millis, job: &Job<W>, task: TaskIndex, p: usize) -> f64 {
        let cluster_state = &self.cluster_states[p];
        let slot = now.get() + cluster_state.wait(now, cluster_state.pending());
        let finish = slot.max(self.ready[p]) + self.time(job, task, p);
        if self.settings.exit_leg && job.dag().is_exit(task) {
            finish + job.distance[p]
        } else {
            finish
        }
    }

    /// Finds the clusters that may take a container: its demand fits the cluster, its data can get there, and, if resources are held
    /// until the job ends, they are reserved for it there, or free, or can be freed by moving its own job's claims.
    fn find_open(&mut self, place: u32, task: TaskIndex) {
        self.open.clear();
        for p in 0..self.cluster_states.len() {
            let job = &self.jobs[place as usize];
            let usable = self.is_usable(job, task, p) && self.ready[p].is_finite();
            let kept = self.settings.hold == Hold::Task
                || job.tasks[task.get()].claim == Some(p)
                || self.is_free(job, task, p);
            let open = usable && (kept || self.make_way(place, task, p, false));
            self.open.push(open);
        }
    }

    /// Whether a container's resources are free at this moment.
    fn is_free(&self, job: &Job<W>, task: TaskIndex, p: usize) -> bool {
        job.dag()
            .task(task)
            .demand
            .fits(&self.cluster_states[p].room())
    }
}

/// The cluster with the least key, ties by the smaller index; `None` if there is no cluster.
fn least(clusters: impl Iterator<Item = usize>, key: impl Fn(usize) -> f64) -> Option<usize> {
    clusters
        .map(|p| (Millis::new(key(p)), p))
        .min()
        .map(|(_, p)| p)
}

/// `omega`, in ms: fixed, or from a link's latency and time per byte.
pub(super) fn transfer_time(transfer: Transfer, latency: f64, per_byte: f64) -> f64 {
    match transfer {
        Transfer::Fixed(time) => time.get(),
        Transfer::Data(size) => latency + size.as_bytes() as f64 * per_byte,
    }
}
