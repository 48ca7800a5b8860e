//! Reports about containers, and their consequences for children and jobs.

use fdn_core::Millis;

use super::cluster_state::Slot;
use super::job::{Phase, State, Work};
use super::machine::Online;
use super::message::{Action, JobRef, RunRef};
use super::settings::Order;
use crate::dag::TaskIndex;
use crate::place::{ClusterIndex, Hold};

impl<W: Work> Online<W> {
    pub(super) fn delivered(
        &mut self,
        now: Millis,
        run: RunRef,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(place) = self.current(run, Phase::Travelling) else {
            return false;
        };
        let job = &self.jobs[place as usize];
        if job.dag().virtual_entry() == Some(run.task) {
            let p = job.tasks[run.task.get()].cluster;
            self.cluster_states[p].remove_pending(0.0);
            self.complete(now, place, run.task, actions);
        } else {
            self.enqueue(place, run.task);
        }
        true
    }

    pub(super) fn finished(&mut self, now: Millis, run: RunRef, actions: &mut Vec<Action>) -> bool {
        let Some(place) = self.current(run, Phase::Running) else {
            return false;
        };
        self.vacate(now, place, run.task);
        self.complete(now, place, run.task, actions);
        true
    }

    /// Frees the slot of a running container for good.
    pub(super) fn vacate(&mut self, now: Millis, place: u32, task: TaskIndex) {
        let job = &mut self.jobs[place as usize];
        let demand = job.dag().task(task).demand;
        let state = &mut job.tasks[task.get()];
        let cluster_state = &mut self.cluster_states[state.cluster];
        cluster_state.vacate(now, state.slot);
        if std::mem::take(&mut state.holds) {
            cluster_state.free = cluster_state.free.saturating_add(&demand);
        }
        self.touched.push(state.cluster);
    }

    pub(super) fn slot_freed(&mut self, now: Millis, cluster: ClusterIndex, slot: u32) -> bool {
        let Some(cluster_state) = self.cluster_states.get_mut(cluster.get()) else {
            return false;
        };
        let Some(Slot::Foreign(held)) = cluster_state.slot(slot) else {
            return false;
        };
        cluster_state.vacate_foreign(now, slot, &held);
        self.touched.push(cluster.get());
        true
    }

    /// Completes a container: its children may be bound, and its job may be done.
    pub(super) fn complete(
        &mut self,
        now: Millis,
        place: u32,
        task: TaskIndex,
        actions: &mut Vec<Action>,
    ) {
        let Self { jobs, children, .. } = self;
        let job = &mut jobs[place as usize];
        let work = job.work.as_ref().expect("the job is under way");
        let state = &mut job.tasks[task.get()];
        (state.phase, state.finish) = (Phase::Done, now.get());
        job.unfinished -= 1;
        job.remaining = (job.remaining - state.size).max(0.0);
        children.clear();
        for (child, _) in work.dag().children(task) {
            let waiting = &mut job.tasks[child.get()].waiting;
            *waiting -= 1;
            if *waiting == 0 {
                children.push(child);
            }
        }
        let score = |c: &TaskIndex| job.scores.get(c.get()).copied();
        children.sort_unstable_by_key(|c| (std::cmp::Reverse(score(c)), *c));
        self.rekey(place);
        for at in 0..self.children.len() {
            self.bind_or_strand(now, place, self.children[at], actions);
        }
        if self.jobs[place as usize].unfinished == 0 {
            actions.push(Action::Done(self.jobs[place as usize].job_ref(place)));
            self.close(now, place, actions);
        }
    }

    /// Updates the queues after the job's remaining work has changed.
    pub(super) fn rekey(&mut self, place: u32) {
        if self.settings.order == Order::LeastWork {
            let key = self.job_key(place);
            for cluster_state in &mut self.cluster_states {
                cluster_state.queue.rekey(place, key);
            }
        }
    }

    /// Ends a job and releases what it holds.
    pub(super) fn close(&mut self, now: Millis, place: u32, actions: &mut Vec<Action>) {
        if self.settings.hold == Hold::Job {
            self.drop_claims(place);
        }
        self.vacate_place(place);
        if self.settings.hold == Hold::Job {
            self.use_room(now, actions);
        }
    }

    /// Frees a job's place for another.
    pub(super) fn vacate_place(&mut self, place: u32) {
        let job = &mut self.jobs[place as usize];
        self.under_way -= 1;
        self.tasks -= job.tasks.len();
        job.work = None;
        job.state = State::Vacant;
        job.generation = job.generation.wrapping_add(1);
        self.vacant.push(place);
    }

    pub(super) fn cancel(&mut self, now: Millis, job: JobRef, actions: &mut Vec<Action>) -> bool {
        let Some(place) = self.place(job) else {
            return false;
        };
        self.held.retain(|held| *held != place);
        self.stranded.retain(|(_, stranded, _)| *stranded != place);
        for at in 0..self.jobs[place as usize].tasks.len() {
            let task = TaskIndex::new(at);
            let state = self.jobs[place as usize].tasks[at];
            match state.phase {
                Phase::Running => {
                    actions.push(Action::Stop {
                        run: self.jobs[place as usize].run_ref(place, task),
                        cluster: ClusterIndex::new(state.cluster),
                        slot: state.slot,
                    });
                    self.vacate(now, place, task);
                }
                Phase::Travelling | Phase::Queued => {
                    let job = &self.jobs[place as usize];
                    let time = state.left * self.time(job, task, state.cluster);
                    let demand = job.dag().task(task).demand;
                    let cluster_state = &mut self.cluster_states[state.cluster];
                    cluster_state.remove_pending(time);
                    if state.holds {
                        cluster_state.free = cluster_state.free.saturating_add(&demand);
                        self.touched.push(state.cluster);
                    }
                }
                Phase::Blocked | Phase::Ready | Phase::Done => {}
            }
        }
        for cluster_state in &mut self.cluster_states {
            cluster_state.queue.remove(place);
            cluster_state.paused.remove(place);
        }
        self.close(now, place, actions);
        true
    }

    /// Puts a bound container whose data has arrived into its cluster's queue.
    pub(super) fn enqueue(&mut self, place: u32, task: TaskIndex) {
        let key = self.task_key(place, task);
        let job_key = self.job_key(place);
        let job = &mut self.jobs[place as usize];
        let state = &mut job.tasks[task.get()];
        state.phase = Phase::Queued;
        let cluster_state = &mut self.cluster_states[state.cluster];
        let queue = if state.holds {
            &mut cluster_state.paused
        } else {
            &mut cluster_state.queue
        };
        queue.push(place, job.arrival, job_key, task, key);
        self.touched.push(state.cluster);
    }

    pub(super) fn task_key(&mut self, place: u32, task: TaskIndex) -> (Millis, u64) {
        let job = &self.jobs[place as usize];
        let state = &job.tasks[task.get()];
        let key = match self.settings.order {
            Order::JobArrival | Order::LeastWork => {
                let score = job.scores[task.get()].get();
                return (Millis::new(-score), task.get() as u64);
            }
            Order::Arrival => 0.0,
            Order::LargestTask => -state.size,
            Order::LongestRemaining => -state.left * self.weight(job, task, state.cluster),
        };
        self.entries += 1;
        (Millis::new(key), self.entries)
    }

    pub(super) fn job_key(&self, place: u32) -> (Millis, u64) {
        let job = &self.jobs[place as usize];
        match self.settings.order {
            Order::LeastWork => (Millis::new(job.remaining), job.arrival),
            Order::JobArrival => (Millis::ZERO, job.arrival),
            Order::Arrival | Order::LargestTask | Order::LongestRemaining => (Millis::ZERO, 0),
        }
    }
}
