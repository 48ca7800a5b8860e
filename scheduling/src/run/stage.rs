//! One stage of a run: its state, and the consequence of a failed attempt.

use core::time::Duration;

use fdn_core::ClusterId;

use super::StagePlan;

/// The outcome of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has produced an output.
    Done,
    /// Its last attempt failed, and it is not retried.
    Failed,
    /// Its condition did not hold.
    Skipped,
}

impl Settled {
    /// The name used in headers and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// What is known of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The cluster could not be reached or refused the call: the function certainly did not begin.
    NotStarted,
    /// The cluster was lost or the attempt timed out: nobody knows whether the function ran.
    Lost,
    /// The function ran, and failed in a way that may be transient.
    Answered,
    /// The function ran, and would fail in the same way again.
    Refused,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is known of it.
    pub kind: FailureKind,
    /// The reason in words.
    pub reason: String,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its parents.
    Waiting,
    /// An attempt is in progress.
    Running { deadline: Duration },
    /// Waits for the next attempt.
    Paused { until: Duration },
    /// Has ended.
    Settled(Settled),
}

#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) plan: StagePlan,
    pub(super) children: Vec<usize>,
    pub(super) state: State,
    pub(super) attempts: u32,
    /// Whether its output was discarded.
    pub(super) forgotten: bool,
    pub(super) failure: Option<Failure>,
    /// The index of the cluster of the present or next attempt.
    at: usize,
    /// How many clusters can still be tried without using up a retry.
    moves: usize,
    repeated: u32,
}

impl Stage {
    pub(super) fn new(plan: StagePlan, children: Vec<usize>) -> Self {
        Self {
            moves: plan.clusters.len().saturating_sub(1),
            plan,
            children,
            state: State::Waiting,
            attempts: 0,
            forgotten: false,
            failure: None,
            at: 0,
            repeated: 0,
        }
    }

    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.state, State::Settled(_))
    }

    pub(super) fn cluster(&self) -> &ClusterId {
        &self.plan.clusters[self.at]
    }

    /// When the next attempt after a failed one is made; `None` if there is none.
    pub(super) fn after(&mut self, failure: &Failure, now: Duration) -> Option<Duration> {
        let (is_safe, of_cluster) = match failure.kind {
            FailureKind::NotStarted => (true, true),
            FailureKind::Lost => (self.plan.idempotent, true),
            FailureKind::Answered => (self.plan.idempotent, false),
            FailureKind::Refused => (false, false),
        };
        if !is_safe {
            return None;
        }
        if of_cluster {
            self.at = (self.at + 1) % self.plan.clusters.len();
            if self.moves > 0 {
                self.moves -= 1;
                return Some(now);
            }
        }
        if self.repeated >= self.plan.retries {
            return None;
        }
        let pause = self.plan.backoff.saturating_mul(1 << self.repeated.min(16));
        self.repeated += 1;
        Some(now.saturating_add(pause))
    }
}
