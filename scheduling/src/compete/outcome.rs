//! What a pass decides about a demand, and why.

use fdn_core::Millis;

use crate::place::{ClusterIndex, Exclusion};

/// The decision about a group, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It had no cluster and gets one.
    First,
    /// It stays: no other placement is better.
    StillBest,
    /// It stays: another placement is better, but not by more than the margin.
    WithinMargin,
    /// It moves for a gain.
    Better,
    /// It would move for a gain, but the bound on moves is reached or its dwell time not over; it is considered again in the next pass.
    Deferred,
    /// It moves because its old cluster cannot take it any more, for this reason.
    Failed(Exclusion),
    /// No cluster can take it; it stays where it was, if anywhere.
    Unplaced,
}

impl Verdict {
    /// Whether the group's users are sent to new clusters.
    #[must_use]
    pub const fn moves(self) -> bool {
        match self {
            Self::First | Self::Better | Self::Failed(_) => true,
            Self::StillBest | Self::WithinMargin | Self::Deferred | Self::Unplaced => false,
        }
    }
}

/// The decision about one demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was decided, and why.
    pub verdict: Verdict,
    /// The cluster of each task as given to the DAG; empty if no cluster can take the demand.
    pub clusters: Vec<ClusterIndex>,
    /// The latency of a call there, including expected waits but no toll; for a deferred demand, at its present clusters. Infinite if unplaced.
    pub latency: Millis,
}
