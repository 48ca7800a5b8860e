//! The system's allocator, counting what each thread asks for and holds.
#![allow(
    unsafe_code,
    reason = "counting allocations takes an allocator, and its trait is unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
    /// Bytes asked for less those given back; what another thread gave back counts there.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that ends has no counter any more, and nobody asks for it.
    let _ = ASKED.try_with(|count| count.set(count.get() + 1));
}

fn hold(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().wrapping_add_unsigned(bytes as u64)));
}

fn give_back(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().wrapping_sub_unsigned(bytes as u64)));
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size());
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        give_back(layout.size());
        hold(size);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` asks the allocator for memory, for more of it or for other.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

/// What a value takes, itself included: bytes.
pub(crate) fn bytes<T>(make: impl FnOnce() -> T) -> usize {
    let before = HELD.get();
    let value = make();
    let taken = HELD.get() - before;
    drop(value);
    usize::try_from(taken).expect("making a value gives nothing back") + size_of::<T>()
}

#[test]
fn the_counter_counts() {
    let mut kept = Vec::new();
    assert!(allocations(|| kept.push(std::hint::black_box(1u8))) >= 1);
    assert!(allocations(|| kept.reserve_exact(100)) >= 1);
    assert_eq!(allocations(|| kept.push(2)), 0);
    assert_eq!(bytes(|| [7u8; 10]), 10);
    assert_eq!(bytes(|| vec![7u8; 10]), 10 + size_of::<Vec<u8>>());
}
