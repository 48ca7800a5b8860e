//! When an instance that failed is replaced, and when its deployment counts as degraded. Pure: time and chance are arguments.
//!
//! One [`Supervisor`] for each deployment (a function version on a node). Whoever starts instances asks it before each start
//! and tells it what became of them. Rules:
//! - what had run well for [`Settings::stable_after`] is replaced at once, however it ended: a crash a day needs no pause;
//! - failures in a row are answered with pauses that double, from [`Settings::first_pause`] to [`Settings::longest_pause`], each
//!   shortened by up to half at random so that many nodes do not try in step. The first failure costs no pause;
//! - failures of instances that were ordered before the last counted failure are one wave and count once: `kill -9` of twenty
//!   instances is one event, not twenty reasons to wait;
//! - what can never succeed (an image for another processor) is tried again only at the longest pause;
//! - the deployment is degraded, with the reason and the last lines, from a counted failure until an instance that was ordered
//!   after it has been ready for [`Settings::stable_after`].

use std::collections::BTreeMap;
use std::time::Duration;

use fdn_core::{Coded, ErrorCode, InstanceId, Retry, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::StartError;
use crate::log::LogLine;
use crate::state::{Exit, ExitReason};

/// How patient a supervisor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The pause after the second failure in a row.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
    /// An instance that was ready for so long runs well.
    pub stable_after: Duration,
    /// Lines kept of the last failure.
    pub lines: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(60),
            stable_after: Duration::from_secs(30),
            lines: 20,
        }
    }
}

/// Why an instance did not start or did not last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In words, for people.
    pub reason: String,
    /// The stable code.
    pub code: ErrorCode,
    /// The last lines that it wrote, oldest first.
    pub log: Vec<LogLine>,
}

impl Failure {
    /// A start that failed.
    #[must_use]
    pub fn of_start(error: &StartError) -> Self {
        let reason = match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        Self {
            reason,
            code: error.code(),
            log: error.log().to_vec(),
        }
    }

    /// An instance that ended without having been told to.
    #[must_use]
    pub fn of_end(exit: &Exit, log: Vec<LogLine>) -> Self {
        let code = match exit.reason {
            ExitReason::OutOfMemory => ErrorCode::FunctionMemoryLimit,
            ExitReason::Ended | ExitReason::Stopped | ExitReason::Lost => ErrorCode::InstanceLost,
        };
        Self {
            reason: format!("an instance ended: {exit}"),
            code,
            log,
        }
    }

    /// An instance that no longer answers.
    #[must_use]
    pub fn of_silence(reason: &str, log: Vec<LogLine>) -> Self {
        Self {
            reason: format!("an instance stopped answering: {reason}"),
            code: ErrorCode::InstanceLost,
            log,
        }
    }
}

/// Why a deployment is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// The last failure.
    pub failure: Failure,
    /// When the first failure in this row happened.
    pub since: Timestamp,
    /// Failures in a row, waves counted once.
    pub failures: u32,
    /// No start before this.
    pub next_start: Timestamp,
}

/// One instance as the supervisor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    ordered: u64,
    ready: Option<Timestamp>,
}

/// Decides about the replacements of one deployment.
#[derive(Clone, Debug)]
pub struct Supervisor {
    settings: Settings,
    watched: BTreeMap<InstanceId, Watched>,
    /// Counts orders, to tell what was ordered before a failure from what came after.
    orders: u64,
    /// The count of orders at the last counted failure.
    failed_at: u64,
    degraded: Option<Degraded>,
}

impl Supervisor {
    /// A supervisor of a deployment that has not failed yet.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            watched: BTreeMap::new(),
            orders: 0,
            failed_at: 0,
            degraded: None,
        }
    }

    /// Whether an instance may be started now.
    ///
    /// # Errors
    /// The time from which it may.
    pub fn may_start(&self, now: Timestamp) -> Result<(), Timestamp> {
        match &self.degraded {
            Some(degraded) if now < degraded.next_start => Err(degraded.next_start),
            _ => Ok(()),
        }
    }

    /// A start was ordered.
    pub fn ordered(&mut self, id: InstanceId) {
        self.orders += 1;
        let watched = Watched {
            ordered: self.orders,
            ready: None,
        };
        self.watched.insert(id, watched);
    }

    /// An instance answers: it was started, or adopted, or answers again.
    pub fn ready(&mut self, id: InstanceId, now: Timestamp) {
        let ordered = self.orders;
        let watched = self.watched.entry(id).or_insert(Watched {
            ordered,
            ready: None,
        });
        watched.ready.get_or_insert(now);
    }

    /// An instance was stopped on purpose; that is no failure.
    pub fn stopped(&mut self, id: InstanceId) {
        self.watched.remove(&id);
    }

    /// An instance failed: it did not start, ended by itself, or no longer answers. It is forgotten; whoever holds it stops
    /// it if it still runs. `chance` is from 0 to 1, any value otherwise counts as the nearer of the two.
    pub fn failed(&mut self, id: InstanceId, failure: Failure, now: Timestamp, chance: f64) {
        self.settle(now);
        let watched = self.watched.remove(&id);
        let ran_well = watched
            .and_then(|w| w.ready)
            .is_some_and(|ready| now.since(ready) >= self.settings.stable_after);
        let of_a_wave = watched.is_some_and(|w| w.ordered <= self.failed_at);
        let mut failure = failure;
        let surplus = failure.log.len().saturating_sub(self.settings.lines);
        failure.log.drain(..surplus);
        if ran_well {
            return;
        }
        if of_a_wave {
            if let Some(degraded) = &mut self.degraded {
                degraded.failure = failure;
            }
            return;
        }
        let (since, before) = self
            .degraded
            .as_ref()
            .map_or((now, 0), |d| (d.since, d.failures));
        let failures = before.saturating_add(1);
        let pause = self.pause(failures, failure.code.retry(), chance);
        self.failed_at = self.orders;
        self.degraded = Some(Degraded {
            failure,
            since,
            failures,
            next_start: later(now, pause),
        });
    }

    /// What is wrong with the deployment, if anything.
    #[must_use]
    pub fn degraded(&mut self, now: Timestamp) -> Option<&Degraded> {
        self.settle(now);
        self.degraded.as_ref()
    }

    /// Forgets the failures once an instance that was ordered after them runs well.
    fn settle(&mut self, now: Timestamp) {
        let recovered = self.watched.values().any(|w| {
            w.ordered > self.failed_at
                && w.ready
                    .is_some_and(|ready| now.since(ready) >= self.settings.stable_after)
        });
        if recovered {
            self.degraded = None;
        }
    }

    fn pause(&self, failures: u32, retry: Retry, chance: f64) -> Duration {
        let whole = match (failures, retry) {
            (_, Retry::Never) => self.settings.longest_pause,
            (0 | 1, Retry::Later) => return Duration::ZERO,
            (n, Retry::Later) => {
                let doubled = 1u32.checked_shl(n - 2).unwrap_or(u32::MAX);
                self.settings.first_pause.saturating_mul(doubled)
            }
        };
        let share = 1.0 - chance.clamp(0.0, 1.0) / 2.0;
        whole.min(self.settings.longest_pause).mul_f64(share)
    }
}

/// `now` and a pause, in whole milliseconds, never shorter than the pause.
fn later(now: Timestamp, pause: Duration) -> Timestamp {
    let millis = pause.as_nanos().div_ceil(1_000_000);
    Timestamp(
        now.0
            .saturating_add(u64::try_from(millis).unwrap_or(u64::MAX)),
    )
}

#[cfg(test)]
mod tests;
