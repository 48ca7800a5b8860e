//! What the instances of one app hold together.

use proptest::prelude::*;

use super::properties::{keep, shape, step};
use super::*;

/// Functions 0 and 2 are of one app, function 1 of another; each instance holds ten.
fn world(memory: u64, share: u8) -> World {
    let settings = PoolSettings {
        app_share: share.try_into().expect("a share"),
        pause_after: None,
        ..settings(Order::Fcfs)
    };
    let shape = || Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency: 1,
    };
    let keep = Box::new(Fixed::new(ms(600_000.0)));
    World::with(settings, keep, memory, &[shape(), shape(), shape()])
}

/// Starts whatever is ordered, for as long as anything is.
fn grow(world: &mut World) {
    for _ in 0..100 {
        world.pass(50.0);
        while !world.starting.is_empty() {
            world.start(0);
        }
    }
}

#[test]
fn one_app_whose_calls_hang_leaves_room_for_the_others() {
    let mut world = world(100, 75);
    for _ in 0..40 {
        world.arrive(0);
        world.arrive(2);
    }
    grow(&mut world);
    assert_eq!(world.held_by(0), (70, 7), "of 100, with a share of 75");
    assert_eq!(world.busy().len(), 7, "and none of its calls ends");
    assert_eq!(world.pool.apps_at_share(), 1);
    world.arrive(1);
    assert_eq!(world.starting.len(), 1, "another app has room at once");
    let container = world.start(0);
    world.end(container);
    assert_eq!(world.held_by(1), (10, 1));
    world.drain();
    assert_eq!(world.served.len(), 81);
    assert_eq!(
        world.pool.apps_at_share(),
        0,
        "nobody waits for it any more"
    );
}

#[test]
fn an_idle_instance_makes_room_for_another_function_of_its_app() {
    let mut world = world(40, 50);
    for _ in 0..2 {
        world.arrive(0);
    }
    grow(&mut world);
    assert_eq!(world.held_by(0), (20, 2));
    world.arrive(2);
    assert_eq!(world.starting.len(), 0, "both are busy");
    let busy = world.busy();
    world.end(busy[0]);
    assert_eq!(
        world.stopped,
        [(busy[0], Why::Evicted)],
        "though 20 are free"
    );
    assert_eq!(world.starting.len(), 1);
    world.drain();
}

#[test]
fn an_app_may_have_one_instance_however_large() {
    let mut world = world(12, 50);
    world.arrive(0);
    world.arrive(2);
    world.drain();
    assert_eq!(world.served.len(), 2, "one after the other");
}

#[test]
fn with_all_of_it_for_one_app_nothing_is_counted() {
    let mut world = world(100, 100);
    for _ in 0..40 {
        world.arrive(0);
    }
    grow(&mut world);
    assert_eq!(world.held_by(0), (100, 10));
    assert_eq!(world.pool.apps_at_share(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No app passes its share after any event (in [`World::check`]), and in the end nobody waits.
    #[test]
    fn no_app_passes_its_share_and_no_call_is_lost(
        shapes in prop::collection::vec(shape(), 1..6),
        memory in 40u64..300,
        share in 1u8..100,
        policy in 0usize..4,
        order in prop::sample::select(vec![Order::FuncSched, Order::Fcfs]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let settings = PoolSettings {
            app_share: share.try_into().expect("a share"),
            ..settings(order)
        };
        let mut world = World::with(settings, keep(policy), memory, &shapes);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
        prop_assert!(world.waiting.is_empty());
    }
}
