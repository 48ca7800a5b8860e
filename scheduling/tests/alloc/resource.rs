//! Choosing nodes and devices, and binding slices, allocates nothing once the buffers are there.

use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::resource::{
    DeviceChoice, DeviceRequest, Fleet, GpuMilli, Layout, Ledger, NodeSpec, Request, Score,
    Selector, Typical, Units, Vector,
};

use crate::counting::allocations;

fn request(share: u64) -> Request {
    Request {
        classes: Vector::new(MilliCpu(1000), MebiBytes(1024)),
        devices: match share {
            1000.. => DeviceRequest::Whole(2),
            share => DeviceRequest::share(GpuMilli(share).units()),
        },
    }
}

#[test]
fn choosing_and_taking_allocates_nothing() {
    let capacity = Vector::new(MilliCpu(64_000), MebiBytes(262_144));
    let nodes = [NodeSpec::new(capacity, 8, GpuMilli::WHOLE.units()); 200];
    let usual = Typical::observed([request(100), request(470), request(1000)], 1.0);
    for score in [
        Score::LeastRequested,
        Score::MostBalanced,
        Score::Packing,
        Score::SmallestLeftover,
        Score::Fragmentation(usual),
    ] {
        let mut fleet = Fleet::<u128>::new(&nodes).unwrap();
        let mut selector = Selector::new(score, DeviceChoice::MostUsed, nodes.len());
        // The memory of the fragmentation score is made with the first choice.
        selector.choose(&fleet, &request(100)).unwrap();
        let count = allocations(|| {
            for share in [100, 470, 1000, 320].into_iter().cycle().take(200) {
                let choice = selector.choose(&fleet, &request(share)).unwrap();
                fleet
                    .take(choice.node, &request(share), choice.devices)
                    .unwrap();
                if share == 320 {
                    fleet
                        .give_back(choice.node, &request(share), choice.devices)
                        .unwrap();
                }
            }
        });
        assert_eq!(count, 0);
    }
}

#[test]
fn binding_allocates_nothing() {
    let layout = Layout::<u128>::new(8, 10).unwrap();
    let mut ledger = Ledger::<u32, _>::new(layout, 8, Units(1000), 16).unwrap();
    let count = allocations(|| {
        for round in 0..100u32 {
            let share = DeviceRequest::share(Units(400));
            ledger.bind(round, share, DeviceChoice::MostUsed).unwrap();
            if round >= 8 {
                ledger.unbind(round - 8).unwrap();
            }
        }
    });
    assert_eq!(count, 0);
}
