use super::*;

fn one(concurrency: u32) -> Shape {
    Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency,
    }
}

#[test]
fn a_burst_from_zero_starts_what_drains_it_and_serves_all() {
    let mut world = World::new(10_000, &[one(1)]);
    for _ in 0..50 {
        world.arrive(0);
    }
    assert_eq!(world.starting.len(), 1, "one at once");
    world.pass(10.0);
    let started = world.starting.len();
    assert!(
        (3..=15).contains(&started),
        "an instance that is ready after the queue has drained helps nobody: {started}"
    );
    world.drain();
    assert_eq!(world.served.len(), 50);
    assert!(world.served.is_sorted(), "first come, first served");
}

#[test]
fn a_warm_instance_serves_at_once_and_the_next_call_waits_for_it() {
    let mut world = World::new(100, &[one(1)]);
    world.arrive(0);
    let container = world.start(0);
    assert_eq!(world.served.len(), 1);
    world.arrive(0);
    world.pass(1.0);
    assert_eq!((world.served.len(), world.starting.len()), (1, 0));
    world.end(container);
    assert_eq!(world.served.len(), 2, "its own instance is free first");
}

#[test]
fn an_instance_runs_as_many_calls_at_once_as_its_function_allows() {
    let mut world = World::new(100, &[one(4)]);
    for _ in 0..6 {
        world.arrive(0);
    }
    let container = world.start(0);
    assert_eq!(world.served.len(), 4);
    world.end(container);
    assert_eq!(world.served.len(), 5);
    world.end(container);
    world.end(container);
    assert_eq!(world.served.len(), 6);
    world.arrive(0);
    assert_eq!(world.served.len(), 7, "a free place is taken at once");
}

#[test]
fn who_is_first_in_line_takes_what_is_first_ready() {
    let mut world = World::new(1000, &[one(1)]);
    for _ in 0..4 {
        world.arrive(0);
    }
    world.pass(10.0);
    assert!(world.starting.len() > 1);
    let last = world.starting.len() - 1;
    world.start(last);
    assert_eq!(world.served, [CallId(0)]);
}

#[test]
fn smaller_functions_go_first_when_memory_is_short_and_idle_ones_are_evicted() {
    let shapes = [
        Shape {
            memory: 80,
            ..one(1)
        },
        Shape {
            memory: 20,
            ..one(1)
        },
    ];
    let mut world = World::new(100, &shapes);
    world.arrive(0);
    let large = world.start(0);
    // The instance is busy: 20 are free, and another call of the large function waits before one of the small function arrives.
    world.arrive(0);
    world.pass(10.0);
    world.arrive(1);
    world.pass(10.0);
    assert_eq!(
        world.starting.len(),
        1,
        "the small one passes the large one"
    );
    let small = world.start(0);
    world.end(small);
    world.end(large);
    assert_eq!(
        world.served.len(),
        3,
        "the second large call took the first one's instance"
    );
    // Memory shrinks because calls in sandboxes need it: idle instances are stopped, busy ones stay.
    world.pool.capacity(world.at(), Weight(90));
    world.memory = 100;
    world.look();
    assert_eq!(world.stopped, [(small, ReleaseReason::Shrunk)]);
}

#[test]
fn failed_starts_pause_and_do_not_lose_calls() {
    let mut world = World::new(1000, &[one(1)]);
    world.arrive(0);
    world.fail_start(0, 200.0);
    world.arrive(0);
    world.pass(199.0);
    assert_eq!(world.starting.len(), 0, "paused");
    assert_eq!(world.pool.failures(world.functions[0].0), 1);
    world.pass(2.0);
    assert!(!world.starting.is_empty(), "tried again");
    world.drain();
    assert_eq!(world.served.len(), 2);
    assert_eq!(world.pool.failures(world.functions[0].0), 0, "it serves");
}

#[test]
fn a_crash_of_all_instances_is_survived_by_all_calls() {
    let mut world = World::new(10_000, &[one(1)]);
    for _ in 0..50 {
        world.arrive(0);
    }
    world.pass(10.0);
    while !world.starting.is_empty() {
        world.start(0);
    }
    for container in world.ready() {
        world.crash(container);
    }
    world.drain();
    assert!(world.served.len() >= 50);
}

#[test]
fn the_number_follows_the_load_up_and_down_to_zero() {
    let keep = Box::new(Fixed::new(ms(120_000.0)));
    let shape = Shape {
        execution: 1000.0,
        ..one(1)
    };
    let mut world = World::with(settings(Order::FuncSched), keep, 10_000, &[shape]);
    let mut most = 0;
    for _ in 0..100 {
        for _ in 0..10 {
            world.arrive(0);
        }
        world.pass(100.0);
        while !world.starting.is_empty() {
            world.start(0);
        }
        most = most.max(world.live.len());
        if world.now % 1000.0 < 100.0 {
            for container in world.busy() {
                world.end(container);
            }
        }
    }
    assert!(most >= 20, "{most}");
    world.drain();
    for container in world.busy() {
        world.end(container);
    }
    world.pass(600_000.0);
    assert_eq!(world.live.len(), 0, "to zero");
    assert!(
        world
            .stopped
            .iter()
            .any(|(_, why)| *why == ReleaseReason::Surplus)
    );
    assert!(matches!(
        world.stopped.last(),
        Some((_, ReleaseReason::Expired))
    ));
    assert_eq!(world.pool.next_tick(), None, "nothing is left to look at");
}

#[test]
fn a_retired_function_ends_with_its_last_call() {
    let mut world = World::new(1000, &[one(1), one(1)]);
    world.arrive(0);
    world.arrive(0);
    world.pass(10.0);
    let busy = world.start(0);
    let index = world.functions[0].0;
    world.waiting.clear();
    world.pool.retire(world.at(), index);
    world.look();
    while !world.starting.is_empty() {
        world.start(0);
    }
    world.end(busy);
    assert_eq!(world.live.len(), 0);
    assert!(world.pool.arrive(world.at(), index).is_err());
    let again = world.pool.register(FunctionParameters {
        app: "other".parse().expect("it parses"),
        memory: Weight(1),
        profile: Profile::new(ms(1.0), ms(1.0), MebiBytes(1)).expect("valid"),
        concurrency: 1,
        scale: scale::Settings::default(),
    });
    assert_eq!(again, Ok(index), "its row is used again");
}

#[test]
fn bounds_are_of_calls_and_do_not_hold_for_those_that_come_back() {
    let mut bounds = settings(Order::FuncSched);
    bounds.scheduler.queue = QueueLimits {
        total: 3,
        per_function: 2,
    };
    let keep = Box::new(Fixed::new(ms(1000.0)));
    let mut world = World::with(bounds, keep, 1000, &[one(1), one(1)]);
    world.arrive(0);
    world.arrive(0);
    let (first, second) = (world.functions[0].0, world.functions[1].0);
    let refused = world.pool.arrive(world.at(), first);
    assert!(matches!(
        refused,
        Err(Refusal::FunctionQueueFull { limit: 2, .. })
    ));
    world.arrive(1);
    let refused = world.pool.arrive(world.at(), second);
    assert_eq!(refused, Err(Refusal::QueueFull { limit: 3 }));
    let again = world
        .pool
        .requeue(world.at(), first)
        .expect("let in before");
    world.waiting.insert(again);
    world.look();
    world.start(0);
    assert_eq!(world.served, [again], "before all others");
}

#[test]
fn what_runs_already_is_taken_in_and_serves() {
    let mut world = World::new(10, &[one(1)]);
    let index = world.functions[0].0;
    let adopted = world.pool.adopt(world.at(), index, false).expect("it fits");
    let seen = Seen {
        function: Some(index),
        ready: true,
        ..Seen::default()
    };
    world.live.insert(adopted, seen);
    world.look();
    assert_eq!(world.pool.adopt(world.at(), index, false), None, "no room");
    world.arrive(0);
    assert_eq!(world.served.len(), 1);
}

#[test]
fn sandboxes_that_hold_the_memory_make_instances_wait_not_fail() {
    let mut world = World::new(100, &[one(1)]);
    world.pool.capacity(world.at(), Weight(5));
    world.arrive(0);
    world.pass(5000.0);
    assert_eq!(world.starting.len(), 0);
    world.pool.capacity(world.at(), Weight(100));
    world.look();
    assert_eq!(world.starting.len(), 1);
}
