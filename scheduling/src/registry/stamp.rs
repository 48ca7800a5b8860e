//! How old what a node says is.

use fdn_core::Resources;

/// When a node said something: its start, and what it had said before since then. Later is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Larger with every start of the node, such as the time of the start.
    pub epoch: u64,
    /// Counts the node's changes since its start, whichever of its instances they concern.
    pub sequence: u64,
}

impl Stamp {
    /// This change of this start.
    #[must_use]
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// What it has.
    pub capacity: Resources,
    /// What is used of it.
    pub used: Resources,
    /// Whether it takes nothing new.
    pub draining: bool,
}

/// Whether something was news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was, and is held now.
    Taken,
    /// What is held is as new, or newer.
    Stale,
}
