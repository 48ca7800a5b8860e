//! A tick of an autoscaler allocates nothing.
#![allow(
    unsafe_code,
    reason = "counting allocations means being the allocator; nothing but a counter is added"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fdn_core::Millis;
use fdn_scheduling::scale::{
    Autoscaler, Keep, Load, Profile, Proportional, Scaler, Settings, Size,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![0u8; 100]))) >= 1);
}

#[test]
fn a_tick_allocates_nothing() {
    let profile = Profile {
        exec: Millis::new(150.0),
        cold: Millis::new(2500.0),
    };
    let settings = Settings::default();
    let scalers: [Box<dyn Scaler>; 2] = [
        Box::new(Autoscaler::new(settings, profile).unwrap()),
        Box::new(Proportional::new(settings).unwrap()),
    ];
    for mut scaler in scalers {
        let count = allocations(|| {
            let mut size = Size::default();
            for n in 0..1000u64 {
                let load = Load {
                    arrivals: n % 7 * 10,
                    busy: (n % 5) as f64,
                    executing: n % 5,
                    queued: n % 3 * 20,
                };
                // Sometimes late, sometimes with nothing to see.
                let now = Millis::new((2000 * n + n % 11 * 900) as f64);
                let seen = (n % 13 != 0).then_some(&load);
                let decision = scaler.tick(now, size, seen, Keep::Grace);
                size.running = decision.wanted;
            }
        });
        assert_eq!(count, 0, "{}", scaler.name());
    }
}
