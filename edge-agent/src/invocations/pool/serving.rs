//! The life cycle of instances: ordered, ready, serving, idle, gone.

use fdn_core::Millis;
use fdn_scheduling::invocation::{Action, ContainerId, FunctionIndex, WorkerIndex};
use fdn_scheduling::scale;

use super::function::{PauseState, Phase, Row};
use super::{CallId, Effect, Pool};

impl Pool {
    /// Reports that an instance is ready. Returns `false` if it is no longer wanted and must be stopped.
    pub fn started(&mut self, now: Millis, container: ContainerId) -> bool {
        let Some(row) = self.row(container).copied() else {
            return false;
        };
        if !matches!(row.phase, Phase::Loading | Phase::Warming) {
            return false;
        }
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        function.live.saw_cold_start(now - row.ordered);
        self.learn(row.function);
        let ready = self.scheduler.ready(now, container, &mut self.actions);
        debug_assert!(ready.is_ok(), "{ready:?}");
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        if row.phase == Phase::Warming {
            function.warming -= 1;
            self.mark_idle(now, container);
        } else {
            function.loading -= 1;
            self.open(now, container);
        }
        self.touched.push(row.function);
        self.settle(now);
        true
    }

    /// Reports that an instance could not be started, or ended so soon that another would do the same: no other instance of its function is
    /// started until `again`.
    pub fn start_failed(&mut self, now: Millis, container: ContainerId, again: Millis) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        if let Some(function) = self.function_mut(row.function) {
            // Several that fail together count as one.
            if function.paused_until.is_none_or(|until| until <= now) {
                function.failures = function.failures.saturating_add(1);
                function.paused_until = Some(again);
            }
        }
        self.gone(now, container);
    }

    /// The function of an instance.
    #[must_use]
    pub fn function_of(&self, container: ContainerId) -> Option<FunctionIndex> {
        self.row(container).map(|row| row.function)
    }

    /// The number of a function's failed starts in a row.
    #[must_use]
    pub fn failures(&self, function: FunctionIndex) -> u32 {
        self.function(function).map_or(0, |f| f.failures)
    }

    /// Reports that a call in an instance has ended, with the time it ran if that was measured.
    pub fn ended(&mut self, now: Millis, container: ContainerId, took: Option<Millis>) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        let Phase::Open(running) = row.phase else {
            return;
        };
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        function.advance(now);
        function.running -= 1;
        if let Some(took) = took {
            function.live.saw_execution(took);
            function.failures = 0;
        }
        let left = running - 1;
        self.set(container, Phase::Open(left));
        if took.is_some() {
            self.learn(row.function);
        }
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        // A free seat in a busy instance costs nothing; an empty instance belongs to the scheduler, unless waiting calls were granted an
        // instance.
        if (left > 0 || function.has_granted())
            && let Some(call) = function.waiting.pop_front()
        {
            self.calls.remove(&call);
            self.in_flight(now, container, call);
        }
        self.close_if_empty(now, container);
        self.touched.push(row.function);
        self.settle(now);
    }

    /// Reports that an instance is gone: it crashed, was lost, or must not be used any more.
    pub fn gone(&mut self, now: Millis, container: ContainerId) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        function.advance(now);
        match row.phase {
            Phase::Loading => function.loading -= 1,
            Phase::Warming => function.warming -= 1,
            Phase::Waking => function.waking -= 1,
            Phase::Idle => self.mark_used(container),
            Phase::Open(running) => {
                function.running -= running;
                function.open.retain(|(open, _)| *open != container);
            }
        }
        self.forget(container);
        // First, so that a function whose starts fail gets no replacement.
        self.apply_limit(now, row.function);
        let was_known = self.scheduler.failed(now, container, &mut self.actions);
        debug_assert!(was_known.is_ok(), "{was_known:?}");
        self.scale_soon(now, row.function);
        self.touched.push(row.function);
        self.settle(now);
    }

    /// Adopts an instance that runs or is paused already. `None` if there is no room for it, and it must be stopped.
    pub fn adopt(
        &mut self,
        now: Millis,
        index: FunctionIndex,
        is_paused: bool,
    ) -> Option<ContainerId> {
        let adopted = self
            .scheduler
            .adopt(now, index, self.worker, &mut self.actions);
        let container = adopted.ok().flatten()?;
        // Recorded before the scheduler's immediate actions are performed.
        let pause_state = if is_paused {
            PauseState::Paused
        } else {
            PauseState::Awake
        };
        self.insert(now, index, container, Phase::Idle);
        self.set_pause_state(container, pause_state);
        self.mark_idle(now, container);
        self.settle(now);
        self.row(container).map(|row| row.id)
    }

    /// Performs an action of the scheduler.
    pub(super) fn act(&mut self, now: Millis, action: Action) {
        match action {
            Action::StartWarm {
                request, container, ..
            } => {
                let Some(row) = self.row(container).copied() else {
                    return;
                };
                self.granted(row.function, request.0);
                self.serve(now, container);
                self.touched.push(row.function);
            }
            Action::StartCold {
                request,
                function,
                container,
                worker,
            } => {
                self.granted(function, request.0);
                self.order(now, function, container, worker, Phase::Loading);
                self.touched.push(function);
            }
            Action::Prewarm {
                function,
                container,
                worker,
            } => self.order(now, function, container, worker, Phase::Warming),
            Action::Release { container, why, .. } => {
                let Some(row) = self.row(container).copied() else {
                    return;
                };
                self.mark_used(container);
                self.forget(container);
                self.effects.push(Effect::Stop { container, why });
                self.watch(now, row.function);
            }
            // No preemptive order can be configured; a token lost with its instance is created anew.
            Action::Interrupt { .. } | Action::Lost { .. } => {}
        }
    }

    fn granted(&mut self, index: FunctionIndex, token: u64) {
        if let Some(function) = self.function_mut(index) {
            function.tokens.retain(|(waiting, _)| *waiting != token);
        }
    }

    fn order(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        container: ContainerId,
        worker: WorkerIndex,
        phase: Phase,
    ) {
        self.insert(now, function, container, phase);
        self.effects.push(Effect::Start {
            container,
            function,
            worker,
            is_ahead: phase == Phase::Warming,
        });
    }

    fn insert(&mut self, now: Millis, index: FunctionIndex, id: ContainerId, phase: Phase) {
        let rows = self.rows.len().max(id.slot() + 1);
        self.rows.resize(rows, None);
        self.rows[id.slot()] = Some(Row {
            id,
            function: index,
            phase,
            ordered: now,
            pause_state: PauseState::Awake,
            pause_at: None,
        });
        if let Some(function) = self.function_mut(index) {
            match phase {
                Phase::Loading => function.loading += 1,
                Phase::Warming => function.warming += 1,
                // Counted when it enters this state.
                Phase::Idle | Phase::Waking | Phase::Open(_) => {}
            }
        }
        self.watch(now, index);
    }

    pub(super) fn set(&mut self, container: ContainerId, phase: Phase) {
        let Some(row) = self.rows[container.slot()].as_mut() else {
            return;
        };
        row.phase = phase;
        let function = self.functions[row.function.get()]
            .as_mut()
            .expect("an instance's function is known");
        if let Phase::Open(running) = phase {
            match function
                .open
                .iter_mut()
                .find(|(open, _)| *open == container)
            {
                Some((_, runs)) => *runs = running,
                None => function.open.push((container, running)),
            }
        }
    }

    /// Opens an instance for as many waiting calls as it runs at once. If none wait, it is idle again at once.
    pub(super) fn open(&mut self, now: Millis, container: ContainerId) {
        self.set(container, Phase::Open(0));
        let Some(index) = self.row(container).map(|row| row.function) else {
            return;
        };
        while let Some(function) = self.function_mut(index)
            && function.free_seat_of(container)
            && let Some(call) = function.waiting.pop_front()
        {
            self.calls.remove(&call);
            self.in_flight(now, container, call);
        }
        self.close_if_empty(now, container);
    }

    /// Assigns a call to an open instance.
    pub(super) fn in_flight(&mut self, now: Millis, container: ContainerId, call: CallId) {
        let Some(Row {
            phase: Phase::Open(running),
            function,
            ..
        }) = self.row(container).copied()
        else {
            unreachable!("calls are handed to open instances only");
        };
        self.set(container, Phase::Open(running + 1));
        if let Some(function) = self.function_mut(function) {
            function.advance(now);
            function.running += 1;
        }
        self.effects.push(Effect::Assign { call, container });
    }

    /// Returns an instance that runs nothing to the scheduler.
    fn close_if_empty(&mut self, now: Millis, container: ContainerId) {
        let Some(row) = self.row(container).copied() else {
            return;
        };
        if row.phase != Phase::Open(0) {
            return;
        }
        if let Some(function) = self.function_mut(row.function) {
            function.open.retain(|(open, _)| *open != container);
        }
        self.mark_idle(now, container);
        let finished = self.scheduler.finished(now, container, &mut self.actions);
        debug_assert!(finished.is_ok(), "{finished:?}");
    }

    /// Updates scheduler and autoscaler with the measured profile.
    fn learn(&mut self, index: FunctionIndex) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        let profile = function.live.profile();
        function.scaler.set_profile(scale::Profile {
            exec: profile.execution(),
            cold: profile.cold_start(),
        });
        let known = self.scheduler.set_profile(index, profile);
        debug_assert!(known.is_ok(), "{known:?}");
    }
}
