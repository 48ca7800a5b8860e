//! What holds for every course of events.

use fdn_core::Millis;
use fdn_scheduling::scale::{Autoscaler, Keep, Load, Profile, Rate, Scaler, Settings, Size};
use proptest::prelude::*;

use super::{met, profile};

fn settings() -> impl Strategy<Value = Settings> {
    let windows = (2u32..=30, 1u32..=6, 0u32..=30, 1u32..=6);
    let shape = (1.0f64..4.0, 0.0f64..2.0, 1.0f64..4.0, 0.0f64..0.5);
    let bounds = (0u32..4, 0u32..60);
    let rates = (1.0f64..12.0, 1u32..12, 1.0f64..4.0, 1u32..4);
    (windows, shape, bounds, rates).prop_map(|(windows, shape, bounds, rates)| {
        let (stable, panic, grace, period) = windows;
        let seconds = |n: u32| Millis::new(1000.0 * f64::from(n));
        Settings {
            concurrency: shape.0,
            headroom: shape.1,
            panic_factor: shape.2,
            tolerance: shape.3,
            stable: seconds(stable),
            panic: seconds(panic.min(stable)),
            bucket: seconds(1),
            idle_grace: seconds(stable + grace),
            min: bounds.0,
            max: bounds.0 + bounds.1,
            rate_period: seconds(period.min(stable)),
            up: Rate {
                factor: rates.0,
                instances: rates.1,
            },
            down: Rate {
                factor: rates.2,
                instances: rates.3,
            },
        }
    })
}

fn profiles() -> impl Strategy<Value = Profile> {
    (1.0f64..30_000.0, 100.0f64..10_000.0).prop_map(|(exec, cold)| profile(exec, cold))
}

fn load() -> impl Strategy<Value = Load> {
    prop_oneof![
        1 => Just(Load::default()),
        3 => (0u64..100, 0.0f64..40.0, 0u64..40, 0u64..30).prop_map(
            |(arrivals, busy, executing, queued)| Load { arrivals, busy, executing, queued }
        ),
    ]
}

/// What happens between two ticks and at the second of them.
#[derive(Clone, Copy, Debug)]
struct Step {
    after: f64,
    load: Option<Load>,
    /// How many of the wanted instances are there.
    met: f64,
    keep: Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![4 => 0.0f64..4000.0, 1 => Just(0.0), 1 => 0.0f64..100_000.0];
    let load = prop_oneof![5 => load().prop_map(Some), 1 => Just(None)];
    let keep = prop_oneof![3 => Just(Keep::Grace), 1 => (0u32..4).prop_map(Keep::Warm)];
    (after, load, 0.0f64..1.0, keep).prop_map(|(after, load, met, keep)| Step {
        after,
        load,
        met,
        keep,
    })
}

fn play(scaler: &mut Autoscaler, now: &mut f64, step: &Step) -> (Size, u32) {
    *now += step.after;
    let there = scaler.target();
    let running = (f64::from(there) * step.met) as u32;
    let size = Size {
        running,
        pending: there - running,
    };
    let decision = scaler.tick(Millis::new(*now), size, step.load.as_ref(), step.keep);
    assert_eq!(there + decision.start - decision.stop, decision.wanted);
    (size, decision.wanted)
}

fn larger(load: &Load, by: (u64, f64, u64, u64)) -> Load {
    Load {
        arrivals: load.arrivals + by.0,
        busy: load.busy + by.1,
        executing: load.executing + by.2,
        queued: load.queued + by.3,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bounds_and_rates_are_kept_whatever_happens(
        settings in settings(),
        profile in profiles(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut scaler = Autoscaler::new(settings, profile).unwrap();
        let mut now = 0.0;
        let mut past = vec![(0.0, scaler.target())];
        for step in &steps {
            let (_, wanted) = play(&mut scaler, &mut now, step);
            prop_assert!((settings.min..=settings.max).contains(&wanted));
            for &(when, before) in &past {
                if now - when > settings.rate_period.get() {
                    continue;
                }
                let up = (f64::from(before) * settings.up.factor).max(f64::from(before + settings.up.instances));
                let down = (f64::from(before) / settings.down.factor).floor()
                    .min(f64::from(before.saturating_sub(settings.down.instances)));
                prop_assert!(f64::from(wanted) <= up.max(f64::from(settings.min)));
                prop_assert!(f64::from(wanted) >= down.min(f64::from(settings.max)));
            }
            past.push((now, wanted));
        }
    }

    #[test]
    fn a_larger_load_never_gets_fewer_instances(
        settings in settings(),
        profile in profiles(),
        steps in prop::collection::vec(step(), 0..60),
        last in step(),
        with in load(),
        by in (0u64..50, 0.0f64..20.0, 0u64..20, 0u64..20),
    ) {
        let mut scaler = Autoscaler::new(settings, profile).unwrap();
        let mut now = 0.0;
        for step in &steps {
            play(&mut scaler, &mut now, step);
        }
        let (mut less, mut more) = (scaler.clone(), scaler);
        let (mut first, mut second) = (now, now);
        let small = Step { load: Some(with), ..last };
        let large = Step { load: Some(larger(&with, by)), ..last };
        let (_, small) = play(&mut less, &mut first, &small);
        let (_, large) = play(&mut more, &mut second, &large);
        prop_assert!(large >= small, "{large} instead of {small}");
    }

    #[test]
    fn a_size_that_was_needed_is_kept_for_a_stable_window(
        settings in settings(),
        profile in profiles(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        // Without a policy that keeps instances warm, whose releases are its own decision.
        let mut scaler = Autoscaler::new(Settings { min: 0, ..settings }, profile).unwrap();
        let mut now = 0.0;
        let mut size = scaler.target();
        let mut last_up: Option<f64> = None;
        for step in &steps {
            play(&mut scaler, &mut now, &Step { keep: Keep::Grace, ..*step });
            let wanted = scaler.target();
            if wanted < size {
                let up = last_up.unwrap();
                prop_assert!(now - up >= settings.stable.get(), "down {} ms after up", now - up);
            }
            if wanted > size {
                last_up = Some(now);
            }
            size = wanted;
        }
    }

    #[test]
    fn a_constant_load_gives_a_constant_size(
        settings in settings(),
        profile in profiles(),
        steps in prop::collection::vec(step(), 0..40),
        busy in 0.01f64..30.0,
        spans in prop::collection::vec(100.0f64..3000.0, 50),
    ) {
        let mut scaler = Autoscaler::new(settings, profile).unwrap();
        let mut now = 0.0;
        for step in &steps {
            play(&mut scaler, &mut now, step);
        }
        // Until the past has left the window, the panic and the window of needs; then at most 60 steps of the rates.
        let period = settings.rate_period.get() + settings.bucket.get() + 3000.0;
        let settled = now + 4.0 * settings.stable.get() + 65.0 * period;
        let load = Load { arrivals: 0, busy, executing: busy as u64, queued: 0 };
        let mut sizes = Vec::new();
        for span in spans.iter().cycle() {
            now += span;
            let size = met(&scaler);
            let wanted = scaler.tick(Millis::new(now), size, Some(&load), Keep::Grace).wanted;
            if now > settled {
                sizes.push(wanted);
            }
            if sizes.len() > 100 {
                break;
            }
        }
        let first = sizes[0];
        prop_assert!(sizes.iter().all(|size| *size == first), "{sizes:?}");
        let demand = (busy + settings.headroom * busy.sqrt()) / settings.concurrency;
        let least = (demand / (1.0 + settings.tolerance) - 1e-3).ceil().min(f64::from(settings.max));
        prop_assert!(f64::from(first) >= least, "{first} for {demand}");
    }

    #[test]
    fn after_the_last_request_it_is_zero_within_the_stated_time(
        settings in settings(),
        profile in profiles(),
        steps in prop::collection::vec(step(), 1..60),
        tick in 200.0f64..2000.0,
    ) {
        let settings = Settings { min: 0, ..settings };
        let mut scaler = Autoscaler::new(settings, profile).unwrap();
        let mut now = 0.0;
        for step in &steps {
            play(&mut scaler, &mut now, &Step { keep: Keep::Grace, ..*step });
        }
        // At least one instance goes per rate period and tick, or a share where that is more.
        let mut periods = 0.0;
        let mut left = f64::from(scaler.target());
        while left >= 1.0 {
            left = (left / settings.down.factor).floor().min(left - f64::from(settings.down.instances));
            periods += 1.0;
        }
        // A bucket more, since windows consist of whole ones.
        let period = settings.rate_period.get() + settings.bucket.get() + tick;
        let deadline = now + settings.idle_grace.get() + settings.bucket.get() + tick + periods * period;
        let idle = Load::default();
        while now <= deadline {
            now += tick;
            let size = met(&scaler);
            scaler.tick(Millis::new(now), size, Some(&idle), Keep::Grace);
        }
        prop_assert_eq!(scaler.target(), 0);
    }

    #[test]
    fn noise_on_a_constant_load_flaps_at_most_once_per_stable_window(
        settings in settings(),
        profile in profiles(),
        mean in 0.5f64..20.0,
        noise in prop::collection::vec((0.0f64..2.0, 0u64..3), 300),
    ) {
        let mut scaler = Autoscaler::new(settings, profile).unwrap();
        let mut changes: Vec<(f64, bool)> = Vec::new();
        let mut size = scaler.target();
        for (n, (factor, queued)) in noise.iter().enumerate() {
            let now = 1000.0 * n as f64;
            let busy = mean * factor;
            let load = Load { arrivals: 1, busy, executing: busy as u64, queued: *queued };
            let there = met(&scaler);
            let wanted = scaler.tick(Millis::new(now), there, Some(&load), Keep::Grace).wanted;
            if wanted != size {
                changes.push((now, wanted > size));
                size = wanted;
            }
        }
        // From up over down to up, or from down over up to down.
        for (at, &(when, up)) in changes.iter().enumerate() {
            let back = changes[at..].iter().position(|(_, other)| *other != up);
            let again = back.and_then(|back| {
                changes[at + back..].iter().find(|(_, other)| *other == up)
            });
            if let Some((again, _)) = again {
                prop_assert!(again - when >= settings.stable.get());
            }
        }
    }
}
