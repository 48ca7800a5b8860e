//! Choosing nodes and devices, and binding slices, allocates nothing once the buffers are there.
#![allow(
    unsafe_code,
    reason = "counting allocations means being the allocator; nothing but a counter is added"
)]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::resource::{
    DeviceChoice, DeviceRequest, Fleet, GpuMilli, Layout, Ledger, NodeSpec, Request, Score,
    Selector, Typical, Units, Vector,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: the pointer came from `System`.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

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
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![0u8; 100]))) >= 1);
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
