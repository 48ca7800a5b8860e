//! The orders in which waiting invocations start: FuncSched, and its comparators.
//!
//! **Source.** The article on FuncSched, formula (10): `P(k) = (E(j) + D(j)*[W(j) = 0]) * R(j)`, smallest first; ties: the
//! earlier arrival of the head, then the smaller function id.

use std::cmp::Ordering;

use fdn_core::Millis;

use super::profile::Profile;

/// An order of waiting invocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest expected memory-time first, the cold start included if no container is warm: formula (10).
    #[default]
    FuncSched,
    /// First come, first served.
    Fcfs,
    /// Shortest profiled execution first.
    Sjf,
    /// Smallest memory first.
    Srf,
    /// Round robin: after a quantum of execution the invocation goes to the end of the queue if another waits.
    RoundRobin {
        /// The quantum, above zero.
        quantum: Millis,
    },
    /// Shortest remaining time first, by the profile: after each quantum of execution the invocation is pre-empted if another has less
    /// time left. Loading is not pre-empted.
    Srtf {
        /// The quantum, above zero.
        quantum: Millis,
    },
}

/// The quantum used in the article, 100 ms.
pub const QUANTUM: Millis = Millis::new(100.0);

impl Order {
    /// How long an invocation executes before another may pre-empt it; `None` for orders that run each to its end.
    #[must_use]
    pub const fn quantum(self) -> Option<Millis> {
        match self {
            Self::RoundRobin { quantum } | Self::Srtf { quantum } => Some(quantum),
            Self::FuncSched | Self::Fcfs | Self::Sjf | Self::Srf => None,
        }
    }

    /// The sort key of a function whose head is `head`; the smallest goes first.
    pub(super) fn key(self, profile: &Profile, warm: bool, head: &Head) -> Key {
        let rank = match self {
            Self::FuncSched => profile.memory_time(!warm),
            Self::Fcfs | Self::RoundRobin { .. } => head.turn as f64,
            Self::Sjf => profile.execution().get(),
            Self::Srf => profile.memory().get() as f64,
            Self::Srtf { .. } => left(profile, head.executed).get(),
        };
        Key {
            rank: Rank(rank),
            arrival: head.arrival,
        }
    }
}

/// The remaining execution time by the profile; zero once the invocation has run for longer.
pub(super) fn left(profile: &Profile, executed: Millis) -> Millis {
    (profile.execution() - executed).max(Millis::ZERO)
}

/// What an order uses of the first waiting invocation of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) arrival: Millis,
    /// Its sequence number in the queue; a pre-empted invocation is queued again with a new one.
    pub(super) turn: u64,
    pub(super) executed: Millis,
}

/// A floating-point number with a total order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rank(pub(super) f64);

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The sort key of a function with waiting invocations; the heap breaks ties by function id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    rank: Rank,
    arrival: Millis,
}
