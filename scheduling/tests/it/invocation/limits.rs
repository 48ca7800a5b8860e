//! Refusals, late messages, tables that are reused, learning.

use fdn_core::{Coded, ErrorCode, MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, FunctionIndex, LearnSettings, LiveProfile, Lru, Order, QueueLimits, Refusal, RequestId,
    Scheduler, Settings, TableLimits, Weight, WorkerIndex,
};
use proptest::prelude::*;

use super::world::{World, ms, profile};

fn scheduler(settings: Settings) -> Scheduler {
    Scheduler::new(settings, Box::new(Lru)).expect("valid settings")
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let new = |settings| Scheduler::new(settings, Box::new(Lru)).map(|_| ());
    let quantum = |ms| Settings {
        order: Order::Srtf {
            quantum: Millis::new(ms),
        },
        ..Settings::default()
    };
    let mut none = Settings::default();
    none.queue.total = 0;
    for bad in [quantum(0.0), quantum(f64::NAN), none] {
        let refused = new(bad).expect_err("refused");
        assert_eq!(refused.code(), ErrorCode::ConfigInvalid);
    }
    assert_eq!(new(quantum(1.0)), Ok(()));
}

#[test]
fn every_table_has_its_bound() {
    let mut scheduler = scheduler(Settings {
        queue: QueueLimits {
            total: 2,
            per_function: 2,
        },
        tables: TableLimits {
            functions: 1,
            workers: 1,
        },
        ..Settings::default()
    });
    let mut actions = Vec::new();
    let now = Millis::ZERO;
    let function = scheduler.register(profile(1.0, 1.0, 3)).expect("room");
    let full = scheduler.register(profile(1.0, 1.0, 1));
    assert!(matches!(
        full,
        Err(Refusal::TableFull {
            what: "functions",
            limit: 1
        })
    ));
    let arrive = |scheduler: &mut Scheduler, number, actions: &mut Vec<Action>| {
        scheduler.arrive(now, RequestId(number), function, actions)
    };
    let refused = arrive(&mut scheduler, 0, &mut actions).expect_err("no worker");
    assert_eq!(refused.code(), ErrorCode::Overloaded);
    assert!(matches!(refused, Refusal::TooLarge { .. }));
    scheduler
        .add_worker(now, MebiBytes(5), &mut actions)
        .expect("room");
    let full = scheduler.add_worker(now, MebiBytes(5), &mut actions);
    assert!(matches!(
        full,
        Err(Refusal::TableFull {
            what: "workers",
            ..
        })
    ));
    for number in 1..4 {
        assert!(arrive(&mut scheduler, number, &mut actions).is_ok());
    }
    assert_eq!((scheduler.waiting(), actions.len()), (2, 1));
    let refused = arrive(&mut scheduler, 4, &mut actions).expect_err("full");
    assert!(matches!(refused, Refusal::QueueFull { limit: 2 }));
    let unknown = scheduler.arrive(now, RequestId(5), FunctionIndex::new(9), &mut actions);
    assert!(matches!(unknown, Err(Refusal::UnknownFunction { .. })));
    let unknown = scheduler.worker_lost(now, WorkerIndex::new(1), &mut actions);
    assert!(matches!(unknown, Err(Refusal::UnknownWorker { worker: 1 })));
    assert_eq!(
        (scheduler.waiting(), actions.len()),
        (2, 1),
        "refusals change nothing"
    );
}

#[test]
fn a_late_message_does_not_hit_what_took_the_place() {
    let mut scheduler = scheduler(Settings::default());
    let (now, mut actions) = (Millis::ZERO, Vec::new());
    scheduler
        .add_worker(now, MebiBytes(1), &mut actions)
        .expect("room");
    let function = scheduler.register(profile(1.0, 1.0, 1)).expect("room");
    let start = |scheduler: &mut Scheduler, number| {
        let mut actions = Vec::new();
        scheduler
            .arrive(now, RequestId(number), function, &mut actions)
            .expect("taken");
        let Some(Action::StartCold { container, .. }) = actions.last().copied() else {
            panic!("it starts");
        };
        container
    };
    let first = start(&mut scheduler, 0);
    assert!(
        scheduler.finished(now, first, &mut actions).is_err(),
        "it still loads"
    );
    scheduler.failed(now, first, &mut actions).expect("there");
    assert_eq!(
        actions,
        [Action::Lost {
            request: RequestId(0)
        }]
    );
    let second = start(&mut scheduler, 1);
    assert_eq!(first.slot(), second.slot());
    for refused in [
        scheduler.ready(now, first, &mut actions),
        scheduler.finished(now, first, &mut actions),
        scheduler.failed(now, first, &mut actions),
    ] {
        assert_eq!(refused, Err(Refusal::UnknownContainer { container: first }));
    }
    assert_eq!(scheduler.ready(now, second, &mut actions), Ok(()));
    assert!(
        scheduler.ready(now, second, &mut actions).is_err(),
        "doubled"
    );
}

#[test]
fn a_retired_function_leaves_and_its_index_serves_another() {
    let mut world = World::new(
        Settings::default(),
        Box::new(Lru),
        &[4],
        &[profile(10.0, 1.0, 1), profile(1.0, 1.0, 4)],
    );
    let first = FunctionIndex::new(0);
    world.come(&[0]);
    let mut actions = Vec::new();
    let retire = |world: &mut World, actions: &mut Vec<Action>| {
        let now = ms(world.now);
        world.scheduler.retire(now, first, actions)
    };
    assert_eq!(
        retire(&mut world, &mut actions),
        Err(Refusal::InUse { function: first })
    );
    world.run_until(100.0);
    assert_eq!(retire(&mut world, &mut actions), Ok(()));
    assert_eq!(actions.len(), 1);
    assert_eq!(world.scheduler.container_count(), 0);
    assert_eq!(world.scheduler.profile(first), None);
    let refused = world
        .scheduler
        .arrive(ms(100.0), RequestId(9), first, &mut actions);
    assert!(matches!(refused, Err(Refusal::UnknownFunction { .. })));
    assert!(retire(&mut world, &mut actions).is_err());
    let again = world
        .scheduler
        .register(profile(2.0, 2.0, 2))
        .expect("room");
    assert_eq!(again, first);
    world.come(&[0]);
    world.run_until(200.0);
    assert_eq!(world.seen[1].end, 104.0);
}

#[test]
fn what_fits_nowhere_since_a_worker_was_lost_blocks_nobody_and_goes_on_when_one_is_back() {
    let profiles = [profile(10.0, 0.0, 8), profile(10.0, 1.0, 1)];
    let mut world = World::new(Settings::default(), Box::new(Lru), &[8, 2], &profiles);
    world.come(&[0]);
    world.come(&[0, 1]);
    world.lose(0);
    world.run_until(100.0);
    assert_eq!(world.seen[0].end, f64::INFINITY, "lost with its worker");
    assert_eq!((world.scheduler.waiting(), world.seen[2].end), (1, 11.0));
    let mut actions = Vec::new();
    let back = WorkerIndex::new(0);
    world
        .scheduler
        .memory_changed(ms(100.0), back, MebiBytes(8), &mut actions)
        .expect("there");
    assert!(
        matches!(actions[..], [Action::StartCold { request: RequestId(1), worker, .. }] if worker == back)
    );
}

#[test]
fn the_scheduler_learns_what_registration_did_not_know() {
    let settings = Settings {
        learn: Some(LearnSettings::default()),
        ..Settings::default()
    };
    // Registered with 1 ms and 1 ms; executions take what the world's profile said at arrival, so teach it slowly.
    let mut scheduler = scheduler(settings);
    let mut actions = Vec::new();
    scheduler
        .add_worker(Millis::ZERO, MebiBytes(1), &mut actions)
        .expect("room");
    let function = scheduler.register(profile(1.0, 1.0, 1)).expect("room");
    let mut now = 0.0;
    for number in 0..200 {
        actions.clear();
        scheduler
            .arrive(ms(now), RequestId(number), function, &mut actions)
            .expect("taken");
        let container = match actions[0] {
            Action::StartCold { container, .. } => {
                now += 300.0;
                scheduler
                    .ready(ms(now), container, &mut actions)
                    .expect("loads");
                container
            }
            Action::StartWarm { container, .. } => container,
            other => panic!("{other:?}"),
        };
        now += 50.0;
        scheduler
            .finished(ms(now), container, &mut actions)
            .expect("runs");
        if number % 2 == 0 {
            scheduler
                .failed(ms(now), container, &mut actions)
                .expect("there");
        }
    }
    scheduler.saw_memory(function, MebiBytes(1)).expect("known");
    let learnt = scheduler.profile(function).expect("known");
    assert!((learnt.execution().get() - 50.0).abs() < 2.0, "{learnt:?}");
    assert!(
        (learnt.cold_start().get() - 300.0).abs() < 15.0,
        "{learnt:?}"
    );
    let live = scheduler.live(function).expect("learns");
    assert_eq!(
        (live.memory_used(), learnt.memory()),
        (Weight(1), Weight(1))
    );
}

#[test]
fn learning_needs_a_weight_and_a_reach() {
    let new = |prior, floor, reach| {
        LiveProfile::new(
            &profile(1.0, 1.0, 1),
            LearnSettings {
                prior,
                floor,
                reach,
            },
        )
    };
    assert!(new(0.0, 1.0, 1.5).is_ok());
    for bad in [
        new(-1.0, 0.1, 2.0),
        new(1.0, 0.0, 2.0),
        new(1.0, 0.1, 1.0),
        new(f64::NAN, 0.1, 2.0),
    ] {
        assert!(matches!(bad, Err(Refusal::InvalidSetting { .. })));
    }
}

proptest! {
    #[test]
    fn a_live_profile_stays_within_what_was_seen_and_comes_close_to_the_mean(
        given in 0.0f64..10_000.0,
        low in 0.1f64..1000.0,
        ratio in 1.0f64..5.0,
        seed in any::<u64>(),
    ) {
        let mut live = LiveProfile::new(&profile(given, given, 1), LearnSettings::default()).expect("valid");
        let high = low * ratio;
        let mut state = seed | 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for number in 0..2000 {
            let time = low + (high - low) * draw();
            live.saw_execution(ms(time));
            // One of fifty observations is wild, or no time at all.
            let wild = if number % 50 == 0 { time * 1e6 } else { time };
            live.saw_cold_start(ms(wild));
            live.saw_cold_start(ms(if number % 50 == 25 { f64::NAN } else { time }));
            let now = live.profile();
            prop_assert!(now.execution().get() >= low.min(given) - 1e-9);
            prop_assert!(now.execution().get() <= high.max(given) + 1e-9);
        }
        let mean = f64::midpoint(low, high);
        let learnt = live.profile();
        prop_assert!((learnt.execution().get() / mean - 1.0).abs() < 0.25, "{} for {}", learnt.execution(), mean);
        // Wild ones count as eight times the mean each: 1 % of all observations.
        prop_assert!(learnt.cold_start().get() > low * 0.9 && learnt.cold_start().get() < mean * 1.7,
            "{} for {}", learnt.cold_start(), mean);
    }

    #[test]
    fn a_lasting_change_is_followed_whatever_its_size(from in -3.0f64..6.0, to in -1.0f64..6.0) {
        let (from, to) = (10f64.powf(from), 10f64.powf(to));
        let mut live = LiveProfile::new(&profile(from, 0.0, 1), LearnSettings::default()).expect("valid");
        for _ in 0..500 {
            live.saw_execution(ms(from));
        }
        let mut steps = 0;
        while (live.profile().execution().get() / to - 1.0).abs() > 0.05 {
            live.saw_execution(ms(to));
            steps += 1;
            prop_assert!(steps < 2500, "{}", live.profile().execution());
        }
    }
}
