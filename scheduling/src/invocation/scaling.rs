//! An autoscaler beside the keep-alive policy: both decide about the same containers.
//!
//! **Problem.** A keep-alive policy predicts when a function is invoked again, an autoscaler how many invocations run at once. Each alone
//! releases what the other would have kept.
//!
//! **Rule.** A container is kept while either wants it. For a scaled function, a container that the keep-alive policy no longer keeps
//! stays until the scaler's next decision finds that there are too many; a container that the scaler no longer wants stays while the
//! policy keeps it. Containers that the scaler wants are loaded without an invocation, where memory is free, and only while no invocation
//! waits for memory: nothing is evicted for them. Evictions follow the keep-alive policy, whatever the scaler wants.
//!
//! **Readings.** An invocation whose container is loading counts as waiting: its container is part of the function's size, as pending.
//! The scaler need not know what the policy keeps: it has its own grace period ([`crate::scale::Keep::Grace`]). Were it told, the number
//! of containers of an intermittently used function would swing with the last one that the policy keeps. A container loaded for the
//! scaler is treated by the policy as one that turns idle when it is ready.
//!
//! **Complexity.** [`Scheduler::function_state`] O(1); [`Scheduler::scale`] O(idle containers of the function) for each one released, and
//! O(log N) for each one loaded.

use std::cmp::Reverse;

use fdn_core::Millis;

use super::container::State;
use super::event::{Action, ReleaseReason};
use super::id::FunctionIndex;
use super::refusal::Refusal;
use super::scheduler::Scheduler;
use crate::scale::{Decision, Size};

/// A function's state as input for its scaler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionState {
    /// Its containers, loaded and loading.
    pub size: Size,
    /// Invocations being executed.
    pub executing: u64,
    /// Waiting invocations, those included whose container is loading.
    pub queued: u64,
    /// Idle containers that the keep-alive policy keeps.
    pub kept: u32,
}

impl Scheduler {
    /// A function's state for its scaler; `None` if it is not registered.
    #[must_use]
    pub fn function_state(&self, function: FunctionIndex) -> Option<FunctionState> {
        let row = self.functions.get(function.get())?;
        if row.is_retired {
            return None;
        }
        let (idle, pending) = (row.idle.len(), row.loading + row.ahead);
        let running = row.containers - pending;
        // Workers hold fewer than 2^32 containers.
        let size = Size {
            running: running as u32,
            pending: pending as u32,
        };
        Some(FunctionState {
            size,
            executing: (running - idle) as u64,
            queued: (self.queue.len_of(function) + row.loading) as u64,
            kept: (idle - row.let_go) as u32,
        })
    }

    /// Applies a scaler's decision. From the first one on, containers that the keep-alive policy no longer keeps are released only
    /// here. Returns how many containers are being loaded; for the rest no memory is free, or invocations wait for it.
    ///
    /// # Errors
    /// When the function is not registered.
    pub fn scale(
        &mut self,
        now: Millis,
        function: FunctionIndex,
        decision: Decision,
        actions: &mut Vec<Action>,
    ) -> Result<u32, Refusal> {
        self.check_function(function)?;
        self.advance(now);
        self.functions[function.get()].is_scaled = true;
        for _ in 0..decision.stop {
            let Some(row) = self.first_let_go(function) else {
                break;
            };
            self.release(row, ReleaseReason::Expired, actions);
        }
        self.dispatch(actions);
        let mut loaded = 0;
        while loaded < decision.start
            && self.queue.is_empty()
            && self.load_ahead(function, State::Ahead, actions)
        {
            loaded += 1;
        }
        Ok(loaded)
    }

    /// Marks an idle container as no longer kept by the keep-alive policy.
    pub(super) fn let_go(&mut self, row: u32) {
        self.expiry.remove(row);
        let container = self.containers.get_mut(row);
        if !std::mem::replace(&mut container.let_go, true) {
            self.functions[container.function as usize].let_go += 1;
        }
    }

    /// Clears that mark: the policy keeps the container again, or it is no longer idle.
    pub(super) fn keep_again(&mut self, row: u32) {
        let container = self.containers.get_mut(row);
        if std::mem::take(&mut container.let_go) {
            self.functions[container.function as usize].let_go -= 1;
        }
    }

    /// The least recently used container with that mark.
    fn first_let_go(&self, function: FunctionIndex) -> Option<u32> {
        let used = self
            .let_go_of(function)
            .map(|(Reverse(used), row)| (used, row));
        used.min().map(|(_, row)| row)
    }

    /// The most recently used container with that mark.
    pub(super) fn last_let_go(&self, function: FunctionIndex) -> Option<u32> {
        self.let_go_of(function).min().map(|(_, row)| row)
    }

    fn let_go_of(&self, function: FunctionIndex) -> impl Iterator<Item = (Reverse<u64>, u32)> {
        let row = &self.functions[function.get()];
        let idle = (row.let_go > 0)
            .then(|| row.idle.iter())
            .into_iter()
            .flatten();
        idle.filter(|(_, row)| self.containers.get(*row).let_go)
    }
}
