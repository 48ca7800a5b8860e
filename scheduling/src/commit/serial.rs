//! The serial scheduler: every node filtered and scored for every container. The committer's last resort, and what pre-scheduling
//! is measured against.

use std::cmp::Reverse;

use fdn_core::Resources;

use super::record::{NodeIndex, NodeRecord};
use super::score::Scoring;

/// The best node that has room, ties by the smaller; none if none has. O(n).
#[must_use]
pub fn best<S: Scoring>(
    nodes: &[NodeRecord],
    demand: &Resources,
    scoring: &S,
) -> Option<NodeIndex> {
    (0u32..)
        .zip(nodes)
        .filter(|(_, record)| record.has_room(demand))
        .map(|(node, record)| (scoring.score(demand, record), Reverse(node)))
        .max()
        .map(|(_, Reverse(node))| NodeIndex::new(node))
}
