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

use super::function::{Doing, Rest};
use super::{Effect, Pool};

impl Pool {
    /// Reports the end of an order to pause an instance; `is_paused` is `false` if it runs as before.
    pub fn paused(&mut self, now: Millis, container: ContainerId, is_paused: bool) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        if row.rest != Rest::Pausing {
            return;
        }
        let rest = if is_paused { Rest::Paused } else { Rest::Awake };
        self.set_rest(container, rest);
        match (row.doing, is_paused) {
            (Doing::Waking, true) => self.effects.push(Effect::Resume { container }),
            (Doing::Waking, false) => self.awake(now, container),
            (Doing::Loading | Doing::Warming | Doing::Open(_) | Doing::Idle, _) => {}
        }
    }

    /// Reports that an instance was resumed. A failed resume is reported by [`Pool::gone`].
    pub fn resumed(&mut self, now: Millis, container: ContainerId) {
        let is_waking = self
            .row(container)
            .is_some_and(|row| row.doing == Doing::Waking && row.rest == Rest::Paused);
        if is_waking {
            self.set_rest(container, Rest::Awake);
            self.awake(now, container);
        }
    }

    /// Orders a pause for instances that have been idle for long enough.
    pub(super) fn doze(&mut self, now: Millis) {
        while let Some(&(at, container)) = self.naps.first()
            && at <= now
        {
            self.naps.pop_first();
            if let Some(row) = self.rows[container.slot()].as_mut() {
                row.nap = None;
            }
            self.set_rest(container, Rest::Pausing);
            self.effects.push(Effect::Pause { container });
        }
    }

    /// Marks an instance as idle after it was started, adopted, or has finished its last call.
    pub(super) fn turn_idle(&mut self, now: Millis, container: ContainerId) {
        self.set(container, Doing::Idle);
        let nap = self.settings.pause_after.map(|after| now + after);
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let index = row.function;
        if row.rest == Rest::Awake {
            row.nap = nap;
            self.naps.extend(nap.map(|at| (at, container)));
        }
        if let Some(function) = self.function_mut(index) {
            function.idle += 1;
        }
    }

    /// Marks an instance as no longer idle.
    pub(super) fn leave_idle(&mut self, container: ContainerId) {
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let (index, nap) = (row.function, row.nap.take());
        if let Some(at) = nap {
            self.naps.remove(&(at, container));
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
        self.leave_idle(container);
        if row.rest == Rest::Awake {
            return self.open(now, container);
        }
        self.set(container, Doing::Waking);
        if let Some(function) = self.function_mut(row.function) {
            function.waking += 1;
        }
        if row.rest == Rest::Paused {
            self.effects.push(Effect::Resume { container });
        }
    }

    /// Removes the record of an instance that is gone.
    pub(super) fn forget(&mut self, container: ContainerId) {
        self.set_rest(container, Rest::Awake);
        self.rows[container.slot()] = None;
    }

    /// All idle instances, in the order in which they would be evicted.
    pub fn idle_by_standing(&self) -> impl Iterator<Item = ContainerId> {
        let idle = self.scheduler.idle_by_standing().into_iter();
        idle.filter(|container| self.is_idle(*container))
    }

    /// Evicts an idle instance whose other resources than memory are needed. Returns whether it was idle and is evicted.
    pub fn evict(&mut self, now: Millis, container: ContainerId) -> bool {
        let is_idle = self.is_idle(container);
        let evicted = is_idle && self.scheduler.evict(now, container, &mut self.actions);
        self.settle(now);
        evicted
    }

    fn awake(&mut self, now: Millis, container: ContainerId) {
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

    pub(super) fn set_rest(&mut self, container: ContainerId, rest: Rest) {
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        let (index, before) = (row.function, std::mem::replace(&mut row.rest, rest));
        if let Some(function) = self.function_mut(index) {
            function.paused -= u32::from(before == Rest::Paused);
            function.paused += u32::from(rest == Rest::Paused);
        }
    }
}
