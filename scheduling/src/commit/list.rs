//! The data that pre-schedulers and committer exchange.

use fdn_core::{InstanceId, Resources};

use super::record::{NodeIndex, Version};
use super::score::Score;

/// A container to be placed: one instance of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id, which is never reused.
    pub id: InstanceId,
    /// The resources it takes of a node.
    pub demand: Resources,
}

/// One attempt to place one container. A list is valid only for the attempt it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) attempt: u64,
}

impl Ticket {
    /// The ticket of no container.
    pub(super) const NONE: Self = Self {
        slot: u32::MAX,
        attempt: 0,
    };
}

/// A container handed to a pre-scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The attempt.
    pub ticket: Ticket,
    /// The container.
    pub container: Container,
}

/// What a pre-scheduler must know of a container or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The attempt.
    pub ticket: Ticket,
    /// The resources it takes of a node.
    pub demand: Resources,
}

impl From<&Assignment> for ListRequest {
    fn from(assignment: &Assignment) -> Self {
        Self {
            ticket: assignment.ticket,
            demand: assignment.container.demand,
        }
    }
}

/// A node that had room when the pre-scheduler read its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node.
    pub node: NodeIndex,
    /// The version of that record.
    pub version: Version,
    /// The score by that record.
    pub score: Score,
}

/// The best nodes for a container, best first: list 1. The buffer can be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The attempt it is for.
    pub ticket: Ticket,
    /// The nodes; empty if no node had room.
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
