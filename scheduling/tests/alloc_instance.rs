//! The schedulers of instances decide without allocating: their tables are as large as their limits from the start.
#![allow(
    unsafe_code,
    reason = "counting allocations takes a global allocator, whose trait is unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use fdn_core::Millis;

#[path = "it/instances/loopback.rs"]
mod loopback;

use loopback::Loopback;

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_decision_allocates() {
    use fdn_scheduling::instance::Policy;
    for policy in [
        Policy::LocalProbeGlobal,
        Policy::Hints,
        Policy::BottomUp,
        Policy::ReProbing,
        Policy::LateBinding,
    ] {
        let mut cluster = Loopback::new(policy, 50, 20, Millis::new(13.0));
        cluster.run(100_000);
        let (before, started) = (COUNT.load(Ordering::Relaxed), cluster.started());
        cluster.run(20_000);
        let allocations = COUNT.load(Ordering::Relaxed) - before;
        // With late binding some questions wait.
        let started = cluster.started() - started;
        assert!((19_900..20_100).contains(&started), "{policy:?}: {started}");
        assert_eq!(allocations, 0, "{policy:?}: in some 100 000 decisions");
    }
}
