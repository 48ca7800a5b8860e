//! A scaler beside the keep-alive policy: what either wants is kept.

use fdn_scheduling::invocation::{
    Action, Activity, Fixed, FunctionIndex, FunctionState, Gdsf, Histogram, HistogramSettings,
    KeepAlive, Lru, Refusal, ReleaseReason, Settings,
};
use fdn_scheduling::scale::{Decision, Size};
use proptest::prelude::*;

use super::checker::check;
use super::world::{World, ms, profile};

fn world(keep_alive: Box<dyn KeepAlive>, memory: u64) -> World {
    let profiles = [profile(10.0, 5.0, 1), profile(10.0, 5.0, 3)];
    World::new(Settings::default(), keep_alive, &[memory], &profiles)
}

fn start(start: u32) -> Decision {
    Decision {
        start,
        ..Decision::default()
    }
}

fn stop(stop: u32) -> Decision {
    Decision {
        stop,
        ..Decision::default()
    }
}

fn standing(world: &World) -> FunctionState {
    world
        .scheduler
        .function_state(FunctionIndex::new(0))
        .expect("registered")
}

fn size(running: u32, pending: u32) -> Size {
    Size { running, pending }
}

fn releases(world: &World) -> usize {
    let is_release = |action: &&Action| matches!(action, Action::Release { .. });
    world.log.iter().filter(is_release).count()
}

#[test]
fn what_the_scaler_wants_is_loaded_where_memory_is_free_and_then_is_warm() {
    let mut world = world(Box::new(Lru), 3);
    assert_eq!(world.scale(0, start(2)), 2);
    assert_eq!(standing(&world).size, size(0, 2));
    assert_eq!(standing(&world).kept, 0, "nothing is idle yet");
    world.run_until(5.0);
    assert_eq!(standing(&world).size, size(2, 0));
    assert_eq!(standing(&world).kept, 2);
    world.come(&[0, 0, 0]);
    let cold: Vec<bool> = world.seen.iter().map(|seen| seen.cold).collect();
    assert_eq!(cold, [false, false, true]);
    let now = standing(&world);
    assert_eq!((now.size, now.executing, now.queued), (size(2, 1), 2, 1));
    assert_eq!(world.scale(0, start(9)), 0, "no memory is free");
}

#[test]
fn nothing_is_evicted_for_the_scaler_and_nothing_loaded_while_an_invocation_waits() {
    let mut world = world(Box::new(Lru), 4);
    world.come(&[1]);
    world.run_until(100.0);
    assert_eq!(world.scale(0, start(5)), 1, "one fits beside the idle one");
    world.run_until(200.0);
    assert_eq!(releases(&world), 0);
    // Four of the first evict the second, and the fifth waits.
    world.come(&[0, 0, 0, 0, 0]);
    assert_eq!((releases(&world), world.scheduler.waiting()), (1, 1));
    assert_eq!(standing(&world).queued, 4, "three load");
    assert_eq!(world.scale(1, start(1)), 0);
    world.come(&[1]);
    world.run_until(212.0);
    assert_eq!(
        world.scheduler.waiting(),
        1,
        "the large one needs three at once"
    );
    assert_eq!(world.scale(0, start(1)), 0, "memory is for those that wait");
}

#[test]
fn what_the_policy_lets_go_stays_until_the_scaler_has_too_many() {
    let mut world = world(Box::new(Fixed::new(ms(100.0))), 4);
    world.scale(0, Decision::default());
    world.come(&[0, 0, 0]);
    world.run_until(115.0);
    assert_eq!((releases(&world), standing(&world).kept), (0, 0));
    world.scale(0, stop(1));
    assert_eq!((releases(&world), standing(&world).size), (1, size(2, 0)));
    // One of those that were let go is taken, and kept again when it turns idle.
    world.come(&[0]);
    assert!(!world.seen[3].cold);
    world.run_until(150.0);
    assert_eq!(standing(&world).kept, 1);
    world.scale(0, stop(5));
    assert_eq!(
        standing(&world).size,
        size(1, 0),
        "the policy keeps the other"
    );
    world.run_until(300.0);
    assert_eq!(standing(&world).size, size(1, 0), "until the next decision");
    world.scale(0, stop(1));
    assert_eq!(
        standing(&world),
        FunctionState {
            kept: 0,
            ..FunctionState::default()
        }
    );
    let why = |action: &Action| {
        matches!(
            action,
            Action::Release {
                why: ReleaseReason::Expired,
                ..
            }
        )
    };
    assert_eq!(world.log.iter().filter(|action| why(action)).count(), 3);
}

#[test]
fn the_scaler_alone_keeps_what_it_wants_and_memory_goes_before_its_wishes() {
    let mut world = world(Box::new(Fixed::new(ms(0.0))), 3);
    world.scale(0, start(3));
    world.run_until(5.0);
    assert_eq!(standing(&world).size, size(3, 0));
    // The policy keeps none of them, and yet they are there.
    world.run_until(1000.0);
    assert_eq!((standing(&world).kept, releases(&world)), (0, 0));
    world.come(&[1]);
    assert_eq!((standing(&world).size, releases(&world)), (size(0, 0), 3));
}

#[test]
fn the_least_recently_used_of_those_let_go_is_released_first() {
    let mut world = world(Box::new(Fixed::new(ms(20.0))), 4);
    world.scale(0, Decision::default());
    world.come(&[0]);
    world.run_until(1.0);
    world.come(&[0]);
    world.run_until(100.0);
    let first = |action: &Action| match action {
        Action::StartCold { container, .. } => Some(*container),
        _ => None,
    };
    let first = world.log.iter().find_map(first).expect("it was loaded");
    world.scale(0, stop(1));
    let Some(Action::Release { container, .. }) = world.log.last() else {
        panic!("{:?}", world.log.last());
    };
    assert_eq!(*container, first);
}

#[test]
fn a_histogram_that_would_load_again_keeps_what_is_still_there() {
    let settings = HistogramSettings {
        bin: ms(10.0),
        samples: 1,
        variation: 0.0,
        ..HistogramSettings::default()
    };
    let policy = Histogram::new(settings).expect("valid");
    let mut world = world(Box::new(policy), 4);
    world.scale(0, Decision::default());
    // Invoked every 200 ms: after an end at 15 it is let go, and would be loaded again shortly before the next.
    for n in 0..4 {
        world.run_until(200.0 * f64::from(n));
        world.come(&[0]);
    }
    world.run_until(630.0);
    assert_eq!(
        (standing(&world).size, standing(&world).kept),
        (size(1, 0), 0)
    );
    world.run_until(795.0);
    assert_eq!(
        (standing(&world).size, standing(&world).kept),
        (size(1, 0), 1)
    );
    let loaded =
        |action: &&Action| matches!(action, Action::Prewarm { .. } | Action::StartCold { .. });
    assert_eq!(
        world.log.iter().filter(loaded).count(),
        1,
        "and never again"
    );
}

#[test]
fn a_function_that_is_not_known_is_not_scaled() {
    let mut world = world(Box::new(Lru), 4);
    let unknown = FunctionIndex::new(7);
    assert_eq!(world.scheduler.function_state(unknown), None);
    let refused = world
        .scheduler
        .scale(ms(0.0), unknown, start(1), &mut Vec::new());
    assert_eq!(refused, Err(Refusal::UnknownFunction { function: unknown }));
}

/// The standing, counted anew from all containers; what the policy keeps cannot be seen there.
fn counted(world: &World, function: usize) -> (Size, u64) {
    let count = |activity: &[Activity]| {
        let of = world
            .scheduler
            .containers()
            .filter(|c| c.function.get() == function);
        of.filter(|c| activity.contains(&c.activity)).count() as u32
    };
    let running = count(&[Activity::Running]);
    let size = size(
        running + count(&[Activity::Idle]),
        count(&[Activity::Loading, Activity::Warming]),
    );
    (size, u64::from(running))
}

proptest! {
    #[test]
    fn whatever_a_scaler_decides_every_rule_is_kept(
        steps in prop::collection::vec((0usize..3, 0u32..120, 0u32..4, 0u32..4), 1..80),
        policy in 0usize..5,
    ) {
        let profiles = [profile(30.0, 40.0, 1), profile(90.0, 10.0, 2), profile(5.0, 90.0, 3)];
        let histogram = HistogramSettings { bin: ms(10.0), samples: 2, ..HistogramSettings::default() };
        let keep_alive: Box<dyn KeepAlive> = match policy {
            0 => Box::new(Lru),
            1 => Box::new(Gdsf::default()),
            2 => Box::new(Fixed::new(ms(50.0))),
            3 => Box::new(Fixed::new(ms(0.0))),
            _ => Box::new(Histogram::new(histogram).expect("valid")),
        };
        let mut world = World::new(Settings::default(), keep_alive, &[4, 3], &profiles);
        for &(function, wait, start, stop) in &steps {
            world.come(&[function]);
            let before = world.log.len();
            let loaded = world.scale(function, Decision { wanted: 0, start, stop });
            let evicted = |action: &Action| matches!(action, Action::Release { why: ReleaseReason::Evicted, .. });
            prop_assert!(loaded <= start);
            prop_assert!(!world.log[before..].iter().any(evicted), "nothing is evicted for a scaler");
            prop_assert!(loaded == 0 || world.scheduler.waiting() == 0);
            world.run_until(world.now + f64::from(wait));
            for function in 0..profiles.len() {
                let found = world.scheduler.function_state(FunctionIndex::new(function)).expect("registered");
                prop_assert_eq!((found.size, found.executing), counted(&world, function));
            }
        }
        world.run_until(world.now + 1e6);
        check(&world.trail, &profiles, &[4, 3], world.seen.len());
        // In the end nothing is kept that nobody wants, but by the policies that keep for ever.
        for function in 0..profiles.len() {
            world.scale(function, Decision { wanted: 0, start: 0, stop: u32::MAX });
        }
        prop_assert!(policy < 2 || world.scheduler.container_count() == 0);
    }
}
