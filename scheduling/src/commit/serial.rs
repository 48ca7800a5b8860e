//! The serial scheduler, which filters and scores every node for every container: the committer's last resort, and the baseline for pre-scheduling.

use std::cmp::Reverse;

use fdn_core::Resources;

use super::record::{NodeIndex, NodeRecord};
use super::score::Scoring;

/// The best node that has room, ties by the smaller index; `None` if none has. O(n).
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
