//! The number of instances that a function may have: computed by its autoscaler, applied as the scheduler's limit.

use fdn_core::Millis;
use fdn_scheduling::invocation::FunctionIndex;
use fdn_scheduling::scale::{Keep, Load, Scaler as _, Size};

use super::Pool;
use super::function::Function;

impl Function {
    /// The load since the last call of this.
    fn load(&mut self, now: Millis) -> Load {
        self.advance(now);
        let span = self
            .measured_at
            .map_or(0.0, |measured| (now - measured).get());
        let busy = if span > 0.0 {
            self.busy_ms / span
        } else {
            f64::from(self.running)
        };
        let load = Load {
            arrivals: self.arrivals,
            busy,
            executing: u64::from(self.running),
            queued: self.waiting.len() as u64,
        };
        (self.arrivals, self.busy_ms, self.measured_at) = (0, 0.0, Some(now));
        load
    }

    fn size(&self) -> Size {
        let pending = self.loading + self.warming;
        Size {
            running: self.instances() - pending,
            pending,
        }
    }
}

impl Pool {
    /// Schedules a scaling decision because calls wait: soon, or at once if there is no instance at all.
    pub(super) fn scale_soon(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function(index) else {
            return;
        };
        if function.waiting.is_empty() {
            return;
        }
        if function.instances() == 0 && function.wanted == 0 && function.paused_until.is_none() {
            return self.scale(now, index);
        }
        let soon = now + self.settings.reaction;
        self.examine_by(index, soon);
    }

    /// Schedules the next periodic scaling decision, for a function that has instances.
    pub(super) fn watch(&mut self, now: Millis, index: FunctionIndex) {
        self.examine_by(index, now + self.settings.interval);
    }

    /// Ensures that a function is examined by this time.
    fn examine_by(&mut self, index: FunctionIndex, at: Millis) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        if function.timer.is_some_and(|timer| timer <= at) {
            return;
        }
        let before = function.timer.replace(at);
        if let Some(before) = before {
            self.timers.remove(&(before, index));
        }
        self.timers.insert((at, index));
    }

    /// Handles a function whose timer, which is already removed, has expired.
    pub(super) fn due(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        function.timer = None;
        if function.paused_until.is_some_and(|until| until <= now) {
            function.paused_until = None;
        }
        self.scale(now, index);
    }

    fn scale(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        if function.is_retiring {
            return;
        }
        let (load, size) = (function.load(now), function.size());
        // The keep-alive policy, which the scheduler applies, decides about the last instance; instances for announced calls stay until these
        // arrive.
        let kept = function.kept(now);
        let keep = Keep::Warm(kept);
        let decision = function.scaler.tick(now, size, Some(&load), keep);
        function.wanted = decision.wanted;
        // The autoscaler's rate limits may hold its figure below what is kept.
        let is_spared = !function.announced.is_empty();
        let spare = function.instances().saturating_sub(kept);
        let stop = match is_spared {
            true => decision.stop.min(spare),
            false => decision.stop,
        };
        let is_active = decision.wanted > 0 || !function.waiting.is_empty();
        let is_paused = function.paused_until.is_some();
        self.apply_limit(now, index);
        if stop > 0 {
            let stop = stop as usize;
            let trimmed = self.scheduler.trim(now, index, stop, &mut self.actions);
            debug_assert!(trimmed.is_ok(), "{trimmed:?}");
        }
        self.touched.push(index);
        self.settle(now);
        let there = self.function(index).map_or(0, Function::instances);
        let lacking = decision.wanted.saturating_sub(there);
        if lacking > 0 && !load.is_idle() && !is_paused {
            let until = now + self.settings.ahead;
            let lacking = lacking as usize;
            let actions = &mut self.actions;
            let ordered = self.scheduler.prewarm(now, index, lacking, until, actions);
            debug_assert!(ordered.is_ok(), "{ordered:?}");
            self.settle(now);
        }
        if is_active || there > 0 {
            self.watch(now, index);
        }
    }

    /// Sets the scheduler's limit for the function: while starts fail, no instances beyond the existing ones.
    pub(super) fn apply_limit(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function(index) else {
            return;
        };
        let mut limit = function.wanted;
        if let Some(until) = function.paused_until {
            limit = limit.min(function.instances());
            self.examine_by(index, until);
        }
        let limit = limit as usize;
        let known = self
            .scheduler
            .set_limit(now, index, limit, &mut self.actions);
        debug_assert!(known.is_ok(), "{known:?}");
    }
}
