//! Worked examples with published numbers.

use fdn_core::Millis;
use fdn_scheduling::invocation::{Action, Guard, Lru, Order, ReleaseReason, Settings};

use super::world::{World, ms, profile};

fn settings(order: Order) -> Settings {
    Settings {
        order,
        ..Settings::default()
    }
}

/// The article's example: one worker of 2 units, `R` = 1, 1, 2, 2, `E` = 1, 2, 1, 1, `D` = 3, 3, 3, 1; at first only the fourth
/// function has a warm container. All come together; gives when each is done.
fn completions(order: Order) -> [f64; 4] {
    let profiles = [
        profile(1.0, 3.0, 1),
        profile(2.0, 3.0, 1),
        profile(1.0, 3.0, 2),
        profile(1.0, 1.0, 2),
    ];
    let mut world = World::new(settings(order), Box::new(Lru), &[2], &profiles);
    world.come(&[3]);
    world.run_until(100.0);
    world.come(&[0, 1, 2, 3]);
    world.run_until(200.0);
    [1, 2, 3, 4].map(|at| world.seen[at].end - 100.0)
}

fn mean(completions: [f64; 4]) -> f64 {
    completions.iter().sum::<f64>() / 4.0
}

#[test]
fn first_come_first_served_takes_7_25_on_average() {
    let fcfs = completions(Order::Fcfs);
    assert_eq!(fcfs, [4.0, 5.0, 9.0, 11.0]);
    assert_eq!(mean(fcfs), 7.25);
}

#[test]
fn shortest_first_evicts_the_warm_container_and_takes_9_25() {
    let sjf = completions(Order::Sjf);
    assert_eq!(sjf, [4.0, 15.0, 8.0, 10.0]);
    assert_eq!(mean(sjf), 9.25);
}

#[test]
fn funcsched_uses_the_warm_container_and_takes_5_5() {
    let funcsched = completions(Order::FuncSched);
    assert_eq!(funcsched, [5.0, 6.0, 10.0, 1.0]);
    assert_eq!(mean(funcsched), 5.5);
}

#[test]
fn a_warm_container_moves_its_function_forward_when_it_turns_idle_and_back_when_it_is_taken() {
    // P of the first: 10 warm, 60 cold; of the second: 30 cold, always.
    let profiles = [profile(10.0, 50.0, 1), profile(10.0, 20.0, 1)];
    let mut world = World::new(Settings::default(), Box::new(Lru), &[1], &profiles);
    world.come(&[0]);
    world.come(&[1, 0, 0, 1]);
    world.run_until(1000.0);
    let starts: Vec<(f64, bool)> = world.seen.iter().map(|s| (s.start, s.cold)).collect();
    // Both waiting invocations of the first find it warm at 60 and 70; those of the second follow.
    let expected = [
        (0.0, true),
        (80.0, true),
        (60.0, false),
        (70.0, false),
        (110.0, false),
    ];
    assert_eq!(starts, expected);
}

#[test]
fn an_invocation_waits_for_its_own_container_rather_than_have_another_one_evicted() {
    // The first function is busy until 1010; a container of the second is idle. One more invocation of the first would
    // evict it, load for 1000 and be done at 2010; waiting, it is done at 1020.
    let profiles = [profile(10.0, 1000.0, 1), profile(10.0, 30.0, 1)];
    let run = |queue_or_cold| {
        let settings = Settings {
            queue_or_cold,
            ..Settings::default()
        };
        let mut world = World::new(settings, Box::new(Lru), &[2], &profiles);
        world.come(&[1]);
        world.run_until(100.0);
        world.come(&[0]);
        world.run_until(1000.0);
        world.come(&[0]);
        world.run_until(5000.0);
        let evicted = |action: &Action| {
            matches!(
                action,
                Action::Release {
                    why: ReleaseReason::Evicted,
                    ..
                }
            )
        };
        let evictions = world.log.iter().filter(|action| evicted(action)).count();
        (world.seen[2].end, evictions)
    };
    assert_eq!(run(false), (2010.0, 1));
    assert_eq!(run(true), (1120.0, 0));
}

#[test]
fn an_idle_container_serves_those_who_wait_for_it_before_it_is_evicted_for_others() {
    // Two of a large function wait beside its warm container; a small one that must load for 20 is ahead of them. Evicting
    // makes the large ones load for 500 again; using first makes the small one wait for 100.
    let profiles = [
        profile(50.0, 500.0, 2),
        profile(1.0, 20.0, 1),
        profile(1.0, 0.0, 2),
    ];
    let run = |use_before_evicting| {
        let settings = Settings {
            use_before_evicting,
            ..Settings::default()
        };
        let mut world = World::new(settings, Box::new(Lru), &[2], &profiles);
        world.come(&[0]);
        world.run_until(1000.0);
        world.come(&[0, 1, 0]);
        world.run_until(5000.0);
        [1, 2, 3].map(|at| world.seen[at].end - 1000.0)
    };
    // P of the large: 100 warm; of the small: 21 cold, ahead in any case.
    assert_eq!(run(false), [571.0, 21.0, 621.0]);
    assert_eq!(run(true), [50.0, 121.0, 100.0]);
}

#[test]
fn a_container_past_its_expected_end_is_no_longer_waited_for() {
    // The first function's only container is expected until 120, but never ends: after 100 more, without any other event, the
    // invocation that waited for it has the idle container of the second evicted.
    let profiles = [profile(10.0, 100.0, 1), profile(1.0, 1.0, 1)];
    let settings = Settings {
        queue_or_cold: true,
        ..Settings::default()
    };
    let mut world = World::new(settings, Box::new(Lru), &[2], &profiles);
    world.come(&[1]);
    world.run_until(10.0);
    let mut actions = Vec::new();
    let scheduler = &mut world.scheduler;
    let request = fdn_scheduling::invocation::RequestId;
    let first = fdn_scheduling::invocation::FunctionIndex::new(0);
    for number in [7, 8] {
        scheduler
            .arrive(ms(10.0), request(number), first, &mut actions)
            .expect("taken");
    }
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert_eq!(scheduler.next_tick(), Some(ms(220.0)));
    scheduler.tick(ms(119.9), &mut actions);
    assert_eq!(actions.len(), 1);
    scheduler.tick(ms(220.0), &mut actions);
    assert!(matches!(
        actions[1],
        Action::Release {
            why: ReleaseReason::Evicted,
            ..
        }
    ));
    assert!(
        matches!(actions[2], Action::StartCold { request: started, .. } if started == request(8))
    );
}

#[test]
fn those_who_waited_too_long_go_first_and_the_bounded_form_lets_only_a_share_of_them() {
    // A large invocation comes first; small ones keep coming, two for each that ends.
    let profiles = [profile(40.0, 0.0, 2), profile(10.0, 0.0, 1)];
    let run = |starvation| {
        let settings = Settings {
            starvation,
            ..Settings::default()
        };
        let mut world = World::new(settings, Box::new(Lru), &[2], &profiles);
        world.come(&[1, 1, 0]);
        for step in 0..100 {
            world.come(&[1, 1, 1]);
            world.run_until(f64::from(step + 1) * 10.0);
        }
        world.run_until(10_000.0);
        world.seen[2].start
    };
    let guard = |after, share| Some(Guard::new(ms(after), share).expect("valid"));
    // 302 small invocations of 10 ms, two at a time, go before it.
    assert_eq!(run(None), 1510.0);
    assert_eq!(run(guard(100.0, 1.0)), 100.0);
    assert_eq!(run(guard(100.0, 0.1)), 100.0);
    assert_eq!(run(guard(5000.0, 1.0)), 1510.0);
}

#[test]
fn after_a_starved_start_others_first_pay_its_memory_time_back() {
    // Twelve large invocations of 80 MiB ms each and small ones of 10; 100 of them are worth ten large ones' tenth.
    let profiles = [profile(40.0, 0.0, 2), profile(10.0, 0.0, 1)];
    let starvation = Some(Guard::new(ms(1.0), 0.1).expect("valid"));
    let settings = Settings {
        starvation,
        ..Settings::default()
    };
    let mut world = World::new(settings, Box::new(Lru), &[2], &profiles);
    world.come(&[1, 1]);
    world.come(&[0; 12]);
    world.run_until(5.0);
    let small: Vec<usize> = vec![1; 2000];
    world.come(&small);
    world.run_until(4000.0);
    let large: Vec<f64> = world.seen[2..14].iter().map(|seen| seen.start).collect();
    // The account is at -72 after each, which 72 small invocations pay back; two run at a time, so 360 ms plus its own 40.
    for (at, start) in large.iter().take(8).enumerate() {
        assert_eq!(*start, 10.0 + 400.0 * at as f64, "{large:?}");
    }
}

#[test]
fn round_robin_lets_the_waiting_in_after_a_quantum_and_runs_on_alone() {
    let quantum = ms(100.0);
    let profiles = [profile(250.0, 10.0, 1), profile(120.0, 10.0, 1)];
    let order = Order::RoundRobin { quantum };
    let mut world = World::new(settings(order), Box::new(Lru), &[2], &profiles);
    world.come(&[0]);
    world.run_until(5000.0);
    assert_eq!(world.seen[0].end, 260.0);
    world.come(&[1]);
    world.run_until(10_000.0);
    // One container of each is idle; with memory for both nothing waits, so nothing is interrupted.
    world.come(&[0, 1]);
    world.run_until(20_000.0);
    assert_eq!((world.seen[2].end, world.seen[3].end), (10_250.0, 10_120.0));
    let mut narrow = World::new(settings(order), Box::new(Lru), &[1], &profiles);
    narrow.come(&[0, 1]);
    narrow.run_until(20_000.0);
    // 0..10 load, ..110 first; ..120 load, ..220 second; ..230 load, ..330 first; ..340 load, ..360 second ends; ..370 load,
    // ..420 first ends: every change pays for loading again.
    assert_eq!((narrow.seen[0].end, narrow.seen[1].end), (420.0, 360.0));
}

#[test]
fn shortest_remaining_time_first_interrupts_for_less_only() {
    let order = Order::Srtf { quantum: ms(100.0) };
    let profiles = [
        profile(250.0, 0.0, 1),
        profile(140.0, 0.0, 1),
        profile(400.0, 0.0, 1),
    ];
    let mut world = World::new(settings(order), Box::new(Lru), &[1], &profiles);
    world.come(&[0]);
    world.run_until(50.0);
    world.come(&[1, 2]);
    world.run_until(5000.0);
    // At 100 the first has 150 left, more than 140: it is interrupted. The third runs last.
    let ends: Vec<f64> = world.seen.iter().map(|seen| seen.end).collect();
    assert_eq!(ends, [390.0, 240.0, 790.0]);
    assert_eq!(world.scheduler.next_tick(), None::<Millis>);
}
