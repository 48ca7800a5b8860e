//! How a job goes on: one total function from a state and an event to the next state, or to the finding that the event is past.
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
//! What is told of an attempt counts only while that attempt runs. So whatever is lost, doubled or late, a job has one final state, and it is
//! left only by whoever redrives it. The store changes a job only from the exact course that the step was computed from.

use crate::unit::{DurationMs, Timestamp};

use super::retry::RetryPolicy;
use super::state::JobState;

/// Where a job stands in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// The state.
    pub state: JobState,
    /// Attempts so far; while running, the number of the one that runs.
    pub attempt: u32,
    /// Attempts that began and did not end well, since the last time it was submitted or redriven.
    pub failures: u32,
    /// Attempts in a row that could not begin.
    pub misses: u32,
    /// Not to be claimed before.
    pub due_at: Timestamp,
    /// Too old from then on.
    pub expires_at: Timestamp,
    /// While running: when the attempt counts as lost unless its dispatcher says otherwise.
    pub lease_until: Option<Timestamp>,
}

/// The rules for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How it is tried again.
    pub retry: RetryPolicy,
    /// Whether an attempt that was cut short may be repeated.
    pub idempotent: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The app answered well.
    Succeeded,
    /// The app refused it, and would again.
    Refused,
    /// It certainly never reached a function.
    NeverBegun,
    /// It may have run, as a whole or in part.
    CutShort,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The broker is responsible for the job's ticket, or has delivered it.
    Confirmed,
    /// A dispatcher takes it until then.
    Claimed {
        /// The end of the lease.
        lease_until: Timestamp,
    },
    /// An attempt ended.
    Ended {
        /// Which.
        attempt: u32,
        /// How.
        ending: Ending,
    },
    /// An attempt's dispatcher has not been heard of for as long as its lease.
    LeaseLost {
        /// Which.
        attempt: u32,
    },
    /// Time has passed.
    Looked,
    /// The owner does not want it any more.
    Cancelled,
    /// The owner wants it again.
    Redriven {
        /// When it is too old this time.
        expires_at: Timestamp,
    },
}

/// What an event does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The job goes on so.
    To(Course),
    /// Nothing: it is of an attempt or a state that is past.
    Stale,
}

impl Course {
    /// A job that was written down.
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

    /// What `event` does at `now`; `jitter` from 0 to 1 shortens pauses.
    #[must_use]
    pub fn step(&self, terms: &Terms, event: Event, now: Timestamp, jitter: f64) -> Step {
        match (self.state, event) {
            (JobState::Submitted, Event::Confirmed) => self.to(JobState::Queued),
            (JobState::Submitted | JobState::Queued | JobState::Running, Event::Cancelled) => {
                self.to(JobState::Cancelled)
            }
            (JobState::Queued, Event::Claimed { .. } | Event::Looked) if now >= self.expires_at => {
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
                self.ended(terms, ending, now, jitter)
            }
            (JobState::Running, Event::LeaseLost { attempt })
                if attempt == self.attempt && self.lease_until.is_none_or(|end| end <= now) =>
            {
                self.ended(terms, Ending::CutShort, now, jitter)
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
                | Event::Looked
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

    fn ended(&self, terms: &Terms, ending: Ending, now: Timestamp, jitter: f64) -> Step {
        match ending {
            Ending::Succeeded => self.to(JobState::Succeeded),
            Ending::Refused => self.to(JobState::Failed),
            Ending::NeverBegun => {
                let misses = self.misses.saturating_add(1);
                let due_at = after(now, terms.retry.pause(misses, jitter));
                if due_at >= self.expires_at {
                    return self.to(JobState::Dropped);
                }
                self.again(due_at, self.failures, misses)
            }
            Ending::CutShort if !terms.idempotent => self.to(JobState::Failed),
            Ending::CutShort => {
                let failures = self.failures.saturating_add(1);
                let due_at = after(now, terms.retry.pause(failures, jitter));
                if failures >= terms.retry.attempts || due_at >= self.expires_at {
                    return Step::To(Self {
                        state: JobState::Dead,
                        failures,
                        lease_until: None,
                        ..self.clone()
                    });
                }
                self.again(due_at, failures, 0)
            }
        }
    }

    fn again(&self, due_at: Timestamp, failures: u32, misses: u32) -> Step {
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

fn after(now: Timestamp, pause: DurationMs) -> Timestamp {
    Timestamp(now.get().saturating_add(pause.as_millis()))
}

#[cfg(test)]
mod tests;
