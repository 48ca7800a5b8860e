//! Links that are cut on purpose, in tests of partitions: nothing passes in either direction, although they look alive.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fdn_core::NodeId;

/// The nodes from which this one is cut off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    any: AtomicBool,
    nodes: RwLock<BTreeSet<NodeId>>,
}

impl Cuts {
    /// Replaces the set of nodes.
    pub(crate) fn set(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
        let any = !nodes.is_empty();
        *self.0.nodes.write().unwrap_or_else(PoisonError::into_inner) = nodes;
        self.0.any.store(any, Ordering::Release);
    }

    /// Whether this node is cut off from that one.
    #[must_use]
    pub(crate) fn is_cut(&self, node: &NodeId) -> bool {
        self.0.any.load(Ordering::Acquire)
            && self
                .0
                .nodes
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(node)
    }
}
