//! Clusters that are lost, drained, return or change their speed.
//!
//! Containers bound to a lost cluster are bound anew; running ones start over, because their progress is gone. Finished ones are not run
//! again: outputs are kept by the network, not by the cluster that produced them.

use fdn_core::Millis;

use super::job::{Phase, State, Work};
use super::machine::Online;
use super::message::Action;
use crate::dag::TaskIndex;
use crate::place::{Availability, Hold, Speed};

impl<W: Work> Online<W> {
    pub(super) fn lose(&mut self, now: Millis, p: usize, actions: &mut Vec<Action>) -> bool {
        if !self.change(p, Availability::Down) {
            return false;
        }
        self.cluster_states[p].empty(now);
        self.moved.clear();
        for (place, job) in (0u32..).zip(&mut self.jobs) {
            if job.state != State::Active {
                continue;
            }
            for (at, task) in job.tasks.iter_mut().enumerate() {
                task.claim = task.claim.filter(|claim| *claim != p);
                if task.phase.is_bound() && task.cluster == p {
                    task.phase = Phase::Ready;
                    task.attempt = task.attempt.wrapping_add(1);
                    task.holds = false;
                    self.moved.push((job.arrival, place, TaskIndex::new(at)));
                }
            }
        }
        self.moved.sort_unstable();
        for at in 0..self.moved.len() {
            let (_, place, task) = self.moved[at];
            self.bind_or_strand(now, place, task, actions);
        }
        if self.settings.hold == Hold::Job {
            self.claims_lost = true;
            self.claim_again();
        }
        true
    }

    pub(super) fn drain(&mut self, now: Millis, p: usize, actions: &mut Vec<Action>) -> bool {
        if self
            .cluster_states
            .get(p)
            .is_none_or(|cluster_state| cluster_state.availability != Availability::Up)
        {
            return false;
        }
        self.change(p, Availability::Draining);
        if self.settings.hold == Hold::Job {
            self.leave(p);
            self.claims_lost = true;
            self.use_room(now, actions);
        }
        true
    }

    /// Drops the claims on a cluster of containers that are not bound yet.
    fn leave(&mut self, p: usize) {
        for job in self
            .jobs
            .iter_mut()
            .filter(|job| job.state == State::Active)
        {
            for at in 0..job.tasks.len() {
                let task = &mut job.tasks[at];
                let open = matches!(task.phase, Phase::Blocked | Phase::Ready);
                if open && task.claim == Some(p) {
                    task.claim = None;
                    let demand = job.dag().task(TaskIndex::new(at)).demand;
                    self.cluster_states[p].free =
                        self.cluster_states[p].free.saturating_add(&demand);
                }
            }
        }
    }

    pub(super) fn take_back(&mut self, now: Millis, p: usize, actions: &mut Vec<Action>) -> bool {
        let changed = self.change(p, Availability::Up);
        if changed {
            self.use_room(now, actions);
        }
        changed
    }

    /// Changes a cluster's availability; false if there is no such cluster or nothing changes.
    fn change(&mut self, p: usize, availability: Availability) -> bool {
        match self.cluster_states.get_mut(p) {
            Some(cluster_state) if cluster_state.availability != availability => {
                cluster_state.availability = availability;
                self.find_slow();
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn change_speed(
        &mut self,
        now: Millis,
        p: usize,
        speed: Speed,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self
            .cluster_states
            .get(p)
            .is_none_or(|cluster_state| cluster_state.speed == speed)
        {
            return false;
        }
        self.note_progress(now, p);
        self.cluster_states[p].speed = speed;
        self.find_slow();
        self.expect_again(now, p);
        self.use_room(now, actions);
        true
    }

    /// Accounts for the progress of running containers at the speed so far.
    fn note_progress(&mut self, now: Millis, p: usize) {
        for place in 0..self.jobs.len() {
            for at in 0..self.begun(place) {
                let job = &self.jobs[place];
                let state = job.tasks[at];
                if state.phase == Phase::Running && state.cluster == p {
                    let time = self.time(job, TaskIndex::new(at), p);
                    let state = &mut self.jobs[place].tasks[at];
                    let done = (now.get() - state.started) / time;
                    if time > 0.0 {
                        state.left = (state.left - done).clamp(0.0, 1.0);
                    }
                    state.started = now.get();
                }
            }
        }
    }

    /// Recomputes the pending time of a cluster and the expected ends of what runs there.
    fn expect_again(&mut self, now: Millis, p: usize) {
        self.cluster_states[p].reset_pending();
        for place in 0..self.jobs.len() {
            for at in 0..self.begun(place) {
                let job = &self.jobs[place];
                let state = job.tasks[at];
                if state.cluster != p || !state.phase.is_bound() {
                    continue;
                }
                let time = state.left * self.time(job, TaskIndex::new(at), p);
                if state.phase == Phase::Running {
                    self.cluster_states[p].expect(state.slot, now + Millis::new(time));
                } else {
                    self.cluster_states[p].add_pending(time);
                }
            }
        }
    }

    /// How many tasks of a place may be on a cluster.
    fn begun(&self, place: usize) -> usize {
        match self.jobs[place].state {
            State::Active => self.jobs[place].tasks.len(),
            State::Vacant | State::Held => 0,
        }
    }

    /// Binds the stranded containers that fit somewhere now.
    pub(super) fn retry_stranded(&mut self, now: Millis, actions: &mut Vec<Action>) {
        std::mem::swap(&mut self.stranded, &mut self.moved);
        self.stranded.clear();
        self.moved.sort_unstable();
        for at in 0..self.moved.len() {
            let (arrival, place, task) = self.moved[at];
            if !self.bind(now, place, task, actions) {
                self.stranded.push((arrival, place, task));
            }
        }
        self.moved.clear();
    }
}
