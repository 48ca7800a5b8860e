//! The memory shares of apps and of tenants.

use proptest::prelude::*;

use super::properties::{keep, shape, step};
use super::*;

/// Functions 0 and 2 belong to one app, function 1 to another; each instance holds 10.
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

/// Starts ordered instances until no more are ordered.
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
        [(busy[0], ReleaseReason::Evicted)],
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

/// Each function belongs to an app of its own, and each instance holds 10: apps 0, 1 and 3 belong to one tenant, app 2 to another.
fn two_tenants(memory: u64) -> World {
    let settings = PoolSettings {
        app_share: 75.try_into().expect("a share"),
        tenant_share: 90.try_into().expect("a share"),
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
    let shapes = [shape(), shape(), shape(), shape()];
    let mut world = World::of_apps(settings, keep, memory, &shapes, 4);
    for (app, tenant) in [1, 1, 2, 1].into_iter().enumerate() {
        world.set_tenant(app, tenant);
    }
    world
}

#[test]
fn two_apps_of_a_tenant_whose_calls_hang_leave_room_for_other_tenants() {
    let mut world = two_tenants(100);
    for _ in 0..40 {
        world.arrive(0);
        world.arrive(1);
    }
    grow(&mut world);
    assert_eq!(world.held_by_tenant(1), (90, 9, 90), "of 100");
    assert_eq!(world.pool.apps_at_share(), 2);
    world.arrive(3);
    assert_eq!(world.starting.len(), 0, "nor has its third app any");
    assert_eq!(world.pool.apps_at_share(), 3);
    world.arrive(2);
    assert_eq!(world.starting.len(), 1, "another tenant has room at once");
    world.arrive(2);
    let container = world.start(0);
    // Until the function's autoscaler wants two.
    world.pass(3000.0);
    assert_eq!(world.starting.len(), 0, "9 of the 10 that are left to it");
    assert_eq!(world.pool.apps_at_share(), 4);
    world.end(container);
    assert_eq!(
        world.busy().len(),
        10,
        "none of the first tenant's has ended"
    );
    world.drain();
    assert_eq!(world.served.len(), 83);
    assert_eq!(world.pool.apps_at_share(), 0, "nobody waits any more");
}

#[test]
fn idle_instances_of_a_tenant_give_way_to_its_other_apps_first() {
    let mut world = two_tenants(50);
    world.arrive(2);
    let other = world.start(0);
    world.end(other);
    for _ in 0..3 {
        world.arrive(0);
    }
    world.arrive(1);
    grow(&mut world);
    let busy = world.busy();
    assert_eq!(world.held_by_tenant(1), (40, 4, 40), "of 45");
    world.arrive(3);
    assert_eq!(world.starting.len(), 0, "all are busy");
    // The other tenant's instance has been idle for longer.
    let before = world.stopped.len();
    world.end(busy[1]);
    assert_eq!(world.stopped[before..], [(busy[1], ReleaseReason::Evicted)]);
    assert_eq!(world.starting.len(), 1);
    world.start(0);
    assert_eq!(world.held_by_tenant(2), (10, 1, 0));
    world.drain();
}

#[test]
fn what_others_do_not_keep_busy_is_left_and_what_they_end_is_told() {
    let mut world = two_tenants(100);
    for _ in 0..5 {
        world.arrive(2);
    }
    grow(&mut world);
    for _ in 0..3 {
        world.arrive(0);
        world.arrive(1);
    }
    grow(&mut world);
    assert_eq!(world.held_by_tenant(1), (40, 4, 40), "45 of the 50 left");
    let of_other = world.busy_of(2);
    world.end(of_other[0]);
    assert_eq!(world.starting.len(), 1, "54 of 60");
    world.start(0);
    // Until it is late, the next call waits for its own instance rather than take the place of another tenant's.
    world.pass(1000.0);
    assert_eq!(world.starting.len(), 0);
    world.end(of_other[1]);
    assert_eq!(world.starting.len(), 1, "63 of 70");
    world.drain();
    assert_eq!(world.served.len(), 11);
}

#[test]
fn a_tenant_alone_has_all_and_takes_no_more_once_another_is_there() {
    let mut world = two_tenants(100);
    world.set_tenant(2, 1);
    for _ in 0..40 {
        world.arrive(0);
        world.arrive(1);
    }
    grow(&mut world);
    assert_eq!(world.held_by_tenant(1).0, 100);
    world.set_tenant(2, 2);
    world.arrive(2);
    assert_eq!(world.starting.len(), 0, "nothing is taken from anybody");
    let busy = world.busy();
    world.crash(busy[0]);
    assert_eq!(world.starting.len(), 1, "what ends is the other's");
    world.start(0);
    assert_eq!(world.held_by_tenant(2), (10, 1, 10));
    world.drain();
    // Including the call that came back.
    assert_eq!(world.served.len(), 82);
}

#[test]
fn a_tenant_whose_last_function_is_gone_leaves_all() {
    let mut world = two_tenants(100);
    for _ in 0..40 {
        world.arrive(0);
        world.arrive(1);
    }
    grow(&mut world);
    assert_eq!(world.held_by_tenant(1).0, 90);
    let gone = world.functions[2].0;
    world.pool.retire(world.at(), gone);
    // Its app no longer belongs to the other tenant.
    world.tenants[2] = 1;
    world.look();
    assert_eq!(world.starting.len(), 1, "nobody is left to leave it to");
    world.drain();
}

impl World {
    /// Instances of an app that run calls.
    fn busy_of(&self, app: usize) -> Vec<ContainerId> {
        let mut busy = self.busy();
        let index = self.functions[app].0;
        busy.retain(|container| self.live[container].function == Some(index));
        busy
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No tenant exceeds its share of what others leave (in [`World::check_tenant`]), however tenants are assigned to apps, and no call waits in
    /// the end.
    #[test]
    fn no_tenant_passes_its_share_and_no_call_is_lost(
        shapes in prop::collection::vec(shape(), 1..8),
        memory in 40u64..300,
        (app_share, share) in (1u8..=100, 1u8..100),
        policy in 0usize..4,
        order in prop::sample::select(vec![Order::FuncSched, Order::Fcfs]),
        steps in prop::collection::vec(
            prop_oneof![
                12 => step().prop_map(Ok),
                1 => (0usize..5, 0u128..3).prop_map(Err),
            ],
            1..200,
        ),
    ) {
        let settings = PoolSettings {
            app_share: app_share.try_into().expect("a share"),
            tenant_share: share.try_into().expect("a share"),
            ..settings(order)
        };
        let mut world = World::of_apps(settings, keep(policy), memory, &shapes, 5);
        for step in &steps {
            match step {
                Ok(step) => world.apply(step),
                Err((app, tenant)) => world.set_tenant(*app, *tenant),
            }
        }
        world.drain();
        prop_assert!(world.waiting.is_empty());
    }

    /// No app exceeds its share after any event (in [`World::check`]), and no call waits in the end.
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
