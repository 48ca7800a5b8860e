//! Node scores: worked examples, and the choice against a loop over all nodes.

use fdn_scheduling::resource::{
    Class, DeviceChoice, DeviceRequest, Fleet, NodeIndex, NodeSpec, Request, Score, Selector,
    Typical, Units, Usage, Vector,
};
use proptest::prelude::*;

use super::fleet::{has_room, naive_devices, occupy, request, slices, spec, vector};

fn node(index: usize) -> NodeIndex {
    NodeIndex::new(index)
}

#[test]
fn worked_example_of_mean_and_variance() {
    let a = Usage::of([0.5, 0.7, 0.3].into_iter());
    assert!((a.mean - 0.5).abs() < 1e-12);
    assert!((a.variance - 0.026_667).abs() < 1e-6);
    let b = Usage::of([0.6, 0.6, 0.6].into_iter());
    assert!((b.mean - 0.6).abs() < 1e-12 && b.variance < 1e-12);
}

/// The example as nodes: A would use 0.5, 0.7 and 0.3 of its classes with the instance, B 0.6 of each.
fn example() -> (Fleet<u64>, Request) {
    let spec = NodeSpec::new(vector(10, 10), 1, Units(10));
    let mut fleet = Fleet::new(&[spec, spec]).expect("a layout");
    let used = |cpu, memory, gpu| Request {
        classes: vector(cpu, memory),
        devices: DeviceRequest::share(Units(gpu)),
    };
    let first = fdn_scheduling::resource::DeviceSet::NONE.with(0);
    fleet
        .take(node(0), &used(4, 6, 2), first)
        .expect("there is room");
    fleet
        .take(node(1), &used(5, 5, 5), first)
        .expect("there is room");
    (fleet, used(1, 1, 1))
}

#[test]
fn worked_example_of_the_choice_of_a_node() {
    let (fleet, request) = example();
    let a = fleet.usage_with(node(0), &request);
    assert!((a.mean - 0.5).abs() < 1e-12 && (a.variance - 0.026_667).abs() < 1e-6);
    let b = fleet.usage_with(node(1), &request);
    assert!((b.mean - 0.6).abs() < 1e-12 && b.variance < 1e-12);
    let chosen = |score| {
        let mut selector = Selector::new(score, DeviceChoice::LeastUsed, 2);
        selector.choose(&fleet, &request).unwrap().node.get()
    };
    assert_eq!(chosen(Score::LeastRequested), 0);
    assert_eq!(chosen(Score::MostBalanced), 1);
    assert_eq!(chosen(Score::Packing), 1);
    assert_eq!(chosen(Score::SmallestLeftover), 1);
}

#[test]
fn classes_that_a_node_lacks_are_left_out() {
    // The second node has no memory at all; counted as empty, that would make its mean the smaller one.
    let nodes = [
        NodeSpec::new(vector(10, 10), 0, Units(0)),
        NodeSpec::new(vector(10, 0), 0, Units(0)),
    ];
    let fleet = Fleet::<u64>::new(&nodes).unwrap();
    let request = Request {
        classes: vector(5, 0),
        ..Request::default()
    };
    assert_eq!(fleet.usage_with(node(0), &request).mean, 0.25);
    assert_eq!(fleet.usage_with(node(1), &request).mean, 0.5);
    let nothing = Fleet::<u64>::new(&[NodeSpec::default()]).unwrap();
    let usage = nothing.usage_with(node(0), &Request::default());
    assert_eq!(usage, Usage::default());
}

#[test]
fn equal_nodes_go_by_their_id() {
    let spec = NodeSpec::new(vector(10, 10), 2, Units(4));
    let fleet = Fleet::<u64>::new(&[spec; 5]).unwrap();
    for score in scores() {
        let mut selector = Selector::new(score, DeviceChoice::MostUsed, 5);
        let chosen = selector.choose(&fleet, &slices(1, 1, 2)).unwrap();
        assert_eq!(chosen.node, node(0));
        assert_eq!(chosen.devices.iter().collect::<Vec<_>>(), [0]);
    }
}

fn kinds(requests: &[(Request, f64)]) -> Typical<u64> {
    Typical::new(requests.iter().copied())
}

#[test]
fn fragments_are_what_the_usual_instances_cannot_use() {
    let spec = NodeSpec::new(vector(10, 10), 2, Units(10));
    let mut fleet = Fleet::<u64>::new(&[spec]).unwrap();
    let first = fdn_scheduling::resource::DeviceSet::NONE.with(0);
    fleet.take(node(0), &slices(2, 1, 7), first).unwrap();
    // Free: 3 and 10 on the devices, 8 of the CPU.
    let fragments = |kind| kinds(&[(kind, 1.0)]).fragments(&fleet, node(0));
    assert_eq!(fragments(slices(1, 1, 3)), 0.0);
    assert_eq!(fragments(slices(1, 1, 4)), 3.0);
    assert_eq!(fragments(slices(9, 1, 3)), 13.0, "not enough CPU");
    assert_eq!(fragments(slices(1, 2, 4)), 13.0, "one device is too few");
    assert_eq!(fragments(slices(1, 0, 0)), 13.0, "wants no device");
    let whole = Request {
        devices: DeviceRequest::Whole(1),
        ..Request::default()
    };
    assert_eq!(fragments(whole), 3.0);
    let mixed = kinds(&[(slices(1, 1, 4), 1.0), (slices(9, 1, 3), 3.0)]);
    assert_eq!(mixed.fragments(&fleet, node(0)), 0.25 * 3.0 + 0.75 * 13.0);
}

#[test]
fn the_gradient_prefers_the_node_that_stays_useful() {
    let spec = NodeSpec::new(vector(10, 10), 2, Units(10));
    let mut fleet = Fleet::<u64>::new(&[spec, spec]).unwrap();
    let first = fdn_scheduling::resource::DeviceSet::NONE.with(0);
    // On the second node a half of a device is in use: another half wastes nothing there.
    fleet.take(node(1), &slices(0, 1, 5), first).unwrap();
    let usual = [(slices(0, 1, 10), 3.0), (slices(0, 1, 5), 1.0)];
    let mut typical = kinds(&usual);
    let half = slices(0, 1, 5);
    let gradient = |typical: &mut Typical<u64>, index, fleet: &Fleet<u64>| {
        typical.gradient(fleet, node(index), &half, first)
    };
    assert_eq!(gradient(&mut typical, 0, &fleet), Some(0.75 * 5.0));
    assert_eq!(gradient(&mut typical, 1, &fleet), Some(-0.75 * 5.0));
    let mut selector = Selector::new(Score::Fragmentation(typical), DeviceChoice::MostUsed, 2);
    let chosen = selector.choose(&fleet, &half).unwrap();
    assert_eq!(chosen.node, node(1));
    assert_eq!(chosen.devices, first);
    // What is remembered of a node ends with its next change.
    fleet.take(node(1), &half, first).unwrap();
    assert_eq!(selector.choose(&fleet, &half).unwrap().node, node(0));
}

#[test]
fn usual_instances_are_the_frequent_ones() {
    let spec = NodeSpec::new(vector(10, 10), 1, Units(10));
    let mut fleet = Fleet::<u64>::new(&[spec]).unwrap();
    let first = fdn_scheduling::resource::DeviceSet::NONE.with(0);
    fleet.take(node(0), &slices(0, 1, 5), first).unwrap();
    let seen = [
        (slices(0, 1, 10), 6),
        (slices(0, 1, 5), 3),
        (slices(0, 1, 1), 1),
    ];
    let all = || seen.iter().flat_map(|(kind, times)| vec![*kind; *times]);
    // The first two are 6 and 3 of 9; the third is the tenth that is left out.
    let typical = Typical::observed(all(), 0.9);
    assert!((typical.fragments(&fleet, node(0)) - 5.0 * 6.0 / 9.0).abs() < 1e-12);
    let typical = Typical::observed(all(), 1.0);
    assert!((typical.fragments(&fleet, node(0)) - 5.0 * 0.6).abs() < 1e-12);
    let nothing = Typical::observed([], 1.0);
    assert_eq!(nothing.fragments(&fleet, node(0)), 0.0);
}

fn scores() -> Vec<Score<u64>> {
    let usual = kinds(&[(slices(1, 1, 3), 1.0), (slices(2, 2, 5), 2.0)]);
    vec![
        Score::LeastRequested,
        Score::MostBalanced,
        Score::Packing,
        Score::SmallestLeftover,
        Score::Fragmentation(usual),
    ]
}

/// The fraction of each class that would be used, from the quantities one by one.
fn fractions(fleet: &Fleet<u64>, node: NodeIndex, request: &Request) -> Vec<f64> {
    let spec = fleet.spec(node);
    let mut fractions = Vec::new();
    for class in Class::ALL {
        let capacity = spec.capacity.get(class);
        let used = capacity - fleet.free(node, class) + request.classes.get(class);
        if capacity > 0 {
            fractions.push(used as f64 / capacity as f64);
        }
    }
    let sum = |packed| -> u64 { fleet.layout().unpack(packed).map(Units::get).sum() };
    let capacity = sum(fleet.device_capacity(node));
    if capacity > 0 {
        let wanted = u64::from(request.devices.count()) * request.devices.each(spec.each).get();
        let used = capacity - sum(fleet.device_free(node)) + wanted;
        fractions.push(used as f64 / capacity as f64);
    }
    fractions
}

/// What of a node is of no use to one kind, straight from the definition.
fn fragment(fleet: &Fleet<u64>, node: NodeIndex, kind: &Request) -> f64 {
    let free: Vec<u64> = fleet
        .layout()
        .unpack(fleet.device_free(node))
        .map(Units::get)
        .collect();
    let fitting = naive_devices(fleet, node, kind);
    let useless = |device: &u32| {
        !has_room(fleet, node, kind) || kind.devices.count() == 0 || !fitting.contains(device)
    };
    let useless = (0..free.len() as u32).filter(useless);
    useless.map(|device| free[device as usize] as f64).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_choice_is_the_best_of_all_nodes_with_room(
        nodes in prop::collection::vec(spec(), 1..30),
        held in prop::collection::vec(request(), 0..30),
        request in request(),
        most_used in any::<bool>(),
    ) {
        let choice = if most_used { DeviceChoice::MostUsed } else { DeviceChoice::LeastUsed };
        let mut fleet = Fleet::<u64>::new(&nodes).unwrap();
        occupy(&mut fleet, &held);
        let room: Vec<_> = (0..nodes.len())
            .map(node)
            .filter(|n| has_room(&fleet, *n, &request))
            .collect();
        let by = |cost: &dyn Fn(&[f64]) -> f64| {
            let cost = |n: &NodeIndex| cost(&fractions(&fleet, *n, &request));
            room.iter().map(cost).fold(f64::INFINITY, f64::min)
        };
        let mean = |u: &[f64]| if u.is_empty() { 0.0 } else { u.iter().sum::<f64>() / u.len() as f64 };
        let variance = |u: &[f64]| mean(&u.iter().map(|x| (x - mean(u)).powi(2)).collect::<Vec<_>>());
        let best = [by(&mean), by(&variance), by(&|u| -mean(u))];
        for (at, score) in scores().into_iter().enumerate() {
            let mut selector = Selector::new(score, choice, nodes.len());
            let chosen = selector.choose(&fleet, &request);
            prop_assert_eq!(chosen.is_some(), !room.is_empty());
            let Some(chosen) = chosen else { continue };
            prop_assert!(room.contains(&chosen.node));
            if let Some(best) = best.get(at) {
                prop_assert!((chosen.cost.get() - best).abs() < 1e-9);
            }
            // No node costs less, and none before it costs the same.
            for other in &room {
                let other = selector.evaluate(&fleet, *other, &request).unwrap();
                prop_assert!((chosen.cost, chosen.node) <= (other.cost, other.node));
            }
            prop_assert_eq!(chosen.devices.len(), request.devices.count());
            prop_assert!(fleet.clone().take(chosen.node, &request, chosen.devices).is_ok());
            prop_assert_eq!(selector.choose(&fleet, &request), Some(chosen), "again the same");
        }
    }

    #[test]
    fn fragments_follow_their_definition_and_the_gradient_is_their_difference(
        spec in spec(),
        held in prop::collection::vec(request(), 0..10),
        usual in prop::collection::vec((request(), 0.1f64..5.0), 1..8),
        request in request(),
    ) {
        let mut fleet = Fleet::<u64>::new(&[spec]).unwrap();
        occupy(&mut fleet, &held);
        let weight: f64 = usual.iter().map(|(_, weight)| weight).sum();
        let expected = |fleet: &Fleet<u64>| -> f64 {
            usual.iter().map(|(kind, w)| w / weight * fragment(fleet, node(0), kind)).sum()
        };
        let mut typical = kinds(&usual);
        let before = typical.fragments(&fleet, node(0));
        prop_assert!((before - expected(&fleet)).abs() < 1e-9);
        let free = fleet.layout().total(fleet.device_free(node(0))) as f64;
        prop_assert!((-1e-9..=free + 1e-9).contains(&before));
        let mut selector = Selector::new(Score::LeastRequested, DeviceChoice::MostUsed, 1);
        if let Some(choice) = selector.choose(&fleet, &request) {
            let gradient = typical.gradient(&fleet, node(0), &request, choice.devices).unwrap();
            fleet.take(node(0), &request, choice.devices).unwrap();
            prop_assert!((gradient - (expected(&fleet) - before)).abs() < 1e-9);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_remembered_never_changes_a_choice(
        nodes in prop::collection::vec(spec(), 1..12),
        kinds in prop::collection::vec(request(), 1..5),
        course in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let usual = Typical::observed(kinds.iter().copied(), 1.0);
        prop_assert!(kinds.iter().all(|kind| usual.kind(kind).is_some_and(|k| k < usual.kinds())));
        let selector = || {
            Selector::new(Score::Fragmentation(usual.clone()), DeviceChoice::MostUsed, nodes.len())
        };
        let mut fleet = Fleet::<u64>::new(&nodes).unwrap();
        let mut old = selector();
        let mut held = Vec::new();
        for (kind, leave) in course {
            let kind = kind.get(&kinds);
            let choice = old.choose(&fleet, kind);
            prop_assert_eq!(choice, selector().choose(&fleet, kind));
            if let Some(choice) = choice {
                fleet.take(choice.node, kind, choice.devices).unwrap();
                held.push((choice, *kind));
            }
            if leave && let Some((choice, kind)) = held.pop() {
                fleet.give_back(choice.node, &kind, choice.devices).unwrap();
            }
        }
    }
}

#[test]
fn a_request_that_wants_nothing_fits_every_node() {
    let fleet = Fleet::<u64>::new(&[NodeSpec::default(); 3]).unwrap();
    let mut selector = Selector::new(Score::Packing, DeviceChoice::MostUsed, 3);
    let nothing = Request {
        classes: Vector::default(),
        devices: DeviceRequest::None,
    };
    assert_eq!(selector.choose(&fleet, &nothing).unwrap().node, node(0));
    assert_eq!(selector.candidates().count(), 3);
}
