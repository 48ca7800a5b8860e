//! A scaler beside the keep-alive policy: both decide on the same containers.
//!
//! **Problem.** A keep-alive policy knows when a function is likely invoked again, a scaler how many invocations come at once. Each
//! alone releases what the other would have kept.
//!
//! **Rule.** A container is kept while either wants it. What the keep-alive policy lets go, of a function that is scaled, stays until
//! the scaler says with its next decision that there are too many; what the scaler no longer wants stays while the policy keeps
//! it. Containers that the scaler wants are loaded for nobody yet, where memory is free, and only while no invocation waits
//! for memory: nothing is evicted for them. Evictions follow the keep-alive policy, whatever the scaler wants.
//!
//! **Readings.** An invocation whose container loads is one that waits: the container is there for the scaler, and pending. The
//! scaler need not know what the policy keeps: it goes by its own grace ([`crate::scale::Keep::Grace`]). Were it told, functions that
//! come and go would have their number swing with the policy's last container. A container that was loaded for the scaler is kept by
//! the policy as one that turns idle when it is ready.
//!
//! **Complexity.** [`Scheduler::standing`] O(1); [`Scheduler::scale`] O(idle containers of the function) for each one released, and
//! O(log N) for each one loaded.

use std::cmp::Reverse;

use fdn_core::Millis;

use super::container::State;
use super::event::{Action, Why};
use super::id::FunctionIndex;
use super::refusal::Refusal;
use super::scheduler::Scheduler;
use crate::scale::{Decision, Size};

/// How a function stands, as its scaler is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionState {
    /// Containers, loaded ones and those that load.
    pub size: Size,
    /// Invocations in execution.
    pub executing: u64,
    /// Invocations that wait, be it for a container that loads.
    pub queued: u64,
    /// Idle containers that the keep-alive policy keeps.
    pub kept: u32,
}

impl Scheduler {
    /// How a function stands; `None` of one that is not known.
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

    /// A scaler has decided on a function. From the first decision on, what the keep-alive policy lets go is released here.
    /// Returns how many containers are loaded; for the others no memory is free, or invocations wait for it.
    ///
    /// # Errors
    /// When the function is not known.
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
            self.release(row, Why::Expired, actions);
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

    /// The keep-alive policy no longer keeps an idle container.
    pub(super) fn let_go(&mut self, row: u32) {
        self.expiry.remove(row);
        let container = self.containers.get_mut(row);
        if !std::mem::replace(&mut container.let_go, true) {
            self.functions[container.function as usize].let_go += 1;
        }
    }

    /// A container that was let go is kept by the policy again, or no longer idle.
    pub(super) fn keep_again(&mut self, row: u32) {
        let container = self.containers.get_mut(row);
        if std::mem::take(&mut container.let_go) {
            self.functions[container.function as usize].let_go -= 1;
        }
    }

    /// The least recently used container that was let go.
    fn first_let_go(&self, function: FunctionIndex) -> Option<u32> {
        let used = self
            .let_go_of(function)
            .map(|(Reverse(used), row)| (used, row));
        used.min().map(|(_, row)| row)
    }

    /// The most recently used one.
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
