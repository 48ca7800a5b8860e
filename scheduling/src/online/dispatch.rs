//! What starts when a slot is free, and what is pre-empted for it.

use fdn_core::Millis;

use super::cluster_state::Slot;
use super::job::{Phase, Work};
use super::machine::Online;
use super::message::Action;
use super::settings::Order;
use crate::dag::TaskIndex;
use crate::place::{Availability, ClusterIndex, Hold};

/// The container that starts next.
#[derive(Clone, Copy, Debug)]
struct Next {
    place: u32,
    task: TaskIndex,
    /// Whether it is served out of order because its job has waited too long.
    out_of_order: bool,
}

impl<W: Work> Online<W> {
    /// Starts containers of a cluster's queue while there are slots. One that lacks resources blocks those behind it, so that smaller
    /// ones cannot overtake it for ever.
    pub(super) fn dispatch(&mut self, now: Millis, p: usize, actions: &mut Vec<Action>) {
        if self.cluster_states[p].availability == Availability::Down {
            return;
        }
        while let Some(next) = self.next(now, p) {
            let yields = (!self.cluster_states[p].has_idle()).then(|| self.yields(now, p, next));
            if yields == Some(None) || !self.may_hold(p, next) {
                break;
            }
            if let Some(Some((place, task))) = yields {
                self.preempt(now, place, task, actions);
            }
            self.start(now, p, next, actions);
        }
    }

    /// The container that starts next: the head of the queue or of the pre-empted ones, whichever is first in order. While resources
    /// are lacking for the head of the queue, pre-empted ones resume, because they hold what it waits for.
    fn next(&self, now: Millis, p: usize) -> Option<Next> {
        let cluster_state = &self.cluster_states[p];
        let next = |(place, task)| Next {
            place,
            task,
            out_of_order: false,
        };
        let paused = cluster_state.paused.first().map(next);
        let Some(first) = cluster_state.queue.first().map(next) else {
            return paused;
        };
        let starved = self.starved(now, p, first.place);
        let before =
            starved.is_none() && cluster_state.paused.first_key() < cluster_state.queue.first_key();
        let first = starved.unwrap_or(first);
        match paused {
            Some(paused) if before || !self.may_hold(p, first) => Some(paused),
            Some(_) | None => Some(first),
        }
    }

    /// The first container of the job that has waited longest, if that exceeds the threshold, it is not its turn anyway, and the
    /// cluster has credit for it.
    fn starved(&self, now: Millis, p: usize, first: u32) -> Option<Next> {
        let cluster_state = &self.cluster_states[p];
        let rule = self
            .settings
            .starvation
            .filter(|_| cluster_state.has_credit())?;
        let (place, task) = cluster_state.queue.oldest()?;
        let waited = now - self.jobs[place as usize].arrived;
        (place != first && waited > rule.after()).then_some(Next {
            place,
            task,
            out_of_order: true,
        })
    }

    /// The running container that is pre-empted for the next one: the one with least left to run, if that is less than the next has.
    /// One past its expected end is left alone.
    fn yields(&self, now: Millis, p: usize, next: Next) -> Option<(u32, TaskIndex)> {
        if self.settings.order != Order::LongestRemaining {
            return None;
        }
        let job = &self.jobs[next.place as usize];
        let longest = job.tasks[next.task.get()].left * self.weight(job, next.task, p);
        let cluster_state = &self.cluster_states[p];
        cluster_state
            .busy()
            .iter()
            .find_map(|(until, slot)| match cluster_state.slot(*slot)? {
                Slot::Busy(place, task) if *until > now => {
                    let (left, _) = self.left(now, place, task);
                    let weight = self.weight(&self.jobs[place as usize], task, p);
                    (left * weight < longest).then_some((place, task))
                }
                Slot::Busy(..) | Slot::Foreign(_) | Slot::Idle => None,
            })
    }

    /// The fraction of a running container's work that is left, and its full run time. The same numbers serve to compare and to queue
    /// it: if they differed by rounding, two containers could pre-empt each other for ever.
    fn left(&self, now: Millis, place: u32, task: TaskIndex) -> (f64, f64) {
        let job = &self.jobs[place as usize];
        let state = &job.tasks[task.get()];
        let time = self.time(job, task, state.cluster);
        let done = (now.get() - state.started) / time;
        let left = if time > 0.0 {
            state.left - done
        } else {
            state.left
        };
        (left.clamp(0.0, 1.0), time)
    }

    /// Whether the resources of a container are free; under [`Hold::Job`] they were reserved when it was bound.
    fn may_hold(&self, p: usize, next: Next) -> bool {
        let job = &self.jobs[next.place as usize];
        self.settings.hold == Hold::Job
            || job.tasks[next.task.get()].holds
            || job
                .dag()
                .task(next.task)
                .demand
                .fits(&self.cluster_states[p].room())
    }

    fn preempt(&mut self, now: Millis, place: u32, task: TaskIndex, actions: &mut Vec<Action>) {
        let job = &self.jobs[place as usize];
        let state = job.tasks[task.get()];
        let (left, time) = self.left(now, place, task);
        actions.push(Action::Preempt {
            run: job.run_ref(place, task),
            cluster: ClusterIndex::new(state.cluster),
            slot: state.slot,
        });
        let cluster_state = &mut self.cluster_states[state.cluster];
        cluster_state.vacate(now, state.slot);
        cluster_state.add_pending(left * time);
        let state = &mut self.jobs[place as usize].tasks[task.get()];
        (state.left, state.attempt) = (left, state.attempt.wrapping_add(1));
        self.enqueue(place, task);
    }

    fn start(&mut self, now: Millis, p: usize, next: Next, actions: &mut Vec<Action>) {
        let Next { place, task, .. } = next;
        let job_key = self.job_key(place);
        let job = &self.jobs[place as usize];
        let time = job.tasks[task.get()].left * self.time(job, task, p);
        let demand = job.dag().task(task).demand;
        let until = now + Millis::new(time);
        let cluster_state = &mut self.cluster_states[p];
        if job.tasks[task.get()].holds {
            cluster_state.paused.pop(place, job_key);
        } else {
            cluster_state.queue.pop(place, job_key);
        }
        cluster_state.remove_pending(time);
        if let Some(rule) = &self.settings.starvation {
            cluster_state.account(rule, time, next.out_of_order);
        }
        let slot = cluster_state
            .occupy(place, task, until)
            .expect("a slot is idle, or was given up");
        let job = &mut self.jobs[place as usize];
        let state = &mut job.tasks[task.get()];
        if self.settings.hold == Hold::Task && !state.holds {
            state.holds = true;
            cluster_state.free = cluster_state.free.checked_sub(&demand).unwrap_or_default();
        }
        (state.phase, state.slot, state.started) = (Phase::Running, slot, now.get());
        actions.push(Action::Start {
            run: job.run_ref(place, task),
            cluster: ClusterIndex::new(p),
            slot,
            until,
        });
    }
}
