mod model;

use std::collections::BTreeSet;

use fdn_core::device::{DeviceState, GpuRequest};
use fdn_core::{AppName, ByteSize, DeviceId, InstanceId, MebiBytes, Timestamp};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::settings::{DevicesSettings, SimulatedGroup};

const GIB: u64 = 1024;

fn id(n: u128) -> InstanceId {
    InstanceId::from_uuid(Uuid::from_u128(n))
}

fn app() -> AppName {
    "thumbs".parse().expect("app")
}

fn gpus(count: u32, mib: u64) -> Vec<Device> {
    let group = SimulatedGroup {
        count,
        memory: ByteSize::from_mib(mib),
        ..SimulatedGroup::default()
    };
    group.devices()
}

fn allocations(devices: Vec<Device>) -> AllocationTable {
    let mut allocations = AllocationTable::new(DevicesSettings::default().allocations());
    allocations.inventory(devices).expect("devices");
    allocations
}

fn ask(mib: u64) -> GpuRequest {
    GpuRequest::of_memory(ByteSize::from_mib(mib))
}

fn only(bound: &Binding) -> &str {
    bound.devices.first().expect("a device").as_str()
}

#[test]
fn slices_fill_one_device_before_the_next() {
    let mut allocations = allocations(gpus(2, 16 * GIB));
    for (n, device) in [(1, "SIM-0"), (2, "SIM-0"), (3, "SIM-1")] {
        let bound = allocations
            .bind(id(n), &app(), &ask(7 * GIB))
            .expect("room");
        assert_eq!(only(&bound), device);
    }
    let error = allocations
        .bind(id(4), &app(), &ask(10 * GIB))
        .expect_err("full");
    assert!(
        matches!(error, BindError::NoRoom { count: 1, .. }),
        "{error}"
    );
    let error = allocations
        .bind(id(4), &app(), &ask(17 * GIB))
        .expect_err("too large");
    assert!(matches!(error, BindError::Never { .. }), "{error}");
    // A device that is in use could provide more than is free now, but never more than it has.
    assert!(allocations.check_feasible(&ask(10 * GIB)).is_ok());
    let lacking = allocations
        .check_feasible(&ask(17 * GIB))
        .expect_err("too large");
    assert!(matches!(lacking, BindError::Never { .. }), "{lacking}");
    let none = self::allocations(Vec::new());
    let lacking = none
        .check_feasible(&ask(GIB))
        .expect_err("no device")
        .to_string();
    assert!(lacking.ends_with("there is no device"), "{lacking}");
    allocations.unbind(id(1)).expect("bound");
    assert!(matches!(
        allocations.unbind(id(1)),
        Err(BindError::NotBound(_))
    ));
    let bound = allocations
        .bind(id(4), &app(), &ask(9 * GIB))
        .expect("room");
    assert_eq!(only(&bound), "SIM-0", "exactly what is left there");
}

#[test]
fn as_few_as_it_takes_are_in_the_way_and_the_first_go_first() {
    let mut allocations = allocations(gpus(2, 16 * GIB));
    // SIM-0 has 6 and 10 GiB bound; SIM-1 has 8 bound and 8 free.
    for (n, mib) in [(1, 6 * GIB), (2, 10 * GIB), (3, 8 * GIB)] {
        allocations.bind(id(n), &app(), &ask(mib)).expect("room");
    }
    let all = [id(1), id(2), id(3)];
    let of = |mib, idle: &[InstanceId]| allocations.instances_to_evict(&ask(mib), idle);
    assert_eq!(of(8 * GIB, &all), Some(vec![]), "there is room");
    assert_eq!(
        of(10 * GIB, &all),
        Some(vec![id(2)]),
        "6 GiB of the first are of no use"
    );
    assert_eq!(of(9 * GIB, &[id(3), id(2)]), Some(vec![id(3)]));
    assert_eq!(of(16 * GIB, &[id(1), id(2)]), Some(vec![id(1), id(2)]));
    assert_eq!(of(16 * GIB, &[id(1)]), None, "the rest is in use");
    assert_eq!(of(17 * GIB, &all), None, "never");
    assert_eq!(of(10 * GIB, &[id(9), id(2)]), Some(vec![id(2)]));
}

proptest! {
    #[test]
    fn without_those_in_the_way_there_is_room_and_with_any_of_them_there_is_none(
        sizes in proptest::collection::vec(1_u64..16, 1..24),
        idle in proptest::collection::vec(0_u128..24, 0..24),
        wanted in 1_u64..17,
        count in 1_u32..4,
    ) {
        let mut allocations = allocations(gpus(3, 16 * GIB));
        for (n, gib) in (0..).zip(sizes) {
            // Instances that find no room are not bound.
            drop(allocations.bind(id(n), &app(), &ask(gib * GIB)));
        }
        let request = GpuRequest { count, ..ask(wanted * GIB) };
        let idle: Vec<InstanceId> = idle.into_iter().map(id).collect();
        let without = |gone: &[InstanceId]| {
            let mut allocations = allocations.clone();
            for instance in gone {
                drop(allocations.unbind(*instance));
            }
            allocations.bind(id(99), &app(), &request).is_ok()
        };
        match allocations.instances_to_evict(&request, &idle) {
            Some(going) => {
                prop_assert!(without(&going));
                prop_assert!(going.iter().all(|one| idle.contains(one)));
                for at in 0..going.len() {
                    let mut fewer = going.clone();
                    fewer.remove(at);
                    prop_assert!(!without(&fewer));
                }
            }
            None => prop_assert!(!without(&idle)),
        }
    }
}

#[test]
fn several_devices_are_several_and_of_one_model() {
    let mut devices = gpus(2, 16 * GIB);
    devices[1].model = "NVIDIA H200".into();
    let mut mixed = allocations(devices);
    let two = GpuRequest {
        count: 2,
        ..ask(GIB)
    };
    let error = mixed.bind(id(1), &app(), &two).expect_err("two models");
    assert!(matches!(error, BindError::Never { .. }), "{error}");
    let model = GpuRequest {
        model: Some("h200".parse().expect("model")),
        ..ask(GIB)
    };
    let bound = mixed.bind(id(1), &app(), &model).expect("room");
    assert_eq!(only(&bound), "SIM-1");
    let bound = allocations(gpus(3, 16 * GIB))
        .bind(id(1), &app(), &two)
        .expect("room");
    assert_eq!(bound.devices.len(), 2);
}

#[test]
fn cores_are_kept_account_of_beside_memory() {
    let mut allocations = allocations(gpus(1, 80 * GIB));
    let most = GpuRequest {
        cores: Some(70.try_into().expect("percent")),
        ..ask(GIB)
    };
    allocations.bind(id(1), &app(), &most).expect("room");
    let error = allocations.bind(id(2), &app(), &most).expect_err("140 %");
    assert!(matches!(error, BindError::NoRoom { .. }), "{error}");
    allocations
        .bind(id(2), &app(), &ask(GIB))
        .expect("whoever wants no share has room");
    allocations.unbind(id(1)).expect("bound");
    allocations.bind(id(3), &app(), &most).expect("room again");
}

#[test]
fn more_devices_than_a_word_holds_are_several_banks() {
    let group = SimulatedGroup {
        count: 8,
        mig: 7,
        ..SimulatedGroup::default()
    };
    let mut allocations = allocations(group.devices());
    for n in 0..56 {
        allocations
            .bind(id(n), &app(), &ask(11 * GIB))
            .expect("a MIG instance each");
    }
    let used: BTreeSet<_> = allocations
        .status()
        .into_iter()
        .filter(|d| d.slices.len() == 1)
        .map(|d| d.id)
        .collect();
    assert_eq!(used.len(), 56);
    assert!(allocations.bind(id(57), &app(), &ask(11 * GIB)).is_err());
}

#[test]
fn a_device_out_of_service_keeps_what_it_has_and_gives_nothing() {
    let mut allocations = allocations(gpus(1, 16 * GIB));
    let device: DeviceId = "SIM-0".parse().expect("id");
    allocations.bind(id(1), &app(), &ask(GIB)).expect("room");
    let affected = allocations.take_out_of_service(&device, "Xid 79", Timestamp(7));
    assert_eq!(affected.instances, [id(1)].into());
    assert!(allocations.get(id(1)).is_some());
    assert!(matches!(
        allocations.bind(id(2), &app(), &ask(GIB)),
        Err(BindError::NoRoom { .. })
    ));
    let state = allocations.status()[0].state.clone();
    assert_eq!(
        state,
        DeviceState::OutOfService {
            reason: "Xid 79".into(),
            since: Timestamp(7)
        }
    );
    assert_eq!(allocations.totals(), (MebiBytes(0), MebiBytes(16 * GIB)));
    // It stays out of service when it falls off the bus and comes back, and after a restart.
    allocations.inventory(Vec::new()).expect("devices");
    allocations.inventory(gpus(1, 16 * GIB)).expect("devices");
    allocations
        .unbind(id(1))
        .expect("it was lost with the device");
    let saved = allocations.to_saved("boot");
    let mut allocations =
        AllocationTable::from_saved(DevicesSettings::default().allocations(), saved)
            .expect("allocations");
    assert!(allocations.bind(id(2), &app(), &ask(GIB)).is_err());
    allocations.return_to_service(&device);
    allocations
        .bind(id(2), &app(), &ask(GIB))
        .expect("room again");
}

#[test]
fn a_fault_of_a_gpu_is_one_of_all_its_parts() {
    let group = SimulatedGroup {
        count: 2,
        mig: 2,
        ..SimulatedGroup::default()
    };
    let mut allocations = allocations(group.devices());
    let affected =
        allocations.take_out_of_service(&"SIM-0".parse().expect("id"), "Xid 48", Timestamp(1));
    let ids: Vec<&str> = affected.devices.iter().map(DeviceId::as_str).collect();
    assert_eq!(ids, ["SIM-0-mig-0", "SIM-0-mig-1"]);
    let bound = allocations
        .bind(id(1), &app(), &ask(GIB))
        .expect("the other GPU");
    assert!(only(&bound).starts_with("SIM-1"));
}

#[test]
fn a_smaller_device_gives_nothing_out_until_who_lost_his_slice_has_ended() {
    let mut allocations = allocations(gpus(1, 16 * GIB));
    allocations
        .bind(id(1), &app(), &ask(6 * GIB))
        .expect("room");
    allocations
        .bind(id(2), &app(), &ask(6 * GIB))
        .expect("room");
    let affected = allocations.inventory(gpus(1, 10 * GIB)).expect("devices");
    assert_eq!(affected.instances, [id(2)].into());
    assert!(allocations.get(id(2)).is_none());
    assert!(matches!(
        allocations.bind(id(3), &app(), &ask(GIB)),
        Err(BindError::NoRoom { .. })
    ));
    allocations.unbind(id(2)).expect("it has ended");
    allocations
        .bind(id(3), &app(), &ask(4 * GIB))
        .expect("room again");
    // The device vanishes and returns: its slices are lost.
    let affected = allocations.inventory(Vec::new()).expect("devices");
    assert_eq!(affected.instances, [id(1), id(3)].into());
    allocations.inventory(gpus(1, 16 * GIB)).expect("devices");
    assert!(allocations.bind(id(4), &app(), &ask(GIB)).is_err());
    allocations.unbind(id(1)).expect("known");
    allocations.unbind(id(3)).expect("known");
    allocations
        .bind(id(4), &app(), &ask(16 * GIB))
        .expect("all of it");
}

#[test]
fn what_runs_is_right() {
    let mut allocations = allocations(gpus(2, 16 * GIB));
    let first = allocations
        .bind(id(1), &app(), &ask(10 * GIB))
        .expect("room");
    allocations.bind(id(2), &app(), &ask(GIB)).expect("room");
    let stranger = |n, devices: &[&str], mib| Binding {
        instance: id(n),
        app: app(),
        memory: MebiBytes(mib),
        cores: None,
        devices: devices.iter().map(|d| d.parse().expect("id")).collect(),
    };
    let running = vec![
        first,
        stranger(3, &["SIM-1"], 4 * GIB),
        stranger(4, &["SIM-0"], 10 * GIB),
        stranger(5, &["GPU-unknown"], GIB),
    ];
    let done = allocations.reconcile(running).expect("reconciled");
    assert_eq!(done.kept, [id(1)].into());
    assert_eq!(done.released, [id(2)].into());
    assert_eq!(done.adopted, [id(3)].into());
    assert_eq!(done.lost, [id(4), id(5)].into());
    // Instance 4 uses SIM-0 and must end first.
    let bound = allocations.bind(id(6), &app(), &ask(GIB)).expect("room");
    assert_eq!(only(&bound), "SIM-1");
    allocations.unbind(id(4)).expect("ended");
    let bound = allocations
        .bind(id(7), &app(), &ask(6 * GIB))
        .expect("room");
    assert_eq!(only(&bound), "SIM-0");
}
