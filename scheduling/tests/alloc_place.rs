//! Placing allocates nothing per task or candidate: a warm placer allocates only the plan that it returns and a few short lists, as
//! many for a large job as for a small one.
#![allow(
    unsafe_code,
    reason = "an allocator that counts has to implement an unsafe trait"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fdn_core::Millis;
use fdn_scheduling::place::{Budget, Detail, Hold, Options, Policy, Problem};

#[path = "it/random.rs"]
mod random;

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts on the way.
struct Counting;

fn count() {
    // A thread that is going down no longer counts.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer comes from `alloc` or `realloc` above, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often the second of two placements allocates.
fn warm(policy: Policy, tasks: usize, hold: Hold) -> u64 {
    let job = random::random_job(tasks, 5, 7);
    let problem = Problem::new(&job.dag, &job.clusters, &job.network, &job.distance)
        .expect("a consistent problem")
        .with_options(Options {
            hold,
            ..Options::default()
        });
    let mut placer = policy.placer(Budget::default());
    let first = placer.place(&problem, Detail::Nothing).expect("unlimited");
    let before = ALLOCATIONS.get();
    let second = placer.place(&problem, Detail::Nothing).expect("unlimited");
    let during = ALLOCATIONS.get() - before;
    assert_eq!(first.plan, second.plan);
    assert!(second.plan.latency() > Millis::ZERO);
    during
}

#[test]
fn a_warm_placer_allocates_the_plan_and_little_else() {
    for policy in Policy::ALL {
        // The portfolio makes four plans.
        let most = if policy == Policy::Portfolio { 28 } else { 8 };
        for hold in [Hold::Job, Hold::Task] {
            let (small, large) = (warm(policy, 50, hold), warm(policy, 800, hold));
            assert_eq!(small, large, "{policy}");
            assert!(large <= most, "{policy}: {large}");
        }
    }
}
