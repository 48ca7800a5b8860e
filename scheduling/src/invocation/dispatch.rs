//! What the state machine decides: which invocation starts next, where, and what is released for it.

use std::cmp::Reverse;

use fdn_core::Millis;

use super::container::{Claim, State};
use super::event::{Action, Why};
use super::id::{FunctionIndex, WorkerIndex};
use super::keep_alive::Keep;
use super::order::{Order, Rank, left};
use super::queue::Queued;
use super::scheduler::Scheduler;

/// What came of trying to start the head of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Started,
    /// Left out for now; the next function may go on.
    Skipped,
    /// It waits for memory, and all others behind it.
    Blocked,
}

impl Scheduler {
    /// Starts what can start, in order; the head that does not fit blocks those behind it.
    pub(super) fn dispatch(&mut self, actions: &mut Vec<Action>) {
        self.note_overdue();
        loop {
            self.queue.unpark_fitting(self.workers.most_free());
            let starved = self.starved();
            let Some(function) = starved.or_else(|| self.queue.first()) else {
                return;
            };
            if self.start(function, starved.is_some(), actions) == Outcome::Blocked {
                return;
            }
        }
    }

    /// The function whose head goes before all others for its age.
    fn starved(&self) -> Option<FunctionIndex> {
        let (arrival, function) = self.queue.oldest()?;
        let starves = self.starvation.starves_at(arrival)? <= self.now;
        (starves && self.starvation.is_admitting()).then_some(function)
    }

    fn start(
        &mut self,
        function: FunctionIndex,
        for_its_age: bool,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        let memory = self.queue.profile(function).memory().get();
        if let Some((_, row)) = self.functions[function.get()].idle.peek() {
            self.take_up(function, Some(row), row, for_its_age, actions);
            return Outcome::Started;
        }
        let worker = if let Some(worker) = self.workers.with_free(memory) {
            worker
        } else if !for_its_age && self.is_soon_free(function) {
            self.queue.park(function);
            return Outcome::Skipped;
        } else if let Some(worker) = self.workers.with_room(memory) {
            self.make_room(worker, memory, actions);
            worker
        } else if memory > self.workers.largest().get() {
            self.queue.strand(function);
            return Outcome::Skipped;
        } else {
            return Outcome::Blocked;
        };
        let row = self.load(function, worker, memory, State::Warming);
        self.take_up(function, None, row, for_its_age, actions);
        Outcome::Started
    }

    /// Queue or cold: whether the pending invocations of a function are likely served by its own busy containers before a new
    /// one would be loaded: `b >= 1` and `n*E/b < D`, where `b` containers are busy and not past their expected end.
    fn is_soon_free(&self, function: FunctionIndex) -> bool {
        let busy = self.functions[function.get()].timely;
        let profile = self.queue.profile(function);
        let waiting = self.queue.len_of(function) as f64;
        self.settings.queue_or_cold
            && busy >= 1
            && waiting * profile.execution().get() / (busy as f64) < profile.cold_start().get()
    }

    /// Evicts idle containers of a worker until this much fits.
    fn make_room(&mut self, worker: u32, memory: u64, actions: &mut Vec<Action>) {
        while !self.workers.fits(worker, memory) {
            let victim = self
                .workers
                .victim(worker)
                .expect("free and idle memory suffice");
            let rank = self.containers.get(victim).rank;
            self.release(victim, Why::Evicted, actions);
            self.keep_alive.evicted(rank);
        }
    }

    /// The head of a function takes a container: a warm one, or one that was just ordered.
    fn take_up(
        &mut self,
        function: FunctionIndex,
        warm: Option<u32>,
        row: u32,
        for_its_age: bool,
        actions: &mut Vec<Action>,
    ) {
        let profile = *self.queue.profile(function);
        let Queued {
            request,
            arrival,
            executed,
        } = self
            .queue
            .pop(function)
            .expect("a function in the order has a head");
        let claim = Claim {
            request,
            arrival,
            executed,
        };
        if warm.is_some() {
            self.leave_idle(row);
        }
        self.reloads.remove(function.raw());
        self.mark_used(row);
        self.containers.get_mut(row).since = self.now;
        let span = left(&profile, executed) + (profile.span(warm.is_none()) - profile.execution());
        self.expect_end(row, self.now + span);
        let starved_cost = profile.memory_time(warm.is_none());
        self.starvation.started(starved_cost, for_its_age);
        let container = self.containers.id(row);
        let worker = WorkerIndex::from_raw(self.containers.get(row).worker);
        if warm.is_some() {
            self.run(row, claim);
            actions.push(Action::StartWarm {
                request,
                container,
                worker,
            });
        } else {
            self.containers.get_mut(row).state = State::Loading(claim);
            actions.push(Action::StartCold {
                request,
                function,
                container,
                worker,
            });
        }
    }

    /// A container's use, by which the least recent is told.
    pub(super) fn mark_used(&mut self, row: u32) {
        self.uses += 1;
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        let profile = self.queue.profile(function);
        let rank = self.keep_alive.used(self.now, function, profile);
        let container = self.containers.get_mut(row);
        (container.used, container.rank) = (self.uses, rank);
    }

    fn load(&mut self, function: FunctionIndex, worker: u32, memory: u64, state: State) -> u32 {
        let row = self.containers.add(function.raw(), worker, memory, state);
        self.containers.get_mut(row).since = self.now;
        self.functions[function.get()].containers += 1;
        self.workers.hold(worker, memory);
        row
    }

    /// The invocation in a container is over, or interrupted.
    pub(super) fn end_run(&mut self, row: u32, actions: &mut Vec<Action>) {
        self.quanta.remove(row);
        self.forget_end(row);
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        let keep = self.keep_alive.turned_idle(self.now, function);
        self.turn_idle(row, keep, actions);
    }

    /// A container joins the idle ones, as its policy wants.
    pub(super) fn turn_idle(&mut self, row: u32, keep: Keep, actions: &mut Vec<Action>) {
        let container = self.containers.get_mut(row);
        container.state = State::Idle;
        if let Keep::Until(until) = keep {
            container.rank = self.keep_alive.standing(container.rank, until);
        }
        let (function, worker, memory) = (container.function, container.worker, container.memory);
        let (used, rank) = (container.used, Rank(container.rank));
        let containers = &mut self.containers;
        self.functions[function as usize]
            .idle
            .push(Reverse(used), row, |row, at| {
                containers.get_mut(row).in_function = at;
            });
        self.workers
            .idle_mut(worker)
            .push((rank, used), row, |row, at| {
                containers.get_mut(row).in_worker = at;
            });
        self.workers.turn_idle(worker, memory, true);
        self.queue.set_warm(FunctionIndex::from_raw(function), true);
        match keep {
            Keep::Until(until) if until.is_finite() => self.expiry.set(row, (until, used)),
            Keep::Until(_) => {}
            Keep::Reload { at, until } => {
                self.functions[function as usize].reload_until = until;
                self.reloads.set(function, at);
                self.expiry.set(row, (self.now, used));
                self.release_unneeded(row, actions);
            }
        }
        if self.workers.is_overfull(worker) && self.containers.get(row).state == State::Idle {
            self.release(row, Why::Shrunk, actions);
        }
    }

    /// Releases a container that will be loaded again later, unless an invocation of its function waits for one.
    fn release_unneeded(&mut self, row: u32, actions: &mut Vec<Action>) {
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        if self.queue.len_of(function) == 0 {
            self.release(row, Why::NotNeededYet, actions);
        }
    }

    /// A container is no longer idle.
    fn leave_idle(&mut self, row: u32) {
        let container = *self.containers.get(row);
        let containers = &mut self.containers;
        let idle = &mut self.functions[container.function as usize].idle;
        idle.remove(container.in_function, |row, at| {
            containers.get_mut(row).in_function = at;
        });
        let is_warm = !idle.is_empty();
        self.workers
            .idle_mut(container.worker)
            .remove(container.in_worker, |row, at| {
                containers.get_mut(row).in_worker = at;
            });
        self.workers
            .turn_idle(container.worker, container.memory, false);
        self.expiry.remove(row);
        let function = FunctionIndex::from_raw(container.function);
        self.queue.set_warm(function, is_warm);
    }

    /// Removes an idle container.
    pub(super) fn release(&mut self, row: u32, why: Why, actions: &mut Vec<Action>) {
        actions.push(Action::Release {
            container: self.containers.id(row),
            worker: WorkerIndex::from_raw(self.containers.get(row).worker),
            why,
        });
        self.leave_idle(row);
        self.drop_row(row);
    }

    /// A container is gone, whatever it did.
    pub(super) fn forget(&mut self, row: u32, actions: &mut Vec<Action>) {
        match self.containers.get(row).state {
            State::Idle => self.leave_idle(row),
            State::Loading(claim) | State::Running { claim, .. } => {
                actions.push(Action::Lost {
                    request: claim.request,
                });
                self.quanta.remove(row);
                self.forget_end(row);
            }
            State::Warming | State::Gone => {}
        }
        self.drop_row(row);
    }

    fn drop_row(&mut self, row: u32) {
        let container = *self.containers.get(row);
        self.workers.give_back(container.worker, container.memory);
        self.functions[container.function as usize].containers -= 1;
        self.containers.remove(row);
    }

    /// Counts a busy container as running until its expected end.
    fn expect_end(&mut self, row: u32, end: Millis) {
        if self.settings.queue_or_cold && end > self.now {
            let container = self.containers.get_mut(row);
            container.timely = true;
            self.functions[container.function as usize].timely += 1;
            self.expected.set(row, end);
        }
    }

    fn forget_end(&mut self, row: u32) {
        self.expected.remove(row);
        let container = self.containers.get_mut(row);
        if std::mem::take(&mut container.timely) {
            let function = FunctionIndex::from_raw(container.function);
            self.functions[function.get()].timely -= 1;
            self.queue.unpark(function);
        }
    }

    /// Containers past their expected end no longer count as soon free.
    fn note_overdue(&mut self) {
        while let Some((end, row)) = self.expected.peek()
            && end <= self.now
        {
            self.forget_end(row);
        }
    }

    /// Ends the keeping of idle containers.
    pub(super) fn expire(&mut self, actions: &mut Vec<Action>) {
        while let Some(((until, _), row)) = self.expiry.peek()
            && until <= self.now
        {
            self.release(row, Why::Expired, actions);
        }
    }

    /// Loads containers ahead, where memory is free.
    pub(super) fn reload(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, row)) = self.reloads.peek()
            && at <= self.now
        {
            self.reloads.remove(row);
            let function = FunctionIndex::from_raw(row);
            let memory = self.queue.profile(function).memory().get();
            if let Some(worker) = self.workers.with_free(memory) {
                let row = self.load(function, worker, memory, State::Warming);
                actions.push(Action::Prewarm {
                    function,
                    container: self.containers.id(row),
                    worker: WorkerIndex::from_raw(worker),
                });
            }
        }
    }

    /// Ends quanta: an invocation makes room for another, or goes on.
    pub(super) fn interrupt(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, row)) = self.quanta.peek()
            && at <= self.now
        {
            let container = *self.containers.get(row);
            let State::Running { claim, since } = container.state else {
                unreachable!("only running containers have a quantum");
            };
            let function = FunctionIndex::from_raw(container.function);
            let executed = claim.executed + (self.now - since);
            if self.makes_room(function, executed) {
                actions.push(Action::Interrupt {
                    request: claim.request,
                    container: self.containers.id(row),
                });
                let queued = Queued {
                    request: claim.request,
                    arrival: claim.arrival,
                    executed,
                };
                self.queue.put(function, queued);
                self.end_run(row, actions);
            } else {
                let quantum = self.settings.order.quantum().unwrap_or(Millis::INFINITY);
                self.quanta.set(row, self.now + quantum);
            }
        }
    }

    fn makes_room(&self, function: FunctionIndex, executed: Millis) -> bool {
        match self.settings.order {
            Order::RoundRobin { .. } => !self.queue.is_empty(),
            Order::Srtf { .. } => {
                let remaining = left(self.queue.profile(function), executed);
                self.queue
                    .least_left()
                    .is_some_and(|least| least < remaining)
            }
            Order::FuncSched | Order::Fcfs | Order::Sjf | Order::Srf => false,
        }
    }
}
