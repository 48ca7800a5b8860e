//! The state machine of a job: a total function from a state and an event to the next state, or to the finding that the event is stale.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | submitted | confirmed | queued |
//! | submitted, queued | cancelled | cancelled |
//! | queued | claimed in time | running, the attempt counts up |
//! | queued | claimed late, too old | dropped |
//! | running | attempt ended well | succeeded |
//! | running | attempt refused | failed |
//! | running | attempt never begun | queued after a pause, until it is too old; then dropped |
//! | running | attempt cut short, or lease lost; may be repeated | queued after a pause; after the last failure, dead |
//! | running | the same; may not be repeated | failed |
//! | running | cancelled | cancelled |
//! | dead, dropped, failed | redriven | queued, failures forgotten |
//! | all others | | nothing: the event is stale |
//!
//! Reports about an attempt count only while that attempt runs. So whatever is lost, duplicated or late, a job has one final state, which
//! only a redrive leaves. The store changes a job only from exactly the state from which the step was computed.

use crate::unit::{DurationMs, Timestamp};

use super::retry::RetryPolicy;
use super::state::JobState;

/// The complete state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// The state that users see.
    pub state: JobState,
    /// The number of attempts so far; while running, the number of the present one.
    pub attempt: u32,
    /// The number of attempts that were cut short and may be repeated, since the job was last submitted or redriven.
    pub failures: u32,
    /// The number of consecutive attempts that could not begin.
    pub misses: u32,
    /// The job must not be claimed before this time.
    pub due_at: Timestamp,
    /// From this time on the job is too old to be started.
    pub expires_at: Timestamp,
    /// While running: when the attempt counts as lost unless its dispatcher renews the lease; otherwise `None`.
    pub lease_until: Option<Timestamp>,
}

/// The rules for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRules {
    /// How often and after which pauses it is retried.
    pub retry: RetryPolicy,
    /// Whether an attempt that was cut short may be repeated.
    pub idempotent: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The app answered successfully.
    Succeeded,
    /// The app refused it, and would refuse it again.
    Refused,
    /// It certainly did not reach a function.
    NeverBegun,
    /// It may have run, completely or in part.
    CutShort,
}

/// An event in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The broker has confirmed the job's ticket, or delivered it.
    Confirmed,
    /// A dispatcher claims the job.
    Claimed {
        /// The end of the dispatcher's lease.
        lease_until: Timestamp,
    },
    /// An attempt has ended.
    Ended {
        /// The number of the attempt.
        attempt: u32,
        /// How it ended.
        ending: AttemptResult,
    },
    /// An attempt's lease has expired without a word from its dispatcher.
    LeaseLost {
        /// The number of the attempt.
        attempt: u32,
    },
    /// Time has passed: checks whether the job is too old.
    Tick,
    /// The owner cancels the job.
    Cancelled,
    /// The owner redrives the job.
    Redriven {
        /// The new time from which it is too old.
        expires_at: Timestamp,
    },
}

/// The effect of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The job's new progress.
    To(JobProgress),
    /// None: the event concerns an outdated attempt or state.
    Stale,
}

impl JobProgress {
    /// The progress of a job that was just stored.
    #[must_use]
    pub const fn submitted(due_at: Timestamp, expires_at: Timestamp) -> Self {
        Self {
            state: JobState::Submitted,
            attempt: 0,
            failures: 0,
            misses: 0,
            due_at,
            expires_at,
            lease_until: None,
        }
    }

    /// The effect of `event` at `now`; `jitter` from 0 to 1 shortens retry pauses.
    #[must_use]
    pub fn step(&self, rules: &JobRules, event: Event, now: Timestamp, jitter: f64) -> Step {
        match (self.state, event) {
            (JobState::Submitted, Event::Confirmed) => self.to(JobState::Queued),
            (JobState::Submitted | JobState::Queued | JobState::Running, Event::Cancelled) => {
                self.to(JobState::Cancelled)
            }
            (JobState::Queued, Event::Claimed { .. } | Event::Tick) if now >= self.expires_at => {
                self.to(JobState::Dropped)
            }
            (JobState::Queued, Event::Claimed { lease_until }) if now >= self.due_at => {
                Step::To(Self {
                    state: JobState::Running,
                    attempt: self.attempt.saturating_add(1),
                    lease_until: Some(lease_until),
                    ..self.clone()
                })
            }
            (JobState::Running, Event::Ended { attempt, ending }) if attempt == self.attempt => {
                self.after_attempt(rules, ending, now, jitter)
            }
            (JobState::Running, Event::LeaseLost { attempt })
                if attempt == self.attempt && self.lease_until.is_none_or(|end| end <= now) =>
            {
                self.after_attempt(rules, AttemptResult::CutShort, now, jitter)
            }
            (
                JobState::Dead | JobState::Dropped | JobState::Failed,
                Event::Redriven { expires_at },
            ) => Step::To(Self {
                state: JobState::Queued,
                failures: 0,
                misses: 0,
                due_at: now,
                expires_at,
                ..self.clone()
            }),
            (
                JobState::Submitted
                | JobState::Queued
                | JobState::Running
                | JobState::Succeeded
                | JobState::Failed
                | JobState::Cancelled
                | JobState::Dropped
                | JobState::Dead,
                Event::Confirmed
                | Event::Claimed { .. }
                | Event::Ended { .. }
                | Event::LeaseLost { .. }
                | Event::Tick
                | Event::Cancelled
                | Event::Redriven { .. },
            ) => Step::Stale,
        }
    }

    fn to(&self, state: JobState) -> Step {
        Step::To(Self {
            state,
            lease_until: None,
            ..self.clone()
        })
    }

    fn after_attempt(
        &self,
        rules: &JobRules,
        ending: AttemptResult,
        now: Timestamp,
        jitter: f64,
    ) -> Step {
        match ending {
            AttemptResult::Succeeded => self.to(JobState::Succeeded),
            AttemptResult::Refused => self.to(JobState::Failed),
            AttemptResult::NeverBegun => {
                let misses = self.misses.saturating_add(1);
                let due_at = add_pause(now, rules.retry.pause(misses, jitter));
                if due_at >= self.expires_at {
                    return self.to(JobState::Dropped);
                }
                self.requeue(due_at, self.failures, misses)
            }
            AttemptResult::CutShort if !rules.idempotent => self.to(JobState::Failed),
            AttemptResult::CutShort => {
                let failures = self.failures.saturating_add(1);
                let due_at = add_pause(now, rules.retry.pause(failures, jitter));
                if failures >= rules.retry.attempts || due_at >= self.expires_at {
                    return Step::To(Self {
                        state: JobState::Dead,
                        failures,
                        lease_until: None,
                        ..self.clone()
                    });
                }
                self.requeue(due_at, failures, 0)
            }
        }
    }

    fn requeue(&self, due_at: Timestamp, failures: u32, misses: u32) -> Step {
        Step::To(Self {
            state: JobState::Queued,
            failures,
            misses,
            due_at,
            lease_until: None,
            ..self.clone()
        })
    }
}

fn add_pause(now: Timestamp, pause: DurationMs) -> Timestamp {
    Timestamp(now.get().saturating_add(pause.as_millis()))
}

#[cfg(test)]
mod tests;
