//! The scheduler's tables: functions and workers are added, changed and removed.

use fdn_core::Millis;

use super::container::State;
use super::event::{Action, ReleaseReason};
use super::heap::Heap;
use super::id::{FunctionIndex, WorkerIndex};
use super::learn::LiveProfile;
use super::profile::Profile;
use super::refusal::Refusal;
use super::scheduler::{Function, Scheduler};
use super::weight::Weight;

impl Scheduler {
    /// Registers a function.
    ///
    /// # Errors
    /// When the bound on functions is reached.
    pub fn register(&mut self, profile: Profile) -> Result<FunctionIndex, Refusal> {
        let live = match self.settings.learn {
            Some(settings) => Some(LiveProfile::new(&profile, settings)?),
            None => None,
        };
        let fresh = Function {
            idle: Heap::default(),
            containers: 0,
            loading: 0,
            ahead: 0,
            let_go: 0,
            is_scaled: false,
            limit: usize::MAX,
            timely: 0,
            reload_until: Millis::ZERO,
            live,
            is_retired: false,
            part: None,
        };
        let function = if let Some(row) = self.retired.pop() {
            let function = FunctionIndex::from_raw(row);
            self.functions[function.get()] = fresh;
            self.queue.set_profile(function, profile);
            function
        } else {
            let limit = self.settings.tables.functions;
            if self.functions.len() >= limit {
                let what = "functions";
                return Err(Refusal::TableFull { what, limit });
            }
            self.functions.push(fresh);
            self.queue.add_function(profile)
        };
        self.keep_alive.registered(function);
        Ok(function)
    }

    /// Replaces a function's profile; present containers keep what they hold.
    ///
    /// # Errors
    /// When the function is not registered.
    pub fn set_profile(
        &mut self,
        function: FunctionIndex,
        profile: Profile,
    ) -> Result<(), Refusal> {
        self.check_function(function)?;
        if let Some(settings) = self.settings.learn {
            self.functions[function.get()].live = Some(LiveProfile::new(&profile, settings)?);
        }
        self.queue.set_profile(function, profile);
        Ok(())
    }

    /// Removes a function and releases its idle containers; its index may be reused for another one.
    ///
    /// # Errors
    /// When invocations of it wait or run, or it is not registered.
    pub fn retire(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        self.check_function(function)?;
        let row = &self.functions[function.get()];
        if self.queue.len_of(function) > 0 || row.containers > row.idle.len() {
            return Err(Refusal::InUse { function });
        }
        self.advance(now);
        while let Some((_, container)) = self.functions[function.get()].idle.peek() {
            self.release(container, ReleaseReason::Retired, actions);
        }
        self.reloads.remove(function.raw());
        self.leave_group(function);
        self.functions[function.get()].is_retired = true;
        self.retired.push(function.raw());
        self.dispatch(actions);
        Ok(())
    }

    /// Adds a worker.
    ///
    /// # Errors
    /// When the bound on workers is reached.
    pub fn add_worker(
        &mut self,
        now: Millis,
        memory: impl Into<Weight>,
        actions: &mut Vec<Action>,
    ) -> Result<WorkerIndex, Refusal> {
        let limit = self.settings.tables.workers;
        if self.workers.len() >= limit {
            let what = "workers";
            return Err(Refusal::TableFull { what, limit });
        }
        self.advance(now);
        let worker = self.workers.add(memory.into());
        self.readmit();
        self.dispatch(actions);
        Ok(worker)
    }

    /// Changes a worker's memory. If that is less than its containers hold, idle ones are released; busy ones stay, and nothing new
    /// starts there until there is memory. This is also how a lost worker returns.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn memory_changed(
        &mut self,
        now: Millis,
        worker: WorkerIndex,
        memory: impl Into<Weight>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        self.check_worker(worker)?;
        self.advance(now);
        self.workers.set_capacity(worker.raw(), memory.into().get());
        while self.workers.is_overfull(worker.raw())
            && let Some(victim) = self.workers.victim(worker.raw())
        {
            self.release(victim, ReleaseReason::Shrunk, actions);
        }
        self.readmit();
        self.dispatch(actions);
        Ok(())
    }

    /// Removes a worker with all its containers.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn worker_lost(
        &mut self,
        now: Millis,
        worker: WorkerIndex,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        self.check_worker(worker)?;
        self.advance(now);
        for row in 0..self.containers.len() as u32 {
            let container = self.containers.get(row);
            if container.state != State::Gone && container.worker == worker.raw() {
                self.forget(row, actions);
            }
        }
        self.workers.set_capacity(worker.raw(), 0);
        self.dispatch(actions);
        Ok(())
    }

    pub(super) fn check_function(&self, function: FunctionIndex) -> Result<(), Refusal> {
        let row = self.functions.get(function.get());
        row.filter(|row| !row.is_retired)
            .map(|_| ())
            .ok_or(Refusal::UnknownFunction { function })
    }

    pub(super) fn check_worker(&self, worker: WorkerIndex) -> Result<(), Refusal> {
        let there = worker.get() < self.workers.len();
        let worker = worker.get();
        there.then_some(()).ok_or(Refusal::UnknownWorker { worker })
    }

    /// Readmits functions that were too large for every worker and may fit now.
    fn readmit(&mut self) {
        self.queue.unpark_fitting(self.workers.largest().get());
    }
}
