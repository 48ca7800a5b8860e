//! Keep-alive policies through the scheduler, and every pair of order and policy.

use fdn_scheduling::invocation::{
    Action, Fixed, Gdsf, Histogram, HistogramSettings, KeepAlive, Lru, Order, QUANTUM,
    ReleaseReason, Settings,
};
use proptest::prelude::*;

use super::checker::check;
use super::world::{World, ms, profile};

fn releases(world: &World) -> Vec<ReleaseReason> {
    let why = |action: &Action| match action {
        Action::Release { why, .. } => Some(*why),
        _ => None,
    };
    world.log.iter().filter_map(why).collect()
}

#[test]
fn the_fixed_policy_keeps_for_its_time_and_the_others_while_there_is_room() {
    let profiles = [profile(10.0, 5.0, 1)];
    let mut world = World::new(
        Settings::default(),
        Box::new(Fixed::new(ms(100.0))),
        &[4],
        &profiles,
    );
    world.come(&[0]);
    world.run_until(50.0);
    world.come(&[0]);
    world.run_until(159.0);
    assert_eq!((world.seen[1].cold, releases(&world).len()), (false, 0));
    world.run_until(160.0);
    assert_eq!(releases(&world), [ReleaseReason::Expired]);
    for policy in [
        Box::new(Lru) as Box<dyn KeepAlive>,
        Box::new(Gdsf::default()),
    ] {
        let mut world = World::new(Settings::default(), policy, &[4], &profiles);
        world.come(&[0]);
        world.run_until(1e9);
        assert_eq!(
            (world.scheduler.next_tick(), releases(&world).len()),
            (None, 0)
        );
    }
}

#[test]
fn the_least_recently_used_goes_first_by_when_it_was_taken() {
    // The first function is taken first and ends last: it is still the least recently used.
    let profiles = [
        profile(100.0, 0.0, 1),
        profile(10.0, 0.0, 1),
        profile(1.0, 0.0, 1),
    ];
    let mut world = World::new(Settings::default(), Box::new(Lru), &[2], &profiles);
    world.come(&[0]);
    world.run_until(1.0);
    world.come(&[1]);
    world.run_until(200.0);
    world.come(&[2]);
    world.run_until(300.0);
    world.come(&[1]);
    world.come(&[0]);
    world.run_until(1000.0);
    let cold: Vec<bool> = world.seen.iter().map(|seen| seen.cold).collect();
    assert_eq!(cold, [true, true, true, false, true]);
}

#[test]
fn gdsf_keeps_what_is_dear_to_load_where_lru_keeps_what_was_used_last() {
    // Loading the first is dear, and it was used once, long ago.
    let profiles = [
        profile(1.0, 100.0, 1),
        profile(1.0, 10.0, 1),
        profile(1.0, 20.0, 1),
    ];
    for (policy, expected) in [
        (Box::new(Gdsf::default()) as Box<dyn KeepAlive>, false),
        (Box::new(Lru), true),
    ] {
        let mut world = World::new(Settings::default(), policy, &[2], &profiles);
        for (step, function) in [0, 1, 2, 0].into_iter().enumerate() {
            world.come(&[function]);
            world.run_until(1000.0 * (step + 1) as f64);
        }
        assert_eq!(world.seen[3].cold, expected);
    }
}

fn every_second(times: usize, policy: HistogramSettings) -> World {
    let policy = Histogram::new(policy).expect("valid");
    let profiles = [profile(10.0, 20.0, 1)];
    let mut world = World::new(Settings::default(), Box::new(policy), &[4], &profiles);
    // Idle for 990 or 970 ms between runs: bin 9 of 100 ms.
    for step in 0..times {
        world.run_until(1000.0 * step as f64);
        world.come(&[0]);
    }
    world
}

fn bins_of_100() -> HistogramSettings {
    HistogramSettings {
        bin: ms(100.0),
        default: ms(5000.0),
        ..HistogramSettings::default()
    }
}

#[test]
fn a_regular_function_is_released_at_once_and_loaded_again_shortly_before_it_is_wanted() {
    let mut world = every_second(20, bins_of_100());
    let cold: Vec<bool> = world.seen.iter().map(|seen| seen.cold).collect();
    assert_eq!(cold.iter().filter(|&&cold| cold).count(), 1, "{cold:?}");
    // After the ninth run there are 8 samples: from there on it is gone between 10 and 810 ms after a start, since
    // 0.9 x bin 9 is 800 ms; and kept until 1.1 x the end of bin 9, 1100 ms after the end of a run.
    world.run_until(19_000.0 + 10.0);
    assert_eq!(world.scheduler.container_count(), 0);
    world.run_until(19_000.0 + 809.0);
    assert_eq!(world.scheduler.container_count(), 0);
    world.run_until(19_000.0 + 830.0);
    assert_eq!(world.scheduler.container_count(), 1);
    world.run_until(19_000.0 + 1109.0);
    assert_eq!(world.scheduler.container_count(), 1);
    world.run_until(19_000.0 + 1110.0);
    assert_eq!(world.scheduler.container_count(), 0);
    assert_eq!(world.scheduler.next_tick(), None);
}

#[test]
fn before_there_are_samples_enough_the_default_time_holds() {
    let mut world = every_second(8, bins_of_100());
    world.run_until(7010.0 + 4999.0);
    assert_eq!(
        (releases(&world).len(), world.scheduler.container_count()),
        (0, 1)
    );
    world.run_until(7010.0 + 5000.0);
    assert_eq!(releases(&world), [ReleaseReason::Expired]);
}

#[test]
fn what_is_wanted_again_at_once_is_kept_until_the_end_of_its_window() {
    // Idle for 30 ms or so: bin 0. Kept until 1.1 x 100 ms, rounded up to a bin: 200 ms.
    let policy = Histogram::new(bins_of_100()).expect("valid");
    let profiles = [profile(10.0, 0.0, 1)];
    let mut world = World::new(Settings::default(), Box::new(policy), &[4], &profiles);
    for step in 0..12 {
        world.run_until(40.0 * f64::from(step));
        world.come(&[0]);
    }
    world.run_until(450.0 + 199.0);
    assert_eq!(releases(&world).len(), 0);
    world.run_until(450.0 + 200.0);
    assert_eq!(releases(&world), [ReleaseReason::Expired]);
}

fn orders() -> [Order; 6] {
    [
        Order::FuncSched,
        Order::Fcfs,
        Order::Sjf,
        Order::Srf,
        Order::RoundRobin { quantum: QUANTUM },
        Order::Srtf { quantum: QUANTUM },
    ]
}

fn keep_alives() -> [Box<dyn KeepAlive>; 4] {
    let histogram = HistogramSettings {
        bin: ms(50.0),
        default: ms(200.0),
        ..HistogramSettings::default()
    };
    [
        Box::new(Fixed::new(ms(300.0))),
        Box::new(Lru),
        Box::new(Gdsf::default()),
        Box::new(Histogram::new(histogram).expect("valid")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_pair_of_order_and_policy_serves_everyone(
        steps in prop::collection::vec((0usize..5, 0u32..400), 1..60),
        queue_or_cold in any::<bool>(),
        use_before_evicting in any::<bool>(),
    ) {
        let profiles = [
            profile(30.0, 400.0, 1),
            profile(250.0, 100.0, 2),
            profile(5.0, 900.0, 3),
            profile(1000.0, 20.0, 1),
            profile(0.0, 0.0, 4),
        ];
        for order in orders() {
            for keep_alive in keep_alives() {
                let settings = Settings { order, queue_or_cold, use_before_evicting, ..Settings::default() };
                let name = keep_alive.name();
                let mut world = World::new(settings, keep_alive, &[4, 3], &profiles);
                for &(function, wait) in &steps {
                    world.come(&[function]);
                    world.run_until(world.now + f64::from(wait));
                }
                world.run_until(world.now + 1e7);
                prop_assert_eq!(world.scheduler.waiting(), 0);
                check(&world.trail, &profiles, &[4, 3], world.seen.len());
                for seen in &world.seen {
                    prop_assert!(seen.end.is_finite(), "{:?} {} {:?}", order, name, seen);
                }
            }
        }
    }
}
