//! The hybrid histogram against a plain list of idle times.

use fdn_core::Millis;
use fdn_scheduling::invocation::{
    FunctionIndex, Histogram, HistogramSettings, Keep, KeepAlive, Refusal,
};
use proptest::prelude::*;

use super::world::{ms, profile};

const BINS: usize = 20;

fn settings() -> HistogramSettings {
    HistogramSettings {
        bin: ms(10.0),
        bins: BINS,
        samples: 8,
        variation: 2.0,
        default: ms(55.0),
    }
}

/// What the policy's paper says, from all idle times at once.
fn plain(idle: &[f64], now: f64) -> Keep {
    let settings = settings();
    let bins: Vec<usize> = idle
        .iter()
        .map(|idle| (idle / 10.0) as usize)
        .filter(|&bin| bin < BINS)
        .collect();
    let counts: Vec<f64> = (0..BINS)
        .map(|bin| bins.iter().filter(|&&other| other == bin).count() as f64)
        .collect();
    let mean = counts.iter().sum::<f64>() / BINS as f64;
    let variance = counts
        .iter()
        .map(|count| (count - mean).powi(2))
        .sum::<f64>()
        / BINS as f64;
    if bins.len() < 8 || variance.sqrt() / mean < settings.variation {
        return Keep::Until(ms(now + 55.0));
    }
    let mut sorted = bins;
    sorted.sort_unstable();
    let percentile = |share: f64| sorted[(share * sorted.len() as f64).ceil() as usize - 1] as f64;
    let from = (0.9 * percentile(0.05)).floor() * 10.0;
    let until = ms(now + (1.1 * (percentile(0.99) + 1.0)).ceil() * 10.0);
    if from > 0.0 {
        return Keep::Reload {
            at: ms(now + from),
            until,
        };
    }
    Keep::Until(until)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_decision_is_that_of_all_idle_times_at_once(
        // Mostly regular, or the counts would never be concentrated.
        usual in 0.0f64..150.0,
        steps in prop::collection::vec((prop::option::weighted(0.15, 0.0f64..250.0), 0.0f64..20.0), 1..60),
    ) {
        let mut policy = Histogram::new(settings()).expect("valid");
        let function = FunctionIndex::new(3);
        policy.registered(function);
        let profile = profile(1.0, 1.0, 1);
        let (mut now, mut idle) = (0.0, Vec::new());
        policy.used(ms(now), function, &profile);
        for (odd, runs) in steps {
            now += runs;
            let keep = policy.turned_idle(ms(now), function);
            prop_assert_eq!(keep, plain(&idle, now), "{:?}", idle);
            let ended = now;
            now += odd.unwrap_or(usual);
            policy.used(ms(now), function, &profile);
            // A second start without an end between them is no further sample.
            policy.used(ms(now), function, &profile);
            idle.push(now - ended);
        }
        // Another function's row, and a row that is given to another function, start anew.
        policy.registered(FunctionIndex::new(4));
        policy.registered(function);
        for row in [3, 4] {
            let keep = policy.turned_idle(ms(now), FunctionIndex::new(row));
            prop_assert_eq!(keep, Keep::Until(ms(now + 55.0)));
        }
    }
}

#[test]
fn a_histogram_has_bins_of_some_width() {
    let new = |bin, bins| {
        Histogram::new(HistogramSettings {
            bin: Millis::new(bin),
            bins,
            ..settings()
        })
    };
    assert!(new(1.0, 1).is_ok());
    for bad in [
        new(0.0, 1),
        new(f64::INFINITY, 1),
        new(1.0, 0),
        new(1.0, 1_000_000),
    ] {
        assert!(matches!(bad, Err(Refusal::InvalidSetting { .. })));
    }
}
