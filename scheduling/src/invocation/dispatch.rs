//! The decisions of the state machine: which invocation starts next, where, and which containers are released for it.

use fdn_core::Millis;

use super::container::{Claim, State};
use super::event::{Action, ReleaseReason};
use super::id::{FunctionIndex, WorkerIndex};
use super::order::{Order, left};
use super::queue::Queued;
use super::scheduler::Scheduler;

/// The result of an attempt to start the head of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Started,
    /// Skipped for now; the next function is tried.
    Skipped,
    /// It waits for memory, and blocks all others behind it.
    Blocked,
}

impl Scheduler {
    /// Starts invocations in order until the head does not fit; that blocks those behind it.
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

    /// The function whose head goes before all others because it has waited too long; `None` if none has or the guard's budget is used up.
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
        if self.functions[function.get()].containers >= self.functions[function.get()].limit {
            self.queue.cap(function);
            return Outcome::Skipped;
        }
        if !self.can_fit_share(function) {
            self.queue.cap(function);
            return Outcome::Skipped;
        }
        let worker = if let Some(worker) = self.workers.with_free(memory) {
            worker
        } else if !for_its_age && self.is_soon_free(function) {
            self.queue.park(function);
            return Outcome::Skipped;
        } else if let Some(worker) = self.workers.with_room(memory) {
            if !for_its_age && self.serve_victim(worker, actions) {
                return Outcome::Started;
            }
            self.make_share(function, actions);
            self.make_room(worker, memory, actions);
            worker
        } else if memory > self.workers.largest().get() {
            self.queue.strand(function);
            return Outcome::Skipped;
        } else {
            return Outcome::Blocked;
        };
        self.make_share(function, actions);
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

    /// Use before evicting: if invocations wait for the function of the next victim, starts the first of them on a warm container.
    fn serve_victim(&mut self, worker: u32, actions: &mut Vec<Action>) -> bool {
        if !self.settings.use_before_evicting {
            return false;
        }
        let Some(victim) = self.workers.victim(worker) else {
            return false;
        };
        let function = FunctionIndex::from_raw(self.containers.get(victim).function);
        let waits = self.queue.len_of(function) > 0;
        let warm = self.functions[function.get()].idle.peek();
        if let Some((_, row)) = warm.filter(|_| waits) {
            self.take_up(function, Some(row), row, false, actions);
        }
        waits
    }

    /// Evicts idle containers of a worker until this weight fits.
    fn make_room(&mut self, worker: u32, memory: u64, actions: &mut Vec<Action>) {
        while !self.workers.fits(worker, memory) {
            let victim = self
                .workers
                .victim(worker)
                .expect("free and idle memory suffice");
            let rank = self.containers.get(victim).rank;
            self.release(victim, ReleaseReason::Evicted, actions);
            self.keep_alive.evicted(rank);
        }
    }

    /// Gives a container to the head of a function: a warm one, or one that is just being loaded.
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
            self.functions[function.get()].loading += 1;
            actions.push(Action::StartCold {
                request,
                function,
                container,
                worker,
            });
        }
    }

    /// Records a use of a container, for recency.
    pub(super) fn mark_used(&mut self, row: u32) {
        self.uses += 1;
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        let profile = self.queue.profile(function);
        let rank = self.keep_alive.used(self.now, function, profile);
        let container = self.containers.get_mut(row);
        (container.used, container.rank) = (self.uses, rank);
    }

    /// Counts a busy container as soon free until its expected end.
    fn expect_end(&mut self, row: u32, end: Millis) {
        if self.settings.queue_or_cold && end > self.now {
            let container = self.containers.get_mut(row);
            container.timely = true;
            self.functions[container.function as usize].timely += 1;
            self.expected.set(row, end);
        }
    }

    pub(super) fn forget_end(&mut self, row: u32) {
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

    /// Ends quanta: the invocation is pre-empted if another goes first, or continues.
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
