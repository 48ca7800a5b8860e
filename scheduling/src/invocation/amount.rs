//! The number of a function's containers, where an autoscaler or an inventory of running containers determines it.

use fdn_core::Millis;

use super::container::State;
use super::event::{Action, ReleaseReason};
use super::id::{ContainerId, FunctionIndex, WorkerIndex};
use super::keep_alive::Keep;
use super::refusal::Refusal;
use super::scheduler::Scheduler;

impl Scheduler {
    /// Limits the containers of a function: at the limit none is loaded for an invocation; its invocations wait for the present ones,
    /// and block nobody else. Containers beyond the limit stay; [`Self::trim`] removes idle ones.
    ///
    /// # Errors
    /// When the function is not registered.
    pub fn set_limit(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        limit: usize,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        self.check_function(function)?;
        self.advance(now);
        let row = &mut self.functions[function.get()];
        row.limit = limit;
        if row.containers < limit {
            self.queue.uncap(function);
        }
        self.dispatch(actions);
        Ok(())
    }

    /// Loads up to `count` containers without an invocation, where memory is free, and keeps each at least until `until`. Returns how
    /// many are being loaded.
    ///
    /// # Errors
    /// When the function is not registered.
    pub fn prewarm(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        count: usize,
        until: Millis,
        actions: &mut Vec<Action>,
    ) -> Result<usize, Refusal> {
        self.check_function(function)?;
        self.advance(now);
        let mut loaded = 0;
        while loaded < count && self.load_ahead(function, State::Warming, actions) {
            loaded += 1;
        }
        let kept = &mut self.functions[function.get()].reload_until;
        *kept = (*kept).max(until);
        Ok(loaded)
    }

    /// Releases up to `count` idle containers of a function, the least recently used first. Returns how many.
    ///
    /// # Errors
    /// When the function is not registered.
    pub fn trim(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        count: usize,
        actions: &mut Vec<Action>,
    ) -> Result<usize, Refusal> {
        self.check_function(function)?;
        self.advance(now);
        let mut released = 0;
        while released < count
            && let Some((_, row)) = self.functions[function.get()].idle.last()
        {
            self.release(row, ReleaseReason::Surplus, actions);
            released += 1;
        }
        if released > 0 {
            self.dispatch(actions);
        }
        Ok(released)
    }

    /// Evicts one idle container because the caller needs what it holds besides memory. Returns false if it is gone or not idle.
    ///
    /// Complexity: as a release by the keep-alive policy.
    pub fn evict(
        &mut self,
        now: Millis,
        container: ContainerId,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.advance(now);
        let row = self.containers.find(container);
        let idle = row.filter(|row| self.containers.get(*row).state == State::Idle);
        let Some(row) = idle else {
            return false;
        };
        let rank = self.containers.get(row).rank;
        self.release(row, ReleaseReason::Evicted, actions);
        self.keep_alive.evicted(rank);
        self.dispatch(actions);
        true
    }

    /// Accounts for a warm, idle container that was loaded before this scheduler started. `None` where its worker has no memory for
    /// it: the caller must remove it.
    ///
    /// # Errors
    /// When function or worker are not registered.
    pub fn adopt(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        worker: WorkerIndex,
        actions: &mut Vec<Action>,
    ) -> Result<Option<ContainerId>, Refusal> {
        self.check_function(function)?;
        self.check_worker(worker)?;
        self.advance(now);
        let memory = self.queue.profile(function).memory().get();
        if !self.workers.fits(worker.raw(), memory) {
            return Ok(None);
        }
        let row = self.load(function, worker.raw(), memory, State::Warming);
        let container = self.containers.id(row);
        self.mark_used(row);
        let keep = match self.keep_alive.turned_idle(self.now, function) {
            Keep::Until(until) => Keep::Until(until),
            Keep::Reload { until, .. } => Keep::Until(until),
        };
        self.turn_idle(row, keep, actions);
        self.dispatch(actions);
        Ok(Some(container))
    }
}
