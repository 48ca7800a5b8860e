//! The order in which those who wait for a place are let in.

use fdn_core::Millis;
use fdn_scheduling::invocation::{AdmissionQueue, Guard, Order, Refusal, RequestId, Settings};
use proptest::prelude::*;

use super::world::{ms, profile};

fn drain(admission_queue: &mut AdmissionQueue, now: Millis) -> Vec<u64> {
    let mut started = Vec::new();
    while let Some(candidate) = admission_queue.next(now) {
        started.extend(admission_queue.start(candidate).map(|request| request.0));
    }
    started
}

#[test]
fn smallest_memory_time_first_cold_start_included_unless_warm() {
    let mut admission_queue = AdmissionQueue::new(&Settings::default()).expect("valid");
    let slow = admission_queue
        .register(profile(40.0, 0.0, 8))
        .expect("room");
    let python = admission_queue
        .register(profile(1.0, 100.0, 8))
        .expect("room");
    let quick = admission_queue
        .register(profile(5.0, 0.0, 8))
        .expect("room");
    for (request, function) in [(0, slow), (1, python), (2, quick), (3, slow)] {
        admission_queue
            .enqueue(ms(0.0), RequestId(request), function)
            .expect("room");
    }
    admission_queue.know(python, profile(1.0, 100.0, 8), true);
    assert_eq!(drain(&mut admission_queue, ms(1.0)), [1, 2, 0, 3]);
    admission_queue.know(python, profile(1.0, 100.0, 8), false);
    for (request, function) in [(4, slow), (5, python), (6, quick)] {
        admission_queue
            .enqueue(ms(2.0), RequestId(request), function)
            .expect("room");
    }
    assert_eq!(
        drain(&mut admission_queue, ms(2.0)),
        [6, 4, 5],
        "loading counts while none is warm"
    );
}

#[test]
fn who_waited_too_long_goes_first_within_the_share() {
    let settings = Settings {
        starvation: Some(Guard::new(ms(100.0), 0.5).expect("valid")),
        ..Settings::default()
    };
    let mut admission_queue = AdmissionQueue::new(&settings).expect("valid");
    let large = admission_queue
        .register(profile(10.0, 0.0, 10))
        .expect("room");
    let small = admission_queue
        .register(profile(1.0, 0.0, 1))
        .expect("room");
    for request in 0..2 {
        admission_queue
            .enqueue(ms(0.0), RequestId(request), large)
            .expect("room");
    }
    for request in 2..4 {
        admission_queue
            .enqueue(ms(99.0), RequestId(request), small)
            .expect("room");
    }
    let first = admission_queue.next(ms(100.0)).expect("somebody waits");
    assert!(first.for_its_age && first.function == large);
    assert_eq!(admission_queue.start(first), Some(RequestId(0)));
    let second = admission_queue.next(ms(100.0)).expect("somebody waits");
    assert!(
        !second.for_its_age && second.function == small,
        "the starved had their share"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let interrupting = Settings {
        order: Order::RoundRobin { quantum: ms(100.0) },
        ..Settings::default()
    };
    assert!(matches!(
        AdmissionQueue::new(&interrupting),
        Err(Refusal::InvalidSetting { .. })
    ));
    let mut settings = Settings::default();
    settings.tables.functions = 1;
    settings.queue.total = 1;
    let mut admission_queue = AdmissionQueue::new(&settings).expect("valid");
    let only = admission_queue
        .register(profile(1.0, 1.0, 1))
        .expect("room");
    assert!(matches!(
        admission_queue.register(profile(1.0, 1.0, 1)),
        Err(Refusal::TableFull { .. })
    ));
    let ticket = admission_queue
        .enqueue(ms(0.0), RequestId(0), only)
        .expect("room");
    assert_eq!(
        admission_queue.enqueue(ms(0.0), RequestId(1), only),
        Err(Refusal::QueueFull { limit: 1 })
    );
    assert_eq!(
        admission_queue.retire(only),
        Err(Refusal::InUse { function: only })
    );
    assert_eq!(admission_queue.cancel(ticket), Some(RequestId(0)));
    assert_eq!(admission_queue.cancel(ticket), None);
    admission_queue.retire(only).expect("nobody waits");
    assert_eq!(
        admission_queue.register(profile(2.0, 2.0, 2)),
        Ok(only),
        "the row is used again"
    );
}

proptest! {
    /// Against a sort: all wait, then all are let in.
    #[test]
    fn all_are_let_in_once_in_the_order_of_formula_10(
        functions in prop::collection::vec((1u32..50, 0u32..50, 1u64..50, any::<bool>()), 1..8),
        calls in prop::collection::vec(0usize..8, 1..60),
    ) {
        let mut admission_queue = AdmissionQueue::new(&Settings::default()).expect("valid");
        let mut known = Vec::new();
        for (execution, cold, memory, warm) in functions {
            let profile = profile(f64::from(execution), f64::from(cold), memory);
            let function = admission_queue.register(profile).expect("room");
            admission_queue.know(function, profile, warm);
            known.push((function, profile.memory_time(!warm)));
        }
        let mut expected = Vec::new();
        for (at, pick) in calls.iter().enumerate() {
            let (function, rank) = known[pick % known.len()];
            admission_queue.enqueue(ms(at as f64), RequestId(at as u64), function).expect("room");
            expected.push((rank, function, at as u64));
        }
        let started = drain(&mut admission_queue, ms(1e6));
        // Of two functions with equal rank the one whose head came first goes first, call by call.
        let ranks = |order: &[u64]| order.iter().map(|at| expected[*at as usize].0).collect::<Vec<_>>();
        prop_assert!(ranks(&started).is_sorted());
        for (function, _) in known {
            let mine: Vec<u64> = started.iter().copied().filter(|at| expected[*at as usize].1 == function).collect();
            prop_assert!(mine.is_sorted(), "first come, first served within a function");
        }
        let mut all = started.clone();
        all.sort_unstable();
        prop_assert_eq!(all, (0..calls.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(admission_queue.waiting(), 0);
    }
}
