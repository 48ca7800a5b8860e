use fdn_scheduling::prewarm::Answer;

use super::*;

const PATIENCE: f64 = 5_000.0;

fn one(concurrency: u32) -> Shape {
    Shape {
        execution: 10.0,
        cold: 100.0,
        memory: 10,
        concurrency,
    }
}

/// Settings by which idle instances are not paused.
fn awake() -> PoolSettings {
    PoolSettings {
        pause_after: None,
        ..settings(Order::FuncSched)
    }
}

impl World {
    fn announce(&mut self, function: usize, within: f64) -> Answer {
        let index = self.functions[function].0;
        let answer = self
            .pool
            .announce(self.at(), index, (ms(within), ms(PATIENCE)));
        self.look();
        answer
    }
}

#[test]
fn an_instance_is_started_when_it_is_time_and_the_call_finds_it() {
    let mut world = World::new(1000, &[one(1)]);
    assert_eq!(world.announce(0, 500.0), Answer::Later(ms(100.0)));
    assert_eq!(world.starting.len(), 0, "too early");
    assert_eq!(world.announce(0, 120.0), Answer::Started);
    assert_eq!(world.starting.len(), 1);
    world.pass(100.0);
    let container = world.start(0);
    world.pass(20.0);
    world.arrive(0);
    assert_eq!(world.busy(), [container], "at once");
    world.end(container);
    world.pass(PATIENCE);
    assert_eq!(world.live.len(), 1, "no other was started");
}

#[test]
fn a_call_that_comes_while_it_starts_waits_for_that_one() {
    let mut world = World::new(1000, &[one(1)]);
    assert_eq!(world.announce(0, 0.0), Answer::Started);
    world.pass(50.0);
    world.arrive(0);
    world.pass(20.0);
    assert_eq!((world.starting.len(), world.served.len()), (1, 0));
    world.start(0);
    assert_eq!(world.served.len(), 1);
}

#[test]
fn there_are_as_many_as_calls_that_were_announced_and_none_where_one_is_free() {
    let keep = Box::new(Fixed::new(ms(600_000.0)));
    let mut world = World::with(awake(), keep, 1000, &[one(2)]);
    let answers: Vec<Answer> = (0..5).map(|_| world.announce(0, 0.0)).collect();
    let (started, warm) = (Answer::Started, Answer::Warm);
    assert_eq!(
        answers,
        [started, warm, started, warm, started],
        "two seats each"
    );
    while !world.starting.is_empty() {
        world.start(0);
    }
    // The autoscaler sees no load, and keeps the instances for the announced calls.
    world.pass(PATIENCE - 1.0);
    assert_eq!(world.live.len(), 3);
    for _ in 0..5 {
        world.arrive(0);
    }
    assert_eq!((world.served.len(), world.live.len()), (5, 3));
    for container in world.busy() {
        while !world.live[&container].calls.is_empty() {
            world.end(container);
        }
    }
    assert_eq!(world.announce(0, 0.0), Answer::Warm, "idle ones are free");
}

#[test]
fn one_whose_call_does_not_come_rests_as_any_other() {
    let keep = Box::new(Fixed::new(ms(1_000.0)));
    let mut world = World::with(awake(), keep, 1000, &[one(1)]);
    assert_eq!(world.announce(0, 0.0), Answer::Started);
    let container = world.start(0);
    world.pass(PATIENCE - 1.0);
    assert_eq!(world.live.len(), 1, "longer than an idle one is kept");
    world.pass(PATIENCE);
    assert_eq!(world.stopped, [(container, ReleaseReason::Expired)]);
}

#[test]
fn nothing_gives_way_for_it_and_what_fails_is_not_started() {
    let mut world = World::new(
        20,
        &[
            one(1),
            Shape {
                memory: 15,
                ..one(1)
            },
        ],
    );
    world.arrive(1);
    let other = world.start(0);
    world.end(other);
    assert_eq!(world.announce(0, 0.0), Answer::NoRoom);
    assert_eq!(world.stopped, [], "an idle instance stays");
    // An actual call, in contrast, evicts it.
    world.arrive(0);
    assert_eq!(world.stopped, [(other, ReleaseReason::Evicted)]);
    world.fail_start(0, 10_000.0);
    assert_eq!(world.announce(1, 0.0), Answer::Started);
    let mut world = World::new(1000, &[one(1)]);
    world.arrive(0);
    world.fail_start(0, 10_000.0);
    assert_eq!(world.announce(0, 0.0), Answer::NoRoom);
}

#[test]
fn a_function_that_is_gone_is_not_known_and_memory_is_bounded() {
    let mut world = World::new(100_000, &[one(1)]);
    let index = world.functions[0].0;
    let some = (0..100).map(|_| world.announce(0, 0.0));
    let started = some.filter(|answer| *answer == Answer::Started).count();
    assert_eq!(started, 64);
    while !world.starting.is_empty() {
        world.start(0);
    }
    world.pool.retire(world.at(), index);
    world.look();
    assert_eq!(world.announce(0, 0.0), Answer::Unknown);
}
