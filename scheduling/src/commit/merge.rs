//! The committer's lists 2 to 4: a pre-scheduler's list, re-evaluated on present records.

use fdn_core::Resources;

use super::list::Entry;
use super::record::{NodeIndex, NodeRecord};
use super::score::Scoring;

/// Lists 2 to 4, with buffers that are reused.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    unchanged: Vec<Entry>,
    changed: Vec<NodeIndex>,
    refreshed: Vec<Entry>,
    order: Vec<Entry>,
}

impl Merge {
    /// Merges a list with the present records; returns the nodes to be tried, in order.
    ///
    /// 1. Entries whose version is unchanged form list 2, the others list 3.
    /// 2. The nodes of list 3 that still have room form list 4, with their present versions and scores.
    /// 3. Lists 2 and 4 together, by score, ties by the smaller node.
    pub fn run<S: Scoring>(
        &mut self,
        entries: &[Entry],
        records: &[NodeRecord],
        demand: &Resources,
        scoring: &S,
    ) -> &[Entry] {
        self.unchanged.clear();
        self.changed.clear();
        self.refreshed.clear();
        for entry in entries {
            match records.get(entry.node.get()) {
                Some(record) if record.version() == entry.version => self.unchanged.push(*entry),
                _ => self.changed.push(entry.node),
            }
        }
        for &node in &self.changed {
            if let Some(record) = records.get(node.get())
                && record.has_room(demand)
            {
                self.refreshed.push(Entry {
                    node,
                    version: record.version(),
                    score: scoring.score(demand, record),
                });
            }
        }
        self.order.clear();
        self.order.extend_from_slice(&self.unchanged);
        self.order.extend_from_slice(&self.refreshed);
        self.order
            .sort_unstable_by(|a, b| b.score.cmp(&a.score).then(a.node.cmp(&b.node)));
        &self.order
    }

    /// List 2 of the last run: entries whose node has not changed.
    #[must_use]
    pub fn unchanged(&self) -> &[Entry] {
        &self.unchanged
    }

    /// List 3 of the last run: nodes that have changed.
    #[must_use]
    pub fn changed(&self) -> &[NodeIndex] {
        &self.changed
    }

    /// List 4 of the last run: nodes of list 3 that have room, with their present scores.
    #[must_use]
    pub fn refreshed(&self) -> &[Entry] {
        &self.refreshed
    }
}
