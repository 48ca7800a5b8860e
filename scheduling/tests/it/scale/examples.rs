//! Examples with numbers.

use fdn_core::{Coded, ErrorCode, Millis};
use fdn_scheduling::scale::{
    Decision, Keep, Load, Proportional, Rate, ScaleError, Scaler, Settings, Size,
};

use super::{met, run, scaler, steady};

fn ms(ms: f64) -> Millis {
    Millis::new(ms)
}

fn no_headroom() -> Settings {
    Settings {
        headroom: 0.0,
        ..Settings::default()
    }
}

#[test]
fn the_mean_load_and_its_square_root_are_wanted() {
    // 9 at once: 9 + sqrt(9) = 12; what is over the tolerance of 0.2 counts while going up.
    let mut with = scaler(Settings::default());
    assert_eq!(run(&mut with, 0.0, 60, &steady(9.0, 90)).last(), Some(&10));
    let mut without = scaler(no_headroom());
    assert_eq!(
        run(&mut without, 0.0, 60, &steady(9.0, 90)).last(),
        Some(&8)
    );
    let exact = Settings {
        tolerance: 0.0,
        ..Settings::default()
    };
    assert_eq!(
        run(&mut scaler(exact), 0.0, 60, &steady(9.0, 90)).last(),
        Some(&12)
    );
    let four = Settings {
        concurrency: 4.0,
        ..exact
    };
    assert_eq!(
        run(&mut scaler(four), 0.0, 60, &steady(9.0, 90)).last(),
        Some(&3)
    );
}

#[test]
fn arrivals_show_the_load_that_a_lack_of_instances_hides() {
    // 100 per 2 s of 200 ms each are 10 at once, though only 2 run.
    let settings = Settings {
        tolerance: 0.0,
        ..no_headroom()
    };
    let load = Load {
        executing: 2,
        ..steady(2.0, 100)
    };
    assert_eq!(run(&mut scaler(settings), 0.0, 30, &load).last(), Some(&10));
}

#[test]
fn a_queue_that_drains_before_an_instance_is_ready_asks_for_few() {
    let mut scaler = scaler(no_headroom());
    let load = Load {
        arrivals: 0,
        busy: 0.0,
        executing: 2,
        queued: 20,
    };
    let size = Size {
        running: 2,
        pending: 0,
    };
    // 2 run; 20 of 200 ms are worked off by 2 more in the 2 s that a start takes.
    let decision = scaler.tick(ms(0.0), size, Some(&load), Keep::Grace);
    assert_eq!(
        decision,
        Decision {
            wanted: 4,
            start: 2,
            stop: 0
        }
    );
}

#[test]
fn a_request_longer_than_what_was_seen_counts_once_for_as_long_as_that() {
    let mut scaler = scaler(no_headroom());
    scaler.set_profile(super::profile(600_000.0, 2000.0));
    assert_eq!(run(&mut scaler, 0.0, 2, &steady(1.0, 1)), [1, 1]);
    assert_eq!(run(&mut scaler, 4000.0, 60, &steady(1.0, 0)), [1; 60]);
}

#[test]
fn requests_longer_than_a_start_get_an_instance_each() {
    let mut scaler = scaler(no_headroom());
    scaler.set_profile(super::profile(10_000.0, 2000.0));
    let load = Load {
        queued: 7,
        arrivals: 7,
        ..Load::default()
    };
    let decision = scaler.tick(ms(0.0), Size::default(), Some(&load), Keep::Grace);
    assert_eq!((decision.wanted, decision.start), (7, 7));
    let load = Load {
        arrivals: 0,
        ..load
    };
    let pending = Size {
        running: 1,
        pending: 6,
    };
    let decision = scaler.tick(ms(10.0), pending, Some(&load), Keep::Grace);
    assert_eq!(decision.start, 0, "they are on their way");
    let lost = Size {
        running: 1,
        pending: 4,
    };
    let decision = scaler.tick(ms(20.0), lost, Some(&load), Keep::Grace);
    assert_eq!(decision.start, 2, "two were lost");
}

#[test]
fn panic_sees_at_once_what_the_stable_window_averages_away() {
    let mut scaler = scaler(no_headroom());
    run(&mut scaler, 0.0, 40, &steady(1.0, 10));
    assert_eq!(
        (scaler.target(), scaler.is_panicking(ms(80_000.0))),
        (1, false)
    );
    // From 1 to 10: after 6 s the short window shows it, the long one 1.9.
    let sizes = run(&mut scaler, 80_000.0, 4, &steady(10.0, 100));
    assert!(scaler.is_panicking(ms(86_000.0)));
    assert!(sizes[3] >= 7, "{sizes:?}");
    // Nothing is taken away until a stable window has passed without a reason.
    let high = sizes[3];
    let after = run(&mut scaler, 88_000.0, 29, &steady(1.0, 10));
    assert!(after.iter().all(|size| *size >= high), "{after:?}");
    let later = run(&mut scaler, 146_000.0, 60, &steady(1.0, 10));
    assert_eq!(later.last(), Some(&1));
}

#[test]
fn without_load_it_goes_to_zero_after_the_grace_and_not_before() {
    let mut scaler = scaler(Settings::default());
    run(&mut scaler, 0.0, 60, &steady(2.0, 20));
    let active = 118_000.0;
    let before = run(&mut scaler, active + 2000.0, 29, &Load::default());
    assert!(before.iter().all(|size| *size >= 1), "{before:?}");
    let after = run(&mut scaler, active + 60_000.0, 6, &Load::default());
    assert_eq!(after.last(), Some(&0));
}

#[test]
fn the_keep_alive_policy_has_the_last_word_on_the_last_instance() {
    let mut scaler = scaler(Settings::default());
    let one = Size {
        running: 1,
        pending: 0,
    };
    let load = steady(0.1, 1);
    scaler.tick(ms(0.0), Size::default(), Some(&load), Keep::Warm(0));
    assert_eq!(scaler.target(), 1, "load counts first");
    let idle = Load::default();
    let mut wanted = |at, keep| scaler.tick(ms(at), one, Some(&idle), keep).wanted;
    assert_eq!(wanted(2000.0, Keep::Warm(1)), 1);
    assert_eq!(wanted(500_000.0, Keep::Warm(1)), 1, "longer than the grace");
    assert_eq!(wanted(502_000.0, Keep::Warm(0)), 0, "released");
    assert_eq!(
        wanted(504_000.0, Keep::Warm(1)),
        1,
        "loaded again beforehand"
    );
    assert_eq!(wanted(506_000.0, Keep::Warm(3)), 3);
    // Released at once after a run, though a window has seen load.
    let load = steady(1.0, 1);
    scaler.tick(ms(508_000.0), one, Some(&load), Keep::Warm(0));
    scaler.tick(ms(510_000.0), one, Some(&idle), Keep::Warm(0));
    scaler.tick(ms(516_000.0), one, Some(&idle), Keep::Warm(0));
    let last = scaler.tick(ms(570_000.0), one, Some(&idle), Keep::Warm(0));
    assert_eq!((last.wanted, last.stop), (0, 1));
}

#[test]
fn no_observation_changes_nothing() {
    let mut scaler = scaler(Settings::default());
    run(&mut scaler, 0.0, 60, &steady(5.0, 50));
    let target = scaler.target();
    let size = met(&scaler);
    for n in 0..200u32 {
        let now = ms(120_000.0 + 2000.0 * f64::from(n));
        let decision = scaler.tick(now, size, None, Keep::Grace);
        assert_eq!(decision, Decision::of(target, size));
    }
    // The first observation after a gap that is longer than the window counts alone.
    let sizes = run(&mut scaler, 520_000.0, 1, &steady(5.0, 50));
    assert_eq!(sizes, [target]);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut scaler = scaler(Settings::default());
    run(&mut scaler, 100_000.0, 60, &steady(5.0, 50));
    let target = scaler.target();
    let sizes = run(&mut scaler, 0.0, 10, &steady(5.0, 50));
    assert!(sizes.iter().all(|size| *size == target), "{sizes:?}");
}

#[test]
fn settings_that_do_not_go_together_are_refused_with_the_one_that_does_not() {
    let good = Settings::default();
    assert_eq!(good.validate(), Ok(()));
    let once = Rate {
        factor: 0.5,
        instances: 1,
    };
    let bad = [
        (
            "concurrency",
            Settings {
                concurrency: 0.0,
                ..good
            },
        ),
        (
            "headroom",
            Settings {
                headroom: f64::NAN,
                ..good
            },
        ),
        (
            "bucket (ms)",
            Settings {
                bucket: ms(0.0),
                ..good
            },
        ),
        (
            "panic window (ms)",
            Settings {
                panic: ms(61_000.0),
                ..good
            },
        ),
        (
            "stable window (ms)",
            Settings {
                bucket: ms(10.0),
                ..good
            },
        ),
        (
            "idle grace (ms)",
            Settings {
                idle_grace: ms(59_000.0),
                ..good
            },
        ),
        (
            "rate period (ms)",
            Settings {
                rate_period: ms(1.0),
                ..good
            },
        ),
        ("up factor", Settings { up: once, ..good }),
        ("down factor", Settings { down: once, ..good }),
        (
            "min",
            Settings {
                min: 3,
                max: 2,
                ..good
            },
        ),
    ];
    for (name, settings) in bad {
        let error = settings.validate().unwrap_err();
        let ScaleError::Range { setting, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(setting, name);
        assert_eq!(error.code(), ErrorCode::ConfigInvalid);
    }
}

#[test]
fn the_proportional_controller_follows_the_mean() {
    let mut plain = Proportional::new(Settings::default()).unwrap();
    let mut tick = |at: f64, load: Option<Load>| {
        let size = Size::default();
        plain.tick(ms(at), size, load.as_ref(), Keep::Grace).wanted
    };
    let first = Load {
        queued: 3,
        arrivals: 3,
        ..Load::default()
    };
    assert_eq!(tick(0.0, Some(first)), 1, "it has seen no time yet");
    assert_eq!(tick(10_000.0, Some(steady(5.0, 50))), 5);
    assert_eq!(tick(20_000.0, Some(steady(0.0, 0))), 3, "half of the time");
    assert_eq!(tick(25_000.0, None), 3);
    assert_eq!(tick(200_000.0, Some(steady(0.0, 0))), 0);
}
