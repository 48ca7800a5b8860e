//! What can be chosen: cluster, order in the queues, how data travels, bounds.

use fdn_core::Millis;

use crate::place::Hold;

/// Which cluster a container goes to once its parents are done; ties go to the smaller cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one that is expected to finish it first, with the work counted that is bound there and not done.
    #[default]
    EarliestFinish,
    /// One after the other, blind to speed and queues.
    RoundRobin,
    /// The one with the least work queued, `sum(delta) / theta`.
    LeastQueued,
    /// The nearest to the user that has the resources free; if none has, the nearest that could ever have them.
    Nearest,
}

/// Which container of a cluster's queue starts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has been in the queue longest.
    Arrival,
    /// That of the job that arrived first; within a job the one with the highest score.
    #[default]
    JobArrival,
    /// That of the job with the least work left; within a job the one with the highest score.
    LeastWork,
    /// The one with most work, ties by time in the queue.
    LargestTask,
    /// The one with the longest time still to run, ties by time in the queue. Pre-emptive: whenever something happens at the
    /// cluster, a queued container with longer to run than a running one takes its slot; the other keeps its progress, and its
    /// resources.
    LongestRemaining,
}

impl Order {
    /// Whether containers of one job go by their score.
    pub(super) const fn by_score(self) -> bool {
        matches!(self, Self::JobArrival | Self::LeastWork)
    }
}

/// When data leaves for a child's cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// When the parent is done, as formula (3) has it: outputs are sent to every cluster at once, wherever they will be needed.
    #[default]
    Pushed,
    /// When the child is bound, because only then it is known where the data is needed.
    Pulled,
}

/// Jobs that have waited too long go first, for a bounded share of the work.
///
/// A job that arrived more than `after` ago may be served out of order, the oldest first. Each cluster saves up the share
/// of the work it starts, and serves out of order only while it has savings left; one container may overdraw them. So in
/// any span of time at most `share` of the work, what was saved before it and one container go out of order, and the
/// oldest job goes on as long as anything does. At most what `after` of full work brings in is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starvation {
    after: Millis,
    share: f64,
}

impl Starvation {
    /// `after` of zero or more, `share` from 0 to 1; `None` otherwise.
    #[must_use]
    pub fn new(after: Millis, share: f64) -> Option<Self> {
        let good = after >= Millis::ZERO && (0.0..=1.0).contains(&share);
        good.then_some(Self { after, share })
    }

    /// How long a job waits before it goes first.
    #[must_use]
    pub const fn after(&self) -> Millis {
        self.after
    }

    /// The share of the work that may go out of order.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.share
    }
}

/// How much may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that are not done; the next is refused.
    pub jobs: usize,
    /// Tasks of all of them together; a job with which there would be more is refused.
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

/// How jobs are served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Which cluster a container goes to.
    pub choice: Choice,
    /// Which container of a queue starts first.
    pub order: Order,
    /// How long a container holds its resources.
    pub hold: Hold,
    /// Whether the way back to the user counts when [`Choice::EarliestFinish`] chooses for an exit.
    pub exit_leg: bool,
    /// When data leaves for a child's cluster.
    pub delivery: Delivery,
    /// Whether jobs that wait too long go first.
    pub starvation: Option<Starvation>,
    /// How much may be under way.
    pub limits: Limits,
}

impl Settings {
    /// First come, first served: clusters one after the other, queues in order of entry.
    #[must_use]
    pub fn fcfs() -> Self {
        Self::of(Choice::RoundRobin, Order::Arrival)
    }

    /// The largest container first, on the cluster with the least work queued.
    #[must_use]
    pub fn priority() -> Self {
        Self::of(Choice::LeastQueued, Order::LargestTask)
    }

    /// The nearest cluster with room, queues in order of entry.
    #[must_use]
    pub fn distance() -> Self {
        Self::of(Choice::Nearest, Order::Arrival)
    }

    /// Longest remaining time first, pre-emptive; clusters by expected finish.
    #[must_use]
    pub fn lrtf() -> Self {
        Self::of(Choice::EarliestFinish, Order::LongestRemaining)
    }

    /// Late binding, jobs as they arrived.
    #[must_use]
    pub fn late_fifo() -> Self {
        Self::of(Choice::EarliestFinish, Order::JobArrival)
    }

    /// Late binding, the job with the least work left first.
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
