//! Pre-scheduler and committer allocate nothing per list.

#![allow(
    unsafe_code,
    reason = "counting allocations takes an allocator, and its trait is unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Committer, Container, LeastRequested, List, Look, PreScheduler, Settings, Verdict,
    View, Whereabouts,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting what the current thread asks for.
struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

const NODES: u32 = 200;
const CONTAINERS: u128 = 400;

fn container(number: u128) -> Container {
    Container {
        id: InstanceId::from_uuid(Uuid::from_u128(number)),
        demand: Resources::new(MilliCpu(1000), MebiBytes(512)),
    }
}

#[test]
fn taking_listing_and_committing_allocate_nothing() {
    let part = Look::Part { index: 0, of: 2 };
    for (look, length) in [
        (Look::All, 8),
        (Look::Sample(50), 8),
        (part, 8),
        (Look::Dealt { hands: 10 }, 8),
        (Look::All, 0),
    ] {
        let mut committer =
            Committer::new(Settings::default(), LeastRequested).expect("settings of use");
        let mut served = Vec::new();
        for _ in 0..NODES {
            let capacity = Resources::new(MilliCpu(4000), MebiBytes(2048));
            committer.add_node(capacity, &mut served).expect("room");
        }
        let choice = Choice {
            length,
            look,
            ..Choice::default()
        };
        let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut view, mut lists) = (View::default(), vec![List::default(); 2]);
        let mut pass = |committer: &mut Committer<LeastRequested>| {
            for number in 0..CONTAINERS {
                committer.submit(container(number)).expect("room");
            }
            let before = allocations();
            // Two lists at a time from one view, so that every second one finds its nodes changed.
            while committer.count(Whereabouts::Pending) > 0 {
                view.read(committer.store());
                for list in &mut lists {
                    let assignment = committer.take(Millis::ZERO).expect("pending");
                    pre_scheduler.list(&assignment, view.records(), &mut rng, list);
                }
                for list in &lists {
                    let verdict = committer.commit(list).verdict;
                    assert!(matches!(verdict, Verdict::Placed(_)), "{verdict:?}");
                }
            }
            let counted = allocations() - before;
            for number in 0..CONTAINERS {
                committer.release(container(number).id, &mut served);
            }
            counted
        };
        assert!(pass(&mut committer) > 0, "the first pass makes the buffers");
        assert_eq!(pass(&mut committer), 0, "h = {length}, {look:?}");
    }
}
