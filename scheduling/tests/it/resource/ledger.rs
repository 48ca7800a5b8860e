//! The ledger against a plain list of what each device has bound.

use fdn_scheduling::resource::{
    DeviceChoice, DeviceRequest, DeviceSet, Layout, Ledger, ResourceError, Units,
};
use proptest::prelude::*;

const DEVICES: u32 = 4;
const EACH: u64 = 10;

fn ledger(most: usize) -> Ledger<u32, u64> {
    Ledger::new(
        Layout::new(DEVICES, 8).expect("a layout"),
        DEVICES,
        Units(EACH),
        most,
    )
    .expect("a layout")
}

#[test]
fn an_instance_holds_its_slices_once_and_gives_them_back_once() {
    let mut ledger = ledger(8);
    let share = DeviceRequest::share(Units(6));
    let binding = ledger.bind(7, share, DeviceChoice::MostUsed).unwrap();
    assert_eq!(binding.devices, DeviceSet::NONE.with(0));
    assert_eq!(ledger.get(7), Some(binding));
    assert_eq!(
        ledger.bind(7, share, DeviceChoice::MostUsed),
        Err(ResourceError::AlreadyBound)
    );
    let small = DeviceRequest::share(Units(4));
    let second = ledger.bind(8, small, DeviceChoice::MostUsed).unwrap();
    assert_eq!(second.devices, DeviceSet::NONE.with(0), "fills the device");
    assert_eq!(ledger.unbind(7), Ok(binding));
    assert_eq!(ledger.unbind(7), Err(ResourceError::NotBound));
    let free: Vec<u64> = ledger
        .layout()
        .unpack(ledger.free())
        .map(Units::get)
        .collect();
    assert_eq!(free, [6, 10, 10, 10]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let mut ledger = ledger(2);
    let whole = |count| DeviceRequest::Whole(count);
    let devices = |n| (0..n).collect::<DeviceSet>();
    let bound = ledger.bind(1, whole(3), DeviceChoice::LeastUsed).unwrap();
    assert_eq!((bound.devices, bound.each), (devices(3), Units(EACH)));
    assert_eq!(
        ledger.bind(2, whole(2), DeviceChoice::LeastUsed),
        Err(ResourceError::NoDevice { wanted: 2, fit: 1 })
    );
    assert_eq!(
        ledger.bind(2, DeviceRequest::share(Units(300)), DeviceChoice::LeastUsed),
        Err(ResourceError::NoDevice { wanted: 1, fit: 0 })
    );
    assert_eq!(
        ledger.bind_to(2, DeviceSet::NONE.with(4), Units(1)),
        Err(ResourceError::NoSuchDevice {
            device: 4,
            devices: 4
        })
    );
    ledger
        .bind(2, DeviceRequest::None, DeviceChoice::LeastUsed)
        .unwrap();
    assert_eq!(
        ledger.bind(3, DeviceRequest::None, DeviceChoice::LeastUsed),
        Err(ResourceError::Full { most: 2 })
    );
    assert_eq!(
        ledger
            .iter()
            .map(|(instance, _)| *instance)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(Ledger::<u32, u64>::new(Layout::new(4, 3).unwrap(), 4, Units(8), 1).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Bind(u32, u32, u64, bool),
    BindTo(u32, u32, u64),
    Unbind(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u32..20, 0u32..5, 0u64..12, any::<bool>())
            .prop_map(|(instance, count, each, most)| Step::Bind(instance, count, each, most)),
        (0u32..20, 0u32..6, 0u64..12)
            .prop_map(|(instance, device, each)| Step::BindTo(instance, device, each)),
        (0u32..20).prop_map(Step::Unbind),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn never_is_more_bound_than_a_device_has(steps in prop::collection::vec(step(), 0..80)) {
        let mut ledger = ledger(12);
        for step in steps {
            let before = (ledger.free(), ledger.iter().copied().collect::<Vec<_>>());
            let done = match step {
                Step::Bind(instance, count, each, most) => {
                    let request = DeviceRequest::Slices { count, each: Units(each) };
                    let choice = if most { DeviceChoice::MostUsed } else { DeviceChoice::LeastUsed };
                    let binding = ledger.bind(instance, request, choice);
                    if let Ok(binding) = binding {
                        prop_assert_eq!(binding.devices.len(), request.count());
                    }
                    binding.is_ok()
                }
                Step::BindTo(instance, device, each) => {
                    ledger.bind_to(instance, DeviceSet::NONE.with(device), Units(each)).is_ok()
                }
                Step::Unbind(instance) => ledger.unbind(instance).is_ok(),
            };
            let after = (ledger.free(), ledger.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(done, before.1 != after.1, "a refusal changes nothing");
            prop_assert!(done || before.0 == after.0);
            prop_assert!(after.1.len() <= 12);
            for device in 0..DEVICES {
                let bound: u64 = ledger.iter()
                    .filter(|(_, binding)| binding.devices.contains(device))
                    .map(|(_, binding)| binding.each.get())
                    .sum();
                let free = ledger.layout().get(ledger.free(), device).unwrap().get();
                prop_assert_eq!(bound + free, EACH);
            }
        }
    }
}
