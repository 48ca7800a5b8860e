//! The attempts that a dispatcher has running, by node. A node's status counts those that it knew of, and the dispatcher knows those that it has
//! started or ended since.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::enrol::NodeIdentity;

use super::plan::{NetworkSnapshot, NodeSlots};

/// The attempts of this dispatcher at each node: a status of one node says nothing of what others have noticed.
#[derive(Clone, Debug, Default)]
pub struct OwnAttempts {
    nodes: BTreeMap<NodeIdentity, AtNode>,
}

/// The attempts at one node.
#[derive(Clone, Copy, Debug, Default)]
struct AtNode {
    /// Those running now.
    running: u64,
    /// The sequence number of the node's last status.
    sequence: Option<u64>,
    /// Those running when that status was first seen.
    reported: u64,
}

impl OwnAttempts {
    /// Counts an attempt that was started there.
    pub fn started(&mut self, node: &NodeIdentity) {
        self.nodes.entry(node.clone()).or_default().running += 1;
    }

    /// Counts the end of an attempt there.
    pub fn ended(&mut self, node: &NodeIdentity) {
        if let Some(at) = self.nodes.get_mut(node) {
            at.running = at.running.saturating_sub(1);
        }
    }

    /// Notes which nodes have new statuses: those count what runs now.
    pub fn observe(&mut self, snapshot: &NetworkSnapshot) {
        let mut seen = 0;
        for node in snapshot.nodes.iter().flatten() {
            seen += 1;
            // Names are copied only for new nodes: this runs for every round.
            if !self.nodes.contains_key(&node.node) {
                self.nodes.insert(node.node.clone(), AtNode::default());
            }
            if let Some(at) = self.nodes.get_mut(&node.node)
                && at.sequence != Some(node.sequence)
            {
                at.sequence = Some(node.sequence);
                at.reported = at.running;
            }
        }
        if self.nodes.len() > seen {
            let known: BTreeSet<&NodeIdentity> =
                snapshot.nodes.iter().flatten().map(|n| &n.node).collect();
            self.nodes
                .retain(|node, at| at.running > 0 || known.contains(node));
        }
    }

    /// The slots of a node that are taken: by others according to its last status, and by this dispatcher.
    pub(super) fn taken(&self, node: &NodeSlots) -> u64 {
        let own = self.nodes.get(&node.node).copied().unwrap_or_default();
        // Calls that were on their way when the status was written are not in it, so this may be less than none.
        let others = u64::from(node.used).saturating_sub(own.reported);
        others + own.running
    }
}
