//! The settings of online placement: choice of cluster, order of queues, data transfer, bounds.

use fdn_core::Millis;

use crate::place::Hold;

/// The cluster to which a container is bound once its parents are done; ties go to the smaller index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one with the earliest expected finish, counting the unfinished work bound there.
    #[default]
    EarliestFinish,
    /// Each in turn, regardless of speed and queues.
    RoundRobin,
    /// The one with the least queued work, `sum(delta) / theta`.
    LeastQueued,
    /// The nearest to the user with the resources free; if none has, the nearest that could ever have them.
    Nearest,
}

/// The order in which containers of a cluster's queue start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By entry into the queue.
    Arrival,
    /// By arrival of the job; within a job, the highest score first (formula 6).
    #[default]
    JobArrival,
    /// The job with the least remaining work first; within a job, the highest score first.
    LeastWork,
    /// The largest work first, ties by entry into the queue.
    LargestTask,
    /// The longest remaining run time first, ties by entry into the queue. Pre-emptive: at every event of the cluster, a queued
    /// container with longer to run than a running one takes its slot; the other keeps its progress and its resources.
    LongestRemaining,
}

impl Order {
    /// Whether containers of one job are ordered by their score.
    pub(super) const fn by_score(self) -> bool {
        matches!(self, Self::JobArrival | Self::LeastWork)
    }
}

/// When data is sent to a child's cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// When the parent is done, as formula (3) assumes: outputs are sent to every cluster at once, wherever they will be needed.
    #[default]
    Pushed,
    /// When the child is bound, since only then is it known where the data is needed.
    Pulled,
}

/// Jobs that have waited too long go first, for a bounded share of the work.
///
/// A job that arrived more than `after` ago may be served out of order, the oldest first. Each cluster earns a credit of `share` times
/// the work it starts, and serves out of order only while its credit is positive; one container may overdraw it. So over any period at
/// most `share` of the work, plus the earlier credit and one container, goes out of order, and the oldest job progresses as long as
/// anything does. The credit is capped at what a fully busy period of `after` earns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starvation {
    after: Millis,
    share: f64,
}

impl Starvation {
    /// A rule with `after` not negative and `share` from 0 to 1; `None` otherwise.
    #[must_use]
    pub fn new(after: Millis, share: f64) -> Option<Self> {
        let good = after >= Millis::ZERO && (0.0..=1.0).contains(&share);
        good.then_some(Self { after, share })
    }

    /// How long a job waits before it may go first.
    #[must_use]
    pub const fn after(&self) -> Millis {
        self.after
    }

    /// The share of the work that may go out of order, from 0 to 1.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.share
    }
}

/// Bounds on the jobs in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most jobs in progress; one more is refused.
    pub jobs: usize,
    /// The most tasks of all jobs in progress; a job that would exceed it is refused.
    pub tasks: usize,
}

impl Default for Limits {
    /// 10 000 jobs, 2^20 tasks: about 100 MB.
    fn default() -> Self {
        Self {
            jobs: 10_000,
            tasks: 1 << 20,
        }
    }
}

/// The settings of online placement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// To which cluster a container is bound.
    pub choice: Choice,
    /// In which order the containers of a queue start.
    pub order: Order,
    /// How long a container holds its resources.
    pub hold: Hold,
    /// Whether the way back to the user counts when [`Choice::EarliestFinish`] chooses for an exit.
    pub exit_leg: bool,
    /// When data is sent to a child's cluster.
    pub delivery: Delivery,
    /// The guard against starvation; `None` turns it off.
    pub starvation: Option<Starvation>,
    /// Bounds on the jobs in progress.
    pub limits: Limits,
}

impl Settings {
    /// First come, first served: clusters in turn, queues in order of entry.
    #[must_use]
    pub fn fcfs() -> Self {
        Self::of(Choice::RoundRobin, Order::Arrival)
    }

    /// The largest container first, on the cluster with the least queued work.
    #[must_use]
    pub fn priority() -> Self {
        Self::of(Choice::LeastQueued, Order::LargestTask)
    }

    /// The nearest cluster with resources, queues in order of entry.
    #[must_use]
    pub fn distance() -> Self {
        Self::of(Choice::Nearest, Order::Arrival)
    }

    /// Longest remaining time first, pre-emptive; clusters by expected finish.
    #[must_use]
    pub fn lrtf() -> Self {
        Self::of(Choice::EarliestFinish, Order::LongestRemaining)
    }

    /// Late binding, jobs in order of arrival.
    #[must_use]
    pub fn late_fifo() -> Self {
        Self::of(Choice::EarliestFinish, Order::JobArrival)
    }

    /// Late binding, the job with the least remaining work first.
    #[must_use]
    pub fn late_least_work() -> Self {
        Self::of(Choice::EarliestFinish, Order::LeastWork)
    }

    fn of(choice: Choice, order: Order) -> Self {
        Self {
            choice,
            order,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_share() {
        let make = |after, share| Starvation::new(Millis::new(after), share);
        assert!(make(0.0, 0.0).is_some() && make(f64::INFINITY, 1.0).is_some());
        for (after, share) in [(-1.0, 0.1), (1.0, -0.1), (1.0, 1.1), (1.0, f64::NAN)] {
            assert_eq!(make(after, share), None);
        }
    }
}
