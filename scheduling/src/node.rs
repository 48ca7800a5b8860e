//! Node indices.

use std::fmt;

/// The index of a node within its cluster.
///
/// All schedulers of a cluster use the same index for a node. When nodes come and go, a lost node's index is reused for a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The node with this index.
    #[must_use]
    pub const fn new(place: u32) -> Self {
        Self(place)
    }

    /// The index, for lists of all nodes.
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
