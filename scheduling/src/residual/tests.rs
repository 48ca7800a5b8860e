//! What moves a correction, and what does not.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);

/// The time of a call after the one before.
fn next(took: f64) -> Observed {
    let is_next = true;
    Observed { took, is_next }
}

fn sample(predicted: f64, actual: f64, calls: u64) -> Sample {
    Sample {
        predicted: Millis::new(predicted),
        actual: Millis::new(actual),
        calls,
        effective: calls.min(FEW),
    }
}

/// The correction of the place that all tests use.
fn factor(known: &Residuals<u32>, predicted: f64) -> f64 {
    known.factor(&1, Millis::new(predicted), NOW)
}

fn table(capacity: usize) -> Residuals<u32> {
    Residuals::new(Terms::default(), capacity)
}

#[test]
fn a_speed_that_changes_by_five_is_corrected_within_a_hundred_calls() {
    for change in [5.0, 0.2] {
        let mut known = table(1);
        for _ in 0..1000 {
            known.observe(&1, &sample(10.0, 10.0, 1), NOW, 0.1);
        }
        let mut drifted = false;
        for _ in 0..100 {
            drifted |= known.observe(&1, &sample(10.0, 10.0 * change, 1), NOW, 0.02);
        }
        let error = factor(&known, 10.0) / change - 1.0;
        assert!(error.abs() < 0.05, "{change}: {error}");
        assert!(drifted, "a new plan is asked for");
    }
}

#[test]
fn the_median_error_is_small_after_a_thousand_noisy_calls() {
    // Times of a quarter around a place that is 1.8 times slower than predicted, and one call in twenty that takes fifty times as long.
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut known, mut typical, mut calls) = (table(1), Typical::default(), 0);
    for _ in 0..1000 {
        let outlier = if rng.random_bool(0.05) { 50.0 } else { 1.0 };
        let took = 18.0 * rng.random_range(0.75..1.25) * outlier;
        typical = follow(typical, next(took), calls);
        calls += 1;
        if calls % 20 == 0 {
            known.observe(&1, &sample(10.0, typical.mean, 20), NOW, 0.1);
        }
    }
    let predicted = 10.0 * factor(&known, 10.0);
    assert!((predicted / 18.0 - 1.0).abs() < 0.15, "{predicted}");
}

#[test]
fn calls_that_differ_widely_are_told_from_a_place_that_changed() {
    // The typical time of the last ten calls, of which each takes from a fifth to five times as long; thirty calls between two reports.
    let (mut corrected, mut reported, mut changed) = (0.0, 0.0, 0.0);
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut known, mut typical, mut calls) = (table(1), Typical::default(), 0);
        let mut report = |usual: f64| {
            for _ in 0..30 {
                let one = usual * rng.random_range(-1.6_f64..1.6).exp();
                typical = follow(typical, next(one), calls);
                calls += 1;
            }
            known.observe(&1, &sample(10.0, typical.mean, 30), NOW, 0.1);
            (factor(&known, 10.0).ln(), (typical.mean / 10.0).ln())
        };
        let reports: Vec<(f64, f64)> = (0..200).map(|_| report(10.0)).collect();
        let swing = |of: fn(&(f64, f64)) -> f64| {
            let pairs = reports[50..].windows(3);
            pairs
                .map(|three| (of(&three[2]) - of(&three[0])).abs())
                .fold(0.0, f64::max)
                / 20.0
        };
        corrected += swing(|one| one.0);
        reported += swing(|one| one.1);
        // Five times as long from now on: most of it is known after some two hundred calls.
        let before = reports[199].0;
        let after = (0..7).map(|_| report(50.0).0).last().expect("seven");
        changed += (after - before) / 20.0;
    }
    assert!(
        corrected * 3.0 < reported,
        "on average {corrected} of {reported}"
    );
    let changed = changed.exp();
    assert!((3.0..7.0).contains(&changed), "{changed}");
}

#[test]
fn one_outlier_moves_next_to_nothing_and_what_is_no_time_nothing() {
    let mut known = table(2);
    known.observe(&1, &sample(10.0, 10.0, 100), NOW, 0.1);
    assert!(!known.observe(&1, &sample(10.0, 1e6, 1), NOW, 0.1));
    assert!(factor(&known, 10.0) < 1.06);
    for odd in [
        sample(0.0, 1.0, 1),
        sample(1.0, 0.0, 1),
        sample(1.0, f64::INFINITY, 1),
        sample(1.0, 5.0, 0),
    ] {
        assert!(!known.observe(&2, &odd, NOW, 0.0));
    }
    assert_eq!(
        (known.len(), known.factor(&2, Millis::new(1.0), NOW)),
        (1, 1.0)
    );
}

#[test]
fn what_was_seen_here_stays_whatever_is_measured_elsewhere() {
    let mut known = table(1);
    known.observe(&1, &sample(10.0, 20.0, 10_000), NOW, 0.1);
    // The measurement elsewhere becomes four times as long; nothing else changes.
    let time = 40.0 * factor(&known, 40.0);
    assert!((time - 20.0).abs() < 0.1, "{time}");
    known.observe(&1, &sample(80.0, 20.0, 10_000), NOW, 0.1);
    let time = 80.0 * factor(&known, 80.0);
    assert!((time - 20.0).abs() < 0.1, "{time}");
    assert!(factor(&known, 0.0).is_finite());
}

#[test]
fn what_is_not_seen_any_more_fades() {
    let mut known = table(1);
    known.observe(&1, &sample(10.0, 20.0, 10_000), NOW, 0.1);
    known.observe(&1, &sample(10.0, 20.0, 10_000), NOW, 0.1);
    let now = factor(&known, 10.0);
    assert!((now - 2.0).abs() < 0.01, "{now}");
    let later = known.factor(&1, Millis::new(10.0), Timestamp(NOW.0 + 3_600_000));
    assert!((later - 2.0_f64.sqrt()).abs() < 0.01, "{later}");
}

#[test]
fn as_many_are_kept_as_may_be_and_the_oldest_give_way() {
    let mut known = table(2);
    for (place, at) in [(1, 10), (2, 20), (1, 30), (3, 100)] {
        known.observe(&place, &sample(1.0, 2.0, 5), Timestamp(at * 1_000), 0.1);
    }
    let left: Vec<u32> = known.iter().map(|(place, _)| *place).collect();
    assert_eq!(left, [1, 3]);
}

#[test]
fn who_is_seen_in_every_pass_stays_whoever_comes() {
    let mut known = table(16);
    for pass in 0..5 {
        let now = Timestamp(NOW.0 + pass * 5_000);
        for place in (0..20).rev() {
            known.observe(&place, &sample(1.0, 2.0, 50), now, 0.1);
        }
        let left: Vec<u32> = known.iter().map(|(place, _)| *place).collect();
        assert_eq!(left, (4..20).collect::<Vec<_>>());
    }
    assert_eq!(known.get(&19).map(Residual::calls), Some(250));
}

#[test]
fn after_a_quiet_night_an_eighth_gives_way() {
    let mut known = table(16);
    for place in 0..16 {
        known.observe(&place, &sample(1.0, 2.0, 5), NOW, 0.1);
    }
    let morning = Timestamp(NOW.0 + 8 * 3_600_000);
    known.observe(&16, &sample(1.0, 2.0, 5), morning, 0.1);
    let left: Vec<u32> = known.iter().map(|(place, _)| *place).collect();
    assert_eq!(left, (2..17).collect::<Vec<_>>());
}

/// The typical time after these samples, of a place that was known to take `mean`.
fn followed(mean: f64, samples: impl IntoIterator<Item = f64>) -> f64 {
    let known = Typical { mean, run: 0 };
    let each = (100..).zip(samples);
    each.fold(known, |known, (before, sample)| {
        follow(known, next(sample), before)
    })
    .mean
}

#[test]
fn a_wait_that_rises_from_next_to_nothing_is_soon_seen() {
    let after = followed(0.02, [200.0; 50]);
    assert!(after > 5.0, "{after}");
    assert!(followed(0.02, [200.0]) < 0.2, "one alone is not");
}

#[test]
fn outliers_in_a_row_are_none() {
    for (sample, one_more) in [(100.0, 50.0..100.0), (1.0, 1.0..4.0)] {
        let few = followed(10.0, [sample; RUN as usize]);
        let interrupted = [[sample; RUN as usize].as_slice(), &[10.0]].concat();
        let interrupted: Vec<f64> = [interrupted.as_slice(), &interrupted].concat();
        assert!((4.0..20.0).contains(&few), "{sample}: {few}");
        let twice = followed(10.0, interrupted);
        assert!((2.5..35.0).contains(&twice), "{sample}: {twice}");
        let after = followed(10.0, [sample; RUN as usize + 1]);
        assert!(one_more.contains(&after), "{sample}: {after}");
    }
}

#[test]
fn calls_that_are_slow_together_are_one() {
    let mut known = Typical { mean: 10.0, run: 0 };
    for n in 0..12 {
        let took = 1000.0 - f64::from(n) * 10.0;
        let is_next = n == 0;
        known = follow(known, Observed { took, is_next }, 100);
    }
    assert!(known.mean < 35.0 && known.run == 1, "{known:?}");
}

#[test]
fn a_place_that_became_ten_times_slower_is_known_after_some_twenty_calls() {
    for (per_report, reports) in [(1, 20), (3, 8)] {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let (mut known, mut typical, mut calls) = (table(1), Typical::default(), 0);
        let mut report = |usual: f64| {
            for _ in 0..per_report {
                let outlier = if rng.random_bool(0.05) { 10.0 } else { 1.0 };
                let took = usual * rng.random_range(0.7..1.4) * outlier;
                typical = follow(typical, next(took), calls);
                calls += 1;
            }
            known.observe(&1, &sample(10.0, typical.mean, per_report), NOW, 0.1);
            factor(&known, 10.0)
        };
        let steady: Vec<f64> = (0..300).map(|_| report(10.0)).collect();
        let most = steady[100..].iter().copied().fold(0.0, f64::max);
        assert!(most < 1.35, "{per_report}: {most}");
        let slower = (0..reports).map(|_| report(100.0)).last();
        let slower = slower.expect("reports");
        assert!(slower > 3.0, "{per_report}: {slower}");
    }
}

#[test]
fn nodes_that_take_turns_are_no_change() {
    let mut known = table(1);
    let mut report = |actual: f64| {
        known.observe(&1, &sample(10.0, actual, 100), NOW, 0.1);
        factor(&known, 10.0)
    };
    let factors: Vec<f64> = (0..200).map(|n| report([10.0, 80.0][n % 2])).collect();
    let settled = &factors[100..];
    let most = settled.iter().copied().fold(0.0, f64::max);
    let least = settled.iter().copied().fold(f64::MAX, f64::min);
    assert!(most / least < 1.2, "{least} to {most}");
}

#[test]
fn a_run_is_of_calls_that_follow_each_other() {
    for (pause, known_by_then) in [(1_000, true), (120_000, false)] {
        let mut known = table(1);
        known.observe(&1, &sample(10.0, 10.0, 100), NOW, 0.1);
        let mut now = NOW;
        for _ in 0..4 {
            now = Timestamp(now.0 + pause);
            known.observe(&1, &sample(10.0, 1000.0, 2), now, 0.1);
        }
        let factor = known.factor(&1, Millis::new(10.0), now);
        assert_eq!(factor > 3.0, known_by_then, "{factor}");
    }
}

#[test]
fn the_first_call_says_no_more_than_the_next_ones() {
    for first in [0.1, 5_000.0] {
        let known = Typical {
            mean: first,
            run: 0,
        };
        let after = (1..30).fold(known, |known, before| follow(known, next(500.0), before));
        assert!((400.0..600.0).contains(&after.mean), "{first}: {after:?}");
    }
}

proptest! {
    /// Whatever is seen, a correction stays within its bounds, and one call changes it by one bounded step.
    #[test]
    fn corrections_are_bounded(seen in prop::collection::vec((1e-6f64..1e9, 1e-6f64..1e9, 1u64..1000), 1..60)) {
        let terms = Terms::default();
        let (mut known, mut base) = (table(1), 1.0);
        for (predicted, actual, calls) in seen {
            let before = (!known.is_empty()).then(|| factor(&known, base) * base);
            known.observe(&1, &sample(predicted, actual, calls), NOW, 0.1);
            let after = factor(&known, predicted);
            let bound = terms.most * 0.999;
            prop_assert!(after <= terms.most * 1.0001 && after >= 0.9999 / terms.most);
            base = predicted;
            let step = (terms.weight * terms.clip).exp() * 1.0001;
            let in_run = known.get(&1).is_some_and(|residual| residual.run.abs() > RUN);
            if let Some(before) = before
                && calls == 1
                && !in_run
                && before / predicted < bound
                && predicted / before < bound
            {
                let after = after * predicted;
                prop_assert!(after / before <= step && before / after <= step);
            }
        }
    }

    /// A robust mean of times stays between what it was and what was seen.
    #[test]
    fn a_step_stays_in_between(mean in 1e-3f64..1e6, sample in 1e-3f64..1e6, before in 0u64..30, run in -10i64..10, is_next: bool) {
        let next = follow(Typical { mean, run }, Observed { took: sample, is_next }, before).mean;
        prop_assert!(next >= mean.min(sample) - 1e-9 && next <= mean.max(sample) + 1e-9);
    }
}
