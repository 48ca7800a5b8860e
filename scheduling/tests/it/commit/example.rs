//! The worked example: list n3 v7 0.9, n1 v4 0.8, n2 v2 0.7, when n3 is at v9 and full, n1 unchanged, n2 at v3 and worth 0.85.

use fdn_core::{Millis, Resources};
use fdn_scheduling::commit::{
    Committer, Entry, List, Merge, NodeIndex, NodeRecord, Score, Scoring, Settings, Version,
};

use super::{container, node, placed, size};

/// Scores by hand: n2 is worth 0.85 now. No other node is scored anew in the example.
#[derive(Debug)]
struct ByHand;

/// Nodes are told apart by their capacity: node n has n cores.
fn cores(n: u64) -> Resources {
    size(n, 1)
}

impl Scoring for ByHand {
    fn score(&self, _: &Resources, node: &NodeRecord) -> Score {
        assert_eq!(*node.capacity(), cores(2), "scored without need");
        Score::new(0.85)
    }
}

fn entry(n: u32, version: u64, score: f64) -> Entry {
    Entry {
        node: node(n),
        version: Version::new(version),
        score: Score::new(score),
    }
}

fn list() -> Vec<Entry> {
    vec![entry(3, 7, 0.9), entry(1, 4, 0.8), entry(2, 2, 0.7)]
}

#[test]
fn the_four_lists() {
    let record = |n, used, version| NodeRecord::new(cores(n), used, Version::new(version));
    let records = [
        NodeRecord::default(),
        record(1, Resources::default(), 4),
        record(2, Resources::default(), 3),
        record(3, cores(3), 9),
    ];
    let mut merge = Merge::default();
    let order = merge.run(&list(), &records, &size(1, 1), &ByHand).to_vec();
    assert_eq!(order, [entry(2, 3, 0.85), entry(1, 4, 0.8)]);
    assert_eq!(merge.unchanged(), [entry(1, 4, 0.8)]);
    assert_eq!(merge.changed(), [node(3), node(2)]);
    assert_eq!(merge.refreshed(), [entry(2, 3, 0.85)]);
}

#[test]
fn equal_scores_go_to_the_smaller_node_and_places_that_never_were_to_nobody() {
    let record = NodeRecord::new(cores(2), Resources::default(), Version::new(5));
    let records = [record; 3];
    let entries = [
        entry(2, 4, 0.1),
        entry(1, 5, 0.85),
        entry(9, 0, 1.0),
        entry(0, 1, 0.9),
    ];
    let mut merge = Merge::default();
    let order: Vec<NodeIndex> = merge
        .run(&entries, &records, &size(1, 1), &ByHand)
        .iter()
        .map(|entry| entry.node)
        .collect();
    assert_eq!(order, [node(0), node(1), node(2)]);
    assert_eq!(merge.changed(), [node(2), node(9), node(0)]);
}

#[test]
fn the_committer_takes_n2_which_becomes_v4() {
    let mut committer = Committer::new(Settings::default(), ByHand).expect("settings of use");
    let mut none = Vec::new();
    for n in 0..4 {
        committer.add_node(cores(n), &mut none).expect("room");
    }
    // Every change counts, whichever it is: n1 to v4, n2 to v3, n3, which others fill, to v9.
    for (n, version) in [(1, 4), (2, 3), (3, 8)] {
        while committer.store().records()[n].version() < Version::new(version) {
            let n = node(u32::try_from(n).expect("small"));
            committer.observe(n, Resources::default(), &mut none);
        }
    }
    committer.observe(node(3), cores(3), &mut none);
    assert_eq!(committer.store().records()[3].version(), Version::new(9));

    committer.submit(container(1, size(1, 1))).expect("room");
    let ticket = committer.take(Millis::ZERO).expect("pending").ticket;
    let entries = list();
    let commit = committer.commit(&List { ticket, entries });
    assert_eq!((commit.changed, commit.scanned), (2, false));
    let placed = placed(&commit);
    assert_eq!((placed.node, placed.version), (node(2), Version::new(4)));
    assert_eq!(committer.store().records()[2].version(), Version::new(4));
}
