use super::*;

/// An instance with two seats that has served a call and was paused after two seconds; its next call waits for it to resume.
fn asleep() -> (World, ContainerId) {
    let shape = Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency: 2,
    };
    let mut world = World::new(1000, &[shape]);
    world.arrive(0);
    let container = world.start(0);
    world.end(container);
    world.pass(1999.0);
    assert_eq!(world.resting(Resting::Pausing), []);
    world.pass(1.0);
    assert_eq!(world.resting(Resting::Pausing), [container]);
    (world, container)
}

#[test]
fn without_the_setting_none_is_paused() {
    let settings = PoolSettings {
        pause_after: None,
        ..settings(Order::FuncSched)
    };
    let shape = Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency: 1,
    };
    let keep = Box::new(Fixed::new(ms(600_000.0)));
    let mut world = World::with(settings, keep, 100, &[shape]);
    world.arrive(0);
    let container = world.start(0);
    world.end(container);
    world.pass(599_000.0);
    assert_eq!(world.resting(Resting::Awake), [container]);
}

#[test]
fn a_call_waits_for_the_instance_to_wake_and_no_other_is_started() {
    let (mut world, container) = asleep();
    world.pause(container, true);
    let calls = [world.arrive(0), world.arrive(0)];
    world.pass(4.0);
    assert_eq!(world.resting(Resting::Waking), [container]);
    assert_eq!((world.served.len(), world.starting.len()), (1, 0));
    world.wake(container);
    assert_eq!(world.served[1..], calls, "as many as it has seats");
    world.end(container);
    world.end(container);
    world.pass(2000.0);
    assert_eq!(world.resting(Resting::Pausing), [container], "and again");
}

#[test]
fn one_that_is_being_paused_is_woken_when_that_is_over() {
    let (mut world, container) = asleep();
    world.arrive(0);
    assert_eq!(
        world.resting(Resting::Pausing),
        [container],
        "one order at a time"
    );
    world.pause(container, true);
    assert_eq!(world.resting(Resting::Waking), [container]);
    world.wake(container);
    assert_eq!(world.served.len(), 2);
    let (mut world, container) = asleep();
    world.arrive(0);
    world.pause(container, false);
    assert_eq!(world.served.len(), 2, "it was never paused");
}

#[test]
fn one_that_does_not_wake_is_replaced() {
    let (mut world, container) = asleep();
    world.pause(container, true);
    let call = world.arrive(0);
    world.crash(container);
    assert_eq!(world.starting.len(), 1, "another one is started");
    world.start(0);
    assert_eq!(world.served.last(), Some(&call));
}

#[test]
fn one_call_wakes_one_instance() {
    let shape = Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency: 1,
    };
    let mut world = World::new(1000, &[shape]);
    for _ in 0..20 {
        world.arrive(0);
    }
    world.pass(20.0);
    world.drain();
    let there = world.live.len();
    assert!(there > 1, "{there} instances");
    world.pass(2000.0);
    for container in world.resting(Resting::Pausing) {
        world.pause(container, true);
    }
    assert_eq!(world.resting(Resting::Paused).len(), there);
    world.arrive(0);
    world.pass(20.0);
    assert_eq!(world.resting(Resting::Waking).len(), 1);
    assert_eq!(world.starting.len(), 0);
}

#[test]
fn what_is_found_paused_is_woken_for_its_first_call() {
    let shape = Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency: 1,
    };
    let mut world = World::new(100, &[shape]);
    let function = world.functions[0].0;
    let found = world.pool.adopt(world.at(), function, true);
    let container = found.expect("room");
    let seen = Seen {
        function: Some(function),
        ready: true,
        rest: Resting::Paused,
        ..Seen::default()
    };
    world.live.insert(container, seen);
    world.look();
    world.arrive(0);
    assert_eq!(world.resting(Resting::Waking), [container]);
    world.wake(container);
    assert_eq!(world.served.len(), 1);
}

#[test]
fn a_paused_one_is_stopped_like_any_other() {
    let (mut world, container) = asleep();
    world.pause(container, true);
    world.pass(600_000.0);
    assert_eq!(world.stopped.len(), 1);
    assert_eq!(world.stopped[0].0, container);
}
