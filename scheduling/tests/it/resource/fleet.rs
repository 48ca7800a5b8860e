//! Filters against a loop over the nodes, and what taking and giving back must keep.

use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::resource::{
    Class, DeviceChoice, DeviceRequest, DeviceSet, Fleet, MegabitsPerSecond, NodeIndex, NodeSet,
    NodeSpec, Request, ResourceError, Units, Vector,
};
use proptest::prelude::*;

pub(super) fn vector(cpu: u64, memory: u64) -> Vector {
    Vector::new(MilliCpu(cpu), MebiBytes(memory))
}

pub(super) fn slices(cpu: u64, count: u32, each: u64) -> Request {
    Request {
        classes: vector(cpu, 0),
        devices: DeviceRequest::Slices {
            count,
            each: Units(each),
        },
    }
}

pub(super) fn spec() -> impl Strategy<Value = NodeSpec> {
    (0u64..20, 0u64..20, 0u64..4, 0u64..4, 0u32..=8, 0u64..=12).prop_map(
        |(cpu, memory, disk, bandwidth, devices, each)| {
            let capacity = vector(cpu, memory)
                .with_disk(MebiBytes(disk))
                .with_bandwidth(MegabitsPerSecond(bandwidth));
            NodeSpec::new(capacity, devices, Units(each))
        },
    )
}

pub(super) fn request() -> impl Strategy<Value = Request> {
    let devices = prop_oneof![
        1 => Just(DeviceRequest::None),
        3 => (0u32..4, 0u64..14).prop_map(|(count, each)| DeviceRequest::Slices {
            count,
            each: Units(each),
        }),
        1 => (0u32..4).prop_map(DeviceRequest::Whole),
    ];
    (0u64..8, 0u64..8, 0u64..2, 0u64..2, devices).prop_map(|(cpu, memory, disk, band, devices)| {
        Request {
            classes: vector(cpu, memory)
                .with_disk(MebiBytes(disk))
                .with_bandwidth(MegabitsPerSecond(band)),
            devices,
        }
    })
}

/// Whether a node has room, looking at one quantity after the other.
pub(super) fn has_room(fleet: &Fleet<u64>, node: NodeIndex, request: &Request) -> bool {
    let classes = Class::ALL
        .into_iter()
        .all(|class| fleet.free(node, class) >= request.classes.get(class));
    classes && naive_devices(fleet, node, request).len() >= request.devices.count() as usize
}

/// The devices that the request could use.
pub(super) fn naive_devices(fleet: &Fleet<u64>, node: NodeIndex, request: &Request) -> Vec<u32> {
    let spec = fleet.spec(node);
    let each = request.devices.each(spec.each);
    (0..spec.devices)
        .filter(|device| {
            let has = fleet
                .layout()
                .get(fleet.device_free(node), *device)
                .expect("a device");
            spec.each > Units(0) && has >= each
        })
        .collect()
}

/// Places requests where they fit, the first node first.
pub(super) fn occupy(fleet: &mut Fleet<u64>, requests: &[Request]) {
    let mut nodes = NodeSet::default();
    for request in requests {
        fleet.filter(request, &mut nodes);
        let Some(node) = nodes.iter().next() else {
            continue;
        };
        let among = fleet.fitting(node, request).expect("it passed the filter");
        let count = request.devices.count();
        let devices = fleet
            .layout()
            .choose_many(
                fleet.device_free(node),
                among,
                count,
                DeviceChoice::LeastUsed,
            )
            .expect("enough devices");
        fleet.take(node, request, devices).expect("there is room");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_filter_keeps_the_nodes_that_a_loop_would(
        nodes in prop::collection::vec(spec(), 0..150),
        held in prop::collection::vec(request(), 0..60),
        request in request(),
    ) {
        let mut fleet = Fleet::<u64>::new(&nodes).unwrap();
        occupy(&mut fleet, &held);
        let mut kept = NodeSet::default();
        fleet.filter(&request, &mut kept);
        let expected: Vec<NodeIndex> = (0..nodes.len())
            .map(NodeIndex::new)
            .filter(|node| has_room(&fleet, *node, &request))
            .collect();
        prop_assert_eq!(kept.iter().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(kept.count(), expected.len());
        prop_assert_eq!(kept.is_empty(), expected.is_empty());
        for node in (0..nodes.len()).map(NodeIndex::new) {
            prop_assert_eq!(kept.contains(node), expected.contains(&node));
        }
    }

    #[test]
    fn taking_and_giving_back_restores_everything_and_never_passes_a_bound(
        nodes in prop::collection::vec(spec(), 1..5),
        requests in prop::collection::vec((request(), any::<prop::sample::Index>(), 0u128..256), 1..40),
    ) {
        let fresh = Fleet::<u64>::new(&nodes).unwrap();
        let mut fleet = fresh.clone();
        let mut held = Vec::new();
        for (request, node, devices) in requests {
            let node = NodeIndex::new(node.index(nodes.len()));
            let devices: DeviceSet = (0..8).filter(|d| devices >> d & 1 == 1).collect();
            let before = (fleet.free_vector(node), fleet.device_free(node), fleet.version(node));
            match fleet.take(node, &request, devices) {
                Ok(()) => held.push((node, request, devices)),
                Err(_) => prop_assert_eq!(
                    before,
                    (fleet.free_vector(node), fleet.device_free(node), fleet.version(node))
                ),
            }
            prop_assert!(fleet.free_vector(node).fits(&fresh.spec(node).capacity));
            let least = fleet.layout().at_least_each(fleet.device_capacity(node), fleet.device_free(node));
            prop_assert_eq!(least, fleet.layout().all());
        }
        for (node, request, devices) in held.into_iter().rev() {
            fleet.give_back(node, &request, devices).unwrap();
        }
        for node in (0..nodes.len()).map(NodeIndex::new) {
            prop_assert_eq!(fleet.free_vector(node), fresh.free_vector(node));
            prop_assert_eq!(fleet.device_free(node), fresh.device_free(node));
        }
    }
}

#[test]
fn nothing_can_be_given_back_that_was_not_taken() {
    let mut fleet = Fleet::<u64>::new(&[NodeSpec::new(vector(10, 10), 2, Units(4))]).unwrap();
    let node = NodeIndex::new(0);
    let request = slices(1, 1, 2);
    let first = DeviceSet::NONE.with(0);
    assert!(matches!(
        fleet.give_back(node, &request, first),
        Err(ResourceError::Class {
            class: "cpu_milli",
            quantity: 11,
            most: 10
        })
    ));
    fleet.take(node, &slices(1, 0, 0), DeviceSet::NONE).unwrap();
    assert_eq!(
        fleet.give_back(node, &request, first),
        Err(ResourceError::TooMuch {
            device: 0,
            quantity: Units(6),
            most: Units(4)
        })
    );
    assert_eq!(fleet.free(node, Class::Cpu), 9, "nothing was given back");
    assert_eq!(
        fleet.take(node, &request, DeviceSet::NONE.with(2)),
        Err(ResourceError::NoSuchDevice {
            device: 2,
            devices: 2
        })
    );
    assert_eq!(
        fleet.take(node, &request, DeviceSet::NONE),
        Err(ResourceError::NoDevice { wanted: 1, fit: 0 })
    );
    assert_eq!(
        fleet.take(NodeIndex::new(1), &request, first),
        Err(ResourceError::NoSuchNode { node: 1, nodes: 1 })
    );
}

#[test]
fn whole_devices_are_those_that_nothing_uses_whatever_their_size() {
    let nodes = [
        NodeSpec::new(vector(10, 10), 2, Units(4)),
        NodeSpec::new(vector(10, 10), 2, Units(9)),
    ];
    let mut fleet = Fleet::<u64>::new(&nodes).unwrap();
    let whole = |count| Request {
        devices: DeviceRequest::Whole(count),
        ..Request::default()
    };
    let kept = |fleet: &Fleet<u64>, count| {
        let mut kept = NodeSet::default();
        fleet.filter(&whole(count), &mut kept);
        kept.iter().map(NodeIndex::get).collect::<Vec<_>>()
    };
    assert_eq!(kept(&fleet, 2), [0, 1]);
    // The first device of the larger node still has more free than one of the smaller node has at all.
    let node = NodeIndex::new(1);
    fleet
        .take(node, &slices(0, 1, 1), DeviceSet::NONE.with(0))
        .unwrap();
    assert_eq!(kept(&fleet, 2), [0]);
    assert_eq!(kept(&fleet, 1), [0, 1]);
    assert_eq!(
        fleet.take(node, &whole(1), DeviceSet::NONE.with(0)),
        Err(ResourceError::TooLittle {
            device: 0,
            wanted: Units(9),
            has: Units(8)
        })
    );
}

#[test]
fn a_demand_larger_than_any_field_fits_nowhere() {
    let fleet = Fleet::<u64>::new(&[NodeSpec::new(vector(1, 1), 1, Units(3))]).unwrap();
    let mut kept = NodeSet::default();
    fleet.filter(&slices(0, 1, 4), &mut kept);
    assert!(kept.is_empty());
    fleet.filter(&slices(0, 1, 3), &mut kept);
    assert_eq!(kept.count(), 1, "the set serves again");
}
