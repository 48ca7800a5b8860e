//! What a pre-scheduler names.

use fdn_core::{Millis, Resources};
use fdn_scheduling::commit::{
    Assignment, Choice, LeastRequested, List, NodeRecord, NodeSelection, PreScheduler, Score,
    Scoring, Settings, Ties, Version,
};
use proptest::prelude::*;

use super::{committer, container, rng, size};

fn assignment(demand: Resources) -> Assignment {
    let mut committer = committer(Settings::default(), &[]);
    committer.submit(container(1, demand)).expect("room");
    committer.take(Millis::ZERO).expect("pending")
}

fn list(choice: Choice, nodes: &[NodeRecord], demand: Resources, seed: u64) -> List {
    let mut list = List::default();
    PreScheduler::new(LeastRequested, choice).list(
        &assignment(demand),
        nodes,
        &mut rng(seed),
        &mut list,
    );
    list
}

/// Nodes of a few sizes, so that there are ties, some without room.
fn nodes() -> impl Strategy<Value = Vec<NodeRecord>> {
    let node = (1u64..4, 0u64..4, 0u64..9).prop_map(|(capacity, used, version)| {
        let used = used.min(capacity);
        NodeRecord::new(size(capacity, 8), size(used, used), Version::new(version))
    });
    prop::collection::vec(node, 0..40)
}

fn selection() -> impl Strategy<Value = NodeSelection> {
    prop_oneof![
        Just(NodeSelection::All),
        (0usize..50).prop_map(NodeSelection::Sample),
        (1u32..6).prop_map(|hands| NodeSelection::Dealt { hands }),
        (1u32..6)
            .prop_flat_map(|of| (0..of).prop_map(move |index| NodeSelection::Part { index, of })),
    ]
}

proptest! {
    #[test]
    fn a_list_names_the_best_nodes_with_room_as_they_were(
        nodes in nodes(), length in 0usize..12, selection in selection(), random in any::<bool>(), seed in any::<u64>(),
    ) {
        let ties = if random { Ties::Random } else { Ties::Node };
        let demand = size(1, 1);
        let list = list(Choice { length, selection, ties }, &nodes, demand, seed);

        let mut names: Vec<usize> = list.entries.iter().map(|entry| entry.node.get()).collect();
        for entry in &list.entries {
            let record = &nodes[entry.node.get()];
            prop_assert!(record.has_room(&demand));
            prop_assert_eq!(entry.version, record.version());
            prop_assert_eq!(entry.score, LeastRequested.score(&demand, record));
        }
        prop_assert!(list.entries.is_sorted_by_key(|entry| std::cmp::Reverse(entry.score)));

        // Every node with room that is looked at, scored and sorted by the rule itself.
        let is_seen = |n: usize| match selection {
            NodeSelection::Part { index, of } => n % of as usize == index as usize,
            NodeSelection::All | NodeSelection::Sample(_) | NodeSelection::Dealt { .. } => true,
        };
        let mut all: Vec<(std::cmp::Reverse<Score>, usize)> = (0..nodes.len())
            .filter(|&n| is_seen(n) && nodes[n].has_room(&demand))
            .map(|n| (std::cmp::Reverse(LeastRequested.score(&demand, &nodes[n])), n))
            .collect();
        all.sort();
        let limit = if length == 0 { usize::MAX } else { length };
        match selection {
            NodeSelection::Sample(size) if size < nodes.len() => {
                prop_assert!(names.len() <= limit.min(size));
            }
            // Which hand it is depends on the attempt; all hands together are all nodes.
            NodeSelection::Dealt { hands } => {
                prop_assert!(names.len() <= limit.min(nodes.len().div_ceil(hands as usize)));
            }
            NodeSelection::All | NodeSelection::Sample(_) | NodeSelection::Part { .. } => {
                all.truncate(limit);
                let scores: Vec<Score> = list.entries.iter().map(|entry| entry.score).collect();
                let best: Vec<Score> = all.iter().map(|(score, _)| score.0).collect();
                prop_assert_eq!(scores, best);
                prop_assert!(names.iter().all(|&n| is_seen(n)));
                if !random {
                    prop_assert_eq!(&names, &all.iter().map(|&(_, n)| n).collect::<Vec<_>>());
                }
            }
        }
        names.sort_unstable();
        prop_assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "a node is named once");
    }
}

/// How often each of `nodes` like nodes is named first by lists with seeds of their own.
fn firsts(choice: Choice, nodes: usize, lists: u64) -> Vec<u32> {
    let like = vec![NodeRecord::new(size(4, 4), size(1, 1), Version::new(1)); nodes];
    let mut counts = vec![0; nodes];
    let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
    let (mut rng, mut list) = (rng(7), List::default());
    let assignment = assignment(size(1, 1));
    for _ in 0..lists {
        pre_scheduler.list(&assignment, &like, &mut rng, &mut list);
        counts[list.entries[0].node.get()] += 1;
    }
    counts
}

#[test]
fn like_nodes_are_named_first_equally_often() {
    for selection in [NodeSelection::All, NodeSelection::Sample(5)] {
        let choice = Choice {
            selection,
            ..Choice::default()
        };
        // 20 nodes, 8000 lists: 400 each, give or take five standard deviations.
        let counts = firsts(choice, 20, 8000);
        assert!(
            counts.iter().all(|count| (300..500).contains(count)),
            "{counts:?}"
        );
    }
}

#[test]
fn lists_of_one_deal_have_no_node_in_common() {
    let mut committer = committer(Settings::default(), &vec![size(4, 4); 100]);
    let choice = Choice {
        selection: NodeSelection::Dealt { hands: 10 },
        ..Choice::default()
    };
    let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
    let mut nodes = Vec::new();
    // Attempts are counted from 1; 10 begins a deal.
    for attempt in 1..20 {
        committer
            .submit(container(attempt, size(1, 1)))
            .expect("room");
        let assignment = committer.take(Millis::ZERO).expect("pending");
        let mut list = List::default();
        let records = committer.store().records();
        pre_scheduler.list(&assignment, records, &mut rng(0), &mut list);
        assert_eq!(list.entries.len(), 8);
        if attempt >= 10 {
            nodes.extend(list.entries.iter().map(|entry| entry.node));
        }
    }
    nodes.sort_unstable();
    assert!(nodes.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn ties_by_node_always_name_the_smallest() {
    let choice = Choice {
        ties: Ties::Node,
        ..Choice::default()
    };
    assert_eq!(firsts(choice, 3, 10), [10, 0, 0]);
}

#[test]
fn the_same_generator_gives_the_same_lists() {
    let nodes = vec![NodeRecord::new(size(4, 4), size(1, 1), Version::new(1)); 50];
    let of = |seed| list(Choice::default(), &nodes, size(1, 1), seed).entries;
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}
