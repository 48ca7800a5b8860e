//! A node of a cluster, by its place.

use std::fmt;

/// A node, by its place among the nodes of its cluster.
///
/// Every scheduler in a cluster means the same node by the same place. Where nodes come and go, a lost node's place is given to a
/// later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The node at this place.
    #[must_use]
    pub const fn new(place: u32) -> Self {
        Self(place)
    }

    /// The place, as an index into a list of all nodes.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}
