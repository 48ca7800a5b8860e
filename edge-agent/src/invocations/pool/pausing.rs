//! Pausing idle instances: frozen after some time without calls, resumed before the next call is handed to them.
//!
//! ```text
//! Awake ──idle for long──▶ Pausing ──paused──▶ Paused ──a call is to come──▶ (waking) ──resumed──▶ Awake
//! ```
//!
//! An instance gets one order at a time: if it is needed while it is being paused, it is resumed when the pause is complete. Calls are bound to
//! an instance only once it is awake, so that one which fails to resume costs a call only time.

use fdn_core::Millis;
use fdn_scheduling::invocation::ContainerId;

use super::function::{PauseState, Phase};
use super::{Effect, Pool};

impl Pool {
    /// Reports the end of an order to pause an instance; `is_paused` is `false` if it runs as before.
    pub fn paused(&mut self, now: Millis, container: ContainerId, is_paused: bool) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        if row.pause_state != PauseState::Pausing {
            return;
        }
        let pause_state = if is_paused {
            PauseState::Paused
        } else {
            PauseState::Awake
        };
        self.set_pause_state(container, pause_state);
        match (row.phase, is_paused) {
            (Phase::Waking, true) => self.effects.push(Effect::Resume { container }),
            (Phase::Waking, false) => self.finish_waking(now, container),
            (Phase::Loading | Phase::Warming | Phase::Open(_) | Phase::Idle, _) => {}
        }
    }

    /// Reports that an instance was resumed. A failed resume is reported by [`Pool::gone`].
    pub fn resumed(&mut self, now: Millis, container: ContainerId) {
        let is_waking = self
            .row(container)
            .is_some_and(|row| row.phase == Phase::Waking && row.pause_state == PauseState::Paused);
        if is_waking {
            self.set_pause_state(container, PauseState::Awake);
            self.finish_waking(now, container);
        }
    }

    /// Orders a pause for instances that have been idle for long enough.
    pub(super) fn pause_due(&mut self, now: Millis) {
        while let Some(&(at, container)) = self.pause_timers.first()
            && at <= now
        {
            self.pause_timers.pop_first();
            if let Some(row) = self.rows[container.slot()].as_mut() {
                row.pause_at = None;
            }
            self.set_pause_state(container, PauseState::Pausing);
            self.effects.push(Effect::Pause { container });
        }
    }

    /// Marks an instance as idle after it was started, adopted, or has finished its last call.
    pub(super) fn mark_idle(&mut self, now: Millis, container: ContainerId) {
        self.set(container, Phase::Idle);
        let pause_at = self.settings.pause_after.map(|after| now + after);
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let index = row.function;
        if row.pause_state == PauseState::Awake {
            row.pause_at = pause_at;
            self.pause_timers.extend(pause_at.map(|at| (at, container)));
        }
        if let Some(function) = self.function_mut(index) {
            function.idle += 1;
        }
    }

    /// Marks an instance as no longer idle.
    pub(super) fn mark_used(&mut self, container: ContainerId) {
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let (index, pause_at) = (row.function, row.pause_at.take());
        if let Some(at) = pause_at {
            self.pause_timers.remove(&(at, container));
        }
        if let Some(function) = self.function_mut(index) {
            function.idle -= 1;
        }
    }

    /// Takes an idle instance into service: opened at once, or resumed first.
    pub(super) fn serve(&mut self, now: Millis, container: ContainerId) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        self.mark_used(container);
        if row.pause_state == PauseState::Awake {
            return self.open(now, container);
        }
        self.set(container, Phase::Waking);
        if let Some(function) = self.function_mut(row.function) {
            function.waking += 1;
        }
        if row.pause_state == PauseState::Paused {
            self.effects.push(Effect::Resume { container });
        }
    }

    /// Removes the record of an instance that is gone.
    pub(super) fn forget(&mut self, container: ContainerId) {
        self.set_pause_state(container, PauseState::Awake);
        self.rows[container.slot()] = None;
    }

    /// All idle instances, in the order in which they would be evicted.
    pub fn idle_in_eviction_order(&self) -> impl Iterator<Item = ContainerId> {
        let idle = self.scheduler.idle_in_eviction_order().into_iter();
        idle.filter(|container| self.is_idle(*container))
    }

    /// Evicts an idle instance whose other resources than memory are needed. Returns whether it was idle and is evicted.
    pub fn evict(&mut self, now: Millis, container: ContainerId) -> bool {
        let is_idle = self.is_idle(container);
        let evicted = is_idle && self.scheduler.evict(now, container, &mut self.actions);
        self.settle(now);
        evicted
    }

    fn finish_waking(&mut self, now: Millis, container: ContainerId) {
        let Some(index) = self.row(container).map(|row| row.function) else {
            return;
        };
        if let Some(function) = self.function_mut(index) {
            function.waking -= 1;
        }
        self.open(now, container);
        self.touched.push(index);
        self.settle(now);
    }

    pub(super) fn set_pause_state(&mut self, container: ContainerId, pause_state: PauseState) {
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let (index, before) = (
            row.function,
            std::mem::replace(&mut row.pause_state, pause_state),
        );
        if let Some(function) = self.function_mut(index) {
            function.paused -= u32::from(before == PauseState::Paused);
            function.paused += u32::from(pause_state == PauseState::Paused);
        }
    }
}
