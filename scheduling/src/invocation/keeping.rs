//! The life cycle of containers between invocations: loaded, idle, kept, loaded ahead, released, lost.

use std::cmp::Reverse;

use super::container::State;
use super::event::{Action, ReleaseReason};
use super::id::{FunctionIndex, WorkerIndex};
use super::keep_alive::Keep;
use super::order::Rank;
use super::scheduler::Scheduler;

impl Scheduler {
    /// Adds a new container, which holds memory from now on.
    pub(super) fn load(
        &mut self,
        function: FunctionIndex,
        worker: u32,
        memory: u64,
        state: State,
    ) -> u32 {
        let row = self.containers.add(function.raw(), worker, memory, state);
        self.containers.get_mut(row).since = self.now;
        self.functions[function.get()].containers += 1;
        self.shares.hold(self.functions[function.get()].part);
        self.workers.hold(worker, memory);
        row
    }

    /// Ends the execution in a container, which has finished or was pre-empted.
    pub(super) fn end_run(&mut self, row: u32, actions: &mut Vec<Action>) {
        self.quanta.remove(row);
        self.forget_end(row);
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        let keep = self.keep_alive.turned_idle(self.now, function);
        self.turn_idle(row, keep, actions);
    }

    /// Adds a container to the idle ones, kept as its policy decides.
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
        let part = self.functions[function as usize].part;
        self.shares.turn_idle(part, true);
        self.reopen_of(FunctionIndex::from_raw(function));
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
            self.release(row, ReleaseReason::Shrunk, actions);
        }
    }

    /// Releases a container that will be loaded again later, unless an invocation of its function waits.
    fn release_unneeded(&mut self, row: u32, actions: &mut Vec<Action>) {
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        if self.queue.len_of(function) > 0 {
            return;
        }
        if self.functions[function.get()].is_scaled {
            self.let_go(row);
        } else {
            self.release(row, ReleaseReason::NotNeededYet, actions);
        }
    }

    /// Removes a container from the idle ones.
    pub(super) fn leave_idle(&mut self, row: u32) {
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
        let part = self.functions[container.function as usize].part;
        self.shares.turn_idle(part, false);
        self.expiry.remove(row);
        self.keep_again(row);
        let function = FunctionIndex::from_raw(container.function);
        self.queue.set_warm(function, is_warm);
    }

    /// Removes an idle container.
    pub(super) fn release(&mut self, row: u32, why: ReleaseReason, actions: &mut Vec<Action>) {
        actions.push(Action::Release {
            container: self.containers.id(row),
            worker: WorkerIndex::from_raw(self.containers.get(row).worker),
            why,
        });
        self.leave_idle(row);
        self.drop_row(row);
    }

    /// Removes a container in any state; its invocation, if any, is reported as lost.
    pub(super) fn forget(&mut self, row: u32, actions: &mut Vec<Action>) {
        let container = self.containers.get(row);
        let function = &mut self.functions[container.function as usize];
        match container.state {
            State::Loading(_) => function.loading -= 1,
            State::Warming | State::Ahead => function.ahead -= 1,
            State::Running { .. } | State::Idle | State::Gone => {}
        }
        match container.state {
            State::Idle => self.leave_idle(row),
            State::Loading(claim) | State::Running { claim, .. } => {
                actions.push(Action::Lost {
                    request: claim.request,
                });
                self.quanta.remove(row);
                self.forget_end(row);
            }
            State::Warming | State::Ahead | State::Gone => {}
        }
        self.drop_row(row);
    }

    fn drop_row(&mut self, row: u32) {
        let container = *self.containers.get(row);
        self.workers.give_back(container.worker, container.memory);
        let part = self.functions[container.function as usize].part;
        self.shares.give_back(part);
        let function = &mut self.functions[container.function as usize];
        function.containers -= 1;
        if function.containers < function.limit {
            self.queue
                .uncap(FunctionIndex::from_raw(container.function));
        }
        self.reopen_of(FunctionIndex::from_raw(container.function));
        self.containers.remove(row);
    }

    /// Releases idle containers whose keep-alive time has ended.
    pub(super) fn expire(&mut self, actions: &mut Vec<Action>) {
        while let Some(((until, _), row)) = self.expiry.peek()
            && until <= self.now
        {
            let function = self.containers.get(row).function;
            if self.functions[function as usize].is_scaled {
                self.let_go(row);
            } else {
                self.release(row, ReleaseReason::Expired, actions);
            }
        }
    }

    /// Loads the containers due to be loaded ahead, where memory is free.
    pub(super) fn reload(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, row)) = self.reloads.peek()
            && at <= self.now
        {
            self.reloads.remove(row);
            let function = FunctionIndex::from_raw(row);
            if let Some(row) = self.last_let_go(function) {
                let until = self.functions[function.get()].reload_until.max(self.now);
                self.keep_again(row);
                self.expiry.set(row, (until, self.containers.get(row).used));
            } else {
                self.load_ahead(function, State::Warming, actions);
            }
        }
    }

    /// Loads a container without an invocation if memory is free and the shares allow it; false otherwise.
    pub(super) fn load_ahead(
        &mut self,
        function: FunctionIndex,
        state: State,
        actions: &mut Vec<Action>,
    ) -> bool {
        let memory = self.queue.profile(function).memory().get();
        let Some(worker) = self.workers.with_free(memory) else {
            return false;
        };
        if !self.fits_share(function) {
            return false;
        }
        let row = self.load(function, worker, memory, state);
        self.functions[function.get()].ahead += 1;
        actions.push(Action::Prewarm {
            function,
            container: self.containers.id(row),
            worker: WorkerIndex::from_raw(worker),
        });
        true
    }
}
