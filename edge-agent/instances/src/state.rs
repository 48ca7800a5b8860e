//! The state of an instance, as far as its runtime can see.
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
    /// It was started but has not answered yet.
    Starting,
    /// It answers.
    Ready,
    /// It keeps its memory but gets no CPU; calls fail with `NotSent` until it is resumed.
    Paused,
    /// It runs but did not answer the last checks; it may return to `Ready`.
    Unresponsive {
        /// The result of the last check.
        reason: String,
    },
    /// It has ended. This is final: a watch that shows it never changes again.
    Exited(Exit),
}

impl InstanceState {
    /// Whether calls can be passed to it now.
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
    /// The exit status of its first process, if the runtime knows it; 128 + n after signal n.
    pub code: Option<i64>,
    /// The reason.
    pub reason: ExitReason,
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Its process ended by itself, or was killed by something other than the agent.
    Ended,
    /// It exceeded its memory limit.
    OutOfMemory,
    /// The agent stopped it.
    Stopped,
    /// The engine no longer knows it: removed by somebody else, or its node is gone.
    Lost,
}

impl Exit {
    /// An end by itself with this status.
    #[must_use]
    pub const fn ended(code: i64) -> Self {
        Self {
            code: Some(code),
            reason: ExitReason::Ended,
        }
    }

    /// An end of which nothing is known.
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

/// The state of one instance, to be changed and watched. Guarantees that an end is final.
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

    /// Changes the state unless the instance has ended. `true` if it was changed.
    pub(crate) fn set(&self, next: InstanceState) -> bool {
        self.0.send_if_modified(|state| {
            let change = state.exit().is_none() && *state != next;
            if change {
                *state = next;
            }
            change
        })
    }

    /// Changes the state as the result of a health check, unless the instance is paused or has ended.
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
        // The sender is gone with the last handle: nothing more is known.
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
