//! What an instance is doing, as far as its runtime can see.
//!
//! ```text
//! Starting ──ready──▶ Ready ◀──resume / pause──▶ Paused
//!     │                │  ▲                         │
//!     │        no answer  answers                   │
//!     │                ▼  │                         │
//!     │            Unresponsive                     │
//!     └────────────────┴──────── end ───────────────┴──▶ Exited (for ever)
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The state of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It was started and has not answered yet.
    Starting,
    /// It answers.
    Ready,
    /// It holds its memory and gets no CPU; calls fail with `NotSent` until it is resumed.
    Paused,
    /// It runs but did not answer the last checks; it may come back to `Ready`.
    Unresponsive {
        /// What the last check met.
        reason: String,
    },
    /// It has ended. The last state: a watch that shows it never changes again.
    Exited(Exit),
}

impl InstanceState {
    /// Whether calls can be handed to it now.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Exited(exit) => Some(exit),
            Self::Starting | Self::Ready | Self::Paused | Self::Unresponsive { .. } => None,
        }
    }
}

/// The end of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit status of its first process, where the runtime knows one; 128 + n after signal n.
    pub code: Option<i64>,
    /// Why.
    pub reason: ExitReason,
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Its process ended by itself, or was killed by something else than us.
    Ended,
    /// It passed its memory limit.
    OutOfMemory,
    /// We stopped it.
    Stopped,
    /// The engine no longer knows it: removed behind our back, or its node is gone.
    Lost,
}

impl Exit {
    /// Ended by itself with this status.
    #[must_use]
    pub const fn ended(code: i64) -> Self {
        Self {
            code: Some(code),
            reason: ExitReason::Ended,
        }
    }

    /// Gone, and nobody knows how.
    #[must_use]
    pub const fn lost() -> Self {
        Self {
            code: None,
            reason: ExitReason::Lost,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            ExitReason::Ended => f.write_str("it ended by itself")?,
            ExitReason::OutOfMemory => f.write_str("it passed its memory limit and was killed")?,
            ExitReason::Stopped => f.write_str("it was stopped")?,
            ExitReason::Lost => f.write_str("the engine no longer knows it")?,
        }
        match self.code {
            Some(code @ 129..=159) => write!(f, " (status {code}: signal {})", code - 128),
            Some(code) => write!(f, " (status {code})"),
            None => Ok(()),
        }
    }
}

/// The state of one instance, to change and to watch. Keeps the promise that an end is for ever.
#[derive(Debug)]
pub(crate) struct StateCell(watch::Sender<InstanceState>);

impl StateCell {
    pub(crate) fn new(state: InstanceState) -> Self {
        Self(watch::Sender::new(state))
    }

    pub(crate) fn get(&self) -> InstanceState {
        self.0.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<InstanceState> {
        self.0.subscribe()
    }

    /// Changes the state unless it has ended. True when it was changed.
    pub(crate) fn set(&self, next: InstanceState) -> bool {
        self.0.send_if_modified(|state| {
            let change = state.exit().is_none() && *state != next;
            if change {
                *state = next;
            }
            change
        })
    }

    /// Changes the state from one of two to another, as a check of its health does: not a paused one, not one that has ended.
    pub(crate) fn set_health(&self, next: InstanceState) {
        self.0.send_if_modified(|state| {
            let live = matches!(
                state,
                InstanceState::Ready | InstanceState::Unresponsive { .. } | InstanceState::Starting
            );
            let change = live && *state != next;
            if change {
                *state = next;
            }
            change
        });
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> Exit {
        ended(self.watch()).await
    }
}

/// Waits for the end of an instance.
pub(crate) async fn ended(mut state: watch::Receiver<InstanceState>) -> Exit {
    match state.wait_for(|state| state.exit().is_some()).await {
        Ok(state) => state.exit().cloned().unwrap_or_else(Exit::lost),
        // The sender is gone with the last handle: nobody knows more.
        Err(_) => Exit::lost(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reads_as_a_sentence() {
        assert_eq!(
            Exit::ended(137).to_string(),
            "it ended by itself (status 137: signal 9)"
        );
        assert_eq!(Exit::lost().to_string(), "the engine no longer knows it");
        assert!(InstanceState::Exited(Exit::ended(0)).exit().is_some());
        assert!(!InstanceState::Paused.is_ready());
    }
}
