//! The network after hypothetical changes about whose effect a plan is asked: other nodes, other round trips. Nothing else is affected.

use std::collections::BTreeMap;

use fdn_core::message::NodeStatus;
use fdn_core::what_if::WhatIf;
use fdn_core::{ClusterId, Millis};

/// By cluster: the change of its round trips.
pub type Shifts = BTreeMap<ClusterId, Millis>;

/// The living nodes after the changes, applied in sequence.
#[must_use]
pub fn nodes(alive: Vec<NodeStatus>, changes: &[WhatIf]) -> Vec<NodeStatus> {
    changes.iter().fold(alive, |mut nodes, change| {
        match change {
            WhatIf::Rtt(..) => {}
            WhatIf::Down(cluster) => nodes.retain(|node| node.cluster != *cluster),
            WhatIf::Nodes(cluster, count) => resize(&mut nodes, cluster, *count as usize),
        }
        nodes
    })
}

/// Gives a cluster this many nodes that take work: surplus ones are removed from the end, missing ones are added as idle copies of the
/// first. A cluster without any node gets none, since there is no model for them.
fn resize(nodes: &mut Vec<NodeStatus>, cluster: &ClusterId, count: usize) {
    let mut there = 0;
    nodes.retain(|node| {
        let counts = node.cluster == *cluster && !node.draining;
        there += usize::from(counts);
        !counts || there <= count
    });
    let model = nodes
        .iter()
        .find(|node| node.cluster == *cluster && !node.draining);
    let Some(model) = model.cloned() else { return };
    let new = (there..count).map(|_| NodeStatus {
        free: model.capacity,
        busy: 0,
        waiting: 0,
        queued_work: Millis::ZERO,
        // They count for their capacity; the measurements of their model must not count twice.
        apps: model
            .apps
            .iter()
            .map(|app| fdn_core::message::AppObserved {
                invocations: 0,
                stages: Vec::new(),
                phases: None,
                ..app.clone()
            })
            .collect(),
        ..model.clone()
    });
    let new: Vec<NodeStatus> = new.collect();
    nodes.extend(new);
}

/// The changes of round trips by cluster, summed.
#[must_use]
pub fn shifts(changes: &[WhatIf]) -> Shifts {
    let mut shifts = Shifts::new();
    for change in changes {
        if let WhatIf::Rtt(cluster, by) = change {
            let sum = shifts.entry(cluster.clone()).or_insert(Millis::ZERO);
            *sum += *by;
        }
    }
    shifts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn change(text: &str) -> WhatIf {
        text.parse().expect(text)
    }

    fn count(nodes: &[NodeStatus], cluster: &str) -> usize {
        let of = nodes.iter().filter(|node| node.cluster.as_str() == cluster);
        of.count()
    }

    #[test]
    fn clusters_lose_and_gain_nodes() {
        let mut busy = fixture::status("a-1", "a");
        busy.busy = 4;
        busy.queued_work = Millis::new(900.0);
        let all = vec![
            busy,
            fixture::status("a-2", "a"),
            NodeStatus {
                draining: true,
                ..fixture::status("a-3", "a")
            },
            fixture::status("b-1", "b"),
        ];
        let after = |changes: &[&str]| {
            let changes: Vec<WhatIf> = changes.iter().map(|text| change(text)).collect();
            nodes(all.clone(), &changes)
        };
        assert_eq!(count(&after(&["cluster a down"]), "a"), 0);
        assert_eq!(count(&after(&["cluster a down"]), "b"), 1);
        let few = after(&["nodes a 1"]);
        assert_eq!(
            (count(&few, "a"), few[0].node.as_str()),
            (2, "a-1"),
            "and the one that drains"
        );
        let many = after(&["nodes a 4"]);
        assert_eq!(count(&many, "a"), 5);
        let new = many.last().expect("new");
        assert_eq!(
            (new.busy, new.queued_work, new.free),
            (0, Millis::ZERO, new.capacity)
        );
        assert_eq!(count(&after(&["cluster b down", "nodes b 3"]), "b"), 0);
        assert_eq!(count(&after(&["nodes b 0"]), "b"), 0);
    }

    #[test]
    fn round_trips_add_up() {
        let changes = ["rtt a +50ms", "rtt b -5ms", "rtt a -20ms", "cluster c down"];
        let changes: Vec<WhatIf> = changes.iter().map(|text| change(text)).collect();
        let found: Vec<(String, f64)> = shifts(&changes)
            .iter()
            .map(|(cluster, by)| (cluster.to_string(), by.get()))
            .collect();
        assert_eq!(found, [("a".to_owned(), 30.0), ("b".to_owned(), -5.0)]);
    }
}
