//! What a pre-scheduler hands to the committer.

use fdn_core::{InstanceId, Resources};

use super::record::{NodeIndex, Version};
use super::score::Score;

/// A container that is to run somewhere: one instance of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id, never used for another.
    pub id: InstanceId,
    /// What it takes of a node.
    pub demand: Resources,
}

/// One attempt to place one container. A list is good for the attempt it was made for and for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) attempt: u64,
}

impl Ticket {
    /// Of no container.
    pub(super) const NONE: Self = Self {
        slot: u32::MAX,
        attempt: 0,
    };
}

/// A container that a pre-scheduler has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The attempt.
    pub ticket: Ticket,
    /// The container.
    pub container: Container,
}

/// What a pre-scheduler must know of a container or task that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The attempt.
    pub ticket: Ticket,
    /// What it takes of a node.
    pub demand: Resources,
}

impl From<&Assignment> for Wanted {
    fn from(assignment: &Assignment) -> Self {
        Self {
            ticket: assignment.ticket,
            demand: assignment.container.demand,
        }
    }
}

/// A node that had room when the pre-scheduler looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node.
    pub node: NodeIndex,
    /// Its version then.
    pub version: Version,
    /// Its score then.
    pub score: Score,
}

/// The best nodes for a container, best first: list 1. A buffer that serves list after list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The attempt that it is for.
    pub ticket: Ticket,
    /// The nodes; none if no node had room.
    pub entries: Vec<Entry>,
}

impl Default for List {
    fn default() -> Self {
        Self {
            ticket: Ticket::NONE,
            entries: Vec::new(),
        }
    }
}
