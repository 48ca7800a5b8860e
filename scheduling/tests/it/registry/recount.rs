//! The counts against a recount, after anything that can happen.

use std::collections::BTreeSet;

use fdn_scheduling::registry::{Counts, Event, Limits, Registry, Stamp, State};
use proptest::prelude::*;

use super::{function, id, node, registry, report, size};

#[derive(Clone, Debug)]
enum Step {
    Request(u128, u32),
    Place(u128, u32),
    Apply(u128, Event),
    Node(u32, Stamp),
    Instance(u32, u128, u32, State, Stamp),
    Reconcile(u32, Stamp, Vec<(u128, u32, State)>),
    Lose(u32),
    Remove(u32),
    Unregister(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (number, of, on) = (0u128..12, 0u32..3, 0u32..4);
    let stamp = (1u64..3, 1u64..30).prop_map(|(epoch, sequence)| Stamp::new(epoch, sequence));
    let state = prop::sample::select(State::ALL.as_slice());
    let event = prop::sample::select(Event::ALL.as_slice());
    let listed = prop::collection::vec((number.clone(), of.clone(), state.clone()), 0..5);
    prop_oneof![
        4 => (number.clone(), of.clone()).prop_map(|(n, f)| Step::Request(n, f)),
        4 => (number.clone(), on.clone()).prop_map(|(n, p)| Step::Place(n, p)),
        6 => (number.clone(), event).prop_map(|(n, e)| Step::Apply(n, e)),
        2 => (on.clone(), stamp.clone()).prop_map(|(p, s)| Step::Node(p, s)),
        6 => (on.clone(), number, of.clone(), state, stamp.clone())
            .prop_map(|(p, n, f, state, s)| Step::Instance(p, n, f, state, s)),
        2 => (on.clone(), stamp, listed).prop_map(|(p, s, all)| Step::Reconcile(p, s, all)),
        1 => on.clone().prop_map(Step::Lose),
        1 => on.prop_map(Step::Remove),
        1 => of.prop_map(Step::Unregister),
    ]
}

fn play(registry: &mut Registry, step: &Step) {
    let mut lost = Vec::new();
    // Refusals are part of the play; that they change nothing shows in the recount.
    match step.clone() {
        Step::Request(n, f) => drop(registry.request(id(n), function(f))),
        Step::Place(n, p) => drop(registry.place(id(n), node(p))),
        Step::Apply(n, event) => drop(registry.apply(id(n), event)),
        Step::Node(p, stamp) => drop(registry.observe_node(node(p), stamp, size(2), &mut lost)),
        Step::Instance(p, n, f, state, stamp) => {
            let said = report(n, f, state, stamp);
            drop(registry.observe_instance(node(p), said, &mut lost));
        }
        Step::Reconcile(p, stamp, all) => {
            let all: Vec<_> = all
                .into_iter()
                .map(|(n, f, state)| report(n, f, state, stamp))
                .collect();
            drop(registry.reconcile(node(p), stamp, size(3), &all, &mut lost));
        }
        Step::Lose(p) => drop(registry.lose_node(node(p), &mut lost)),
        Step::Remove(p) => drop(registry.remove_node(node(p), &mut lost)),
        Step::Unregister(f) => drop(registry.unregister(function(f))),
    }
    let ids: BTreeSet<_> = lost.iter().map(|lost| lost.id).collect();
    assert_eq!(ids.len(), lost.len(), "lost twice");
    assert!(ids.iter().all(|&id| registry.instance(id).is_none()));
}

fn recount(registry: &Registry, of: u32) -> Counts {
    let mut counts = Counts::default();
    for (_, held) in registry
        .instances()
        .filter(|(_, i)| i.function == function(of))
    {
        match held.state {
            State::Pending => counts.pending += 1,
            State::Starting => counts.starting += 1,
            State::Idle => counts.idle += 1,
            State::Busy => counts.busy += 1,
            State::Draining => counts.draining += 1,
            State::Gone => panic!("what is gone is forgotten"),
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_and_sets_are_those_of_the_instances(steps in prop::collection::vec(step(), 1..120)) {
        let limits = Limits { functions: 3, nodes: 4, instances: 9 };
        let mut registry = registry(limits);
        for step in &steps {
            play(&mut registry, step);
            for of in 0..3 {
                prop_assert_eq!(registry.counts(function(of)), recount(&registry, of));
            }
            for place in 0..4 {
                let held: Vec<_> = registry.instances_on(node(place)).collect();
                let expected: Vec<_> = registry
                    .instances()
                    .filter(|(_, held)| held.node == Some(node(place)))
                    .map(|(id, _)| id)
                    .collect();
                prop_assert_eq!(&held, &expected);
                prop_assert!(held.is_empty() || registry.node(node(place)).is_some(), "on a lost node");
            }
            for (_, held) in registry.instances() {
                prop_assert_eq!(held.node.is_some(), held.state.is_on_node());
                prop_assert!(registry.profile(held.function).is_some());
            }
            prop_assert!(registry.instances().count() <= limits.instances);
        }
    }
}
