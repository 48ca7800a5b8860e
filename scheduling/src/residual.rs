//! Predicted and actual: by how much what calls really took differs from what plans counted with, and how the next plan is corrected by it.
//!
//! **Problem.** A plan knows of a function what was measured of it everywhere, at speed 1, and of a cluster one speed for all functions. A function
//! that is bound by memory, throttled, or helped by a device in one place only is planned wrong there for ever. A plain mean of the errors would
//! follow single outliers; the last error alone would chase noise.
//!
//! **Way.** What is kept of each place is the logarithm of actual over predicted, so that twice as long and half as long weigh the same. Each observation
//! moves it by a share that grows with the calls behind it (as an exponentially weighted mean over calls does), and by no more than a bounded step,
//! whatever was seen: the step of Huber's estimator of location, between mean and median. Without calls it decays, since what is not seen
//! any more may have changed. The correction is bounded to a factor of [`Terms::most`] either way.
//!
//! **Source.** P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964; the recursive form as in
//! stochastic approximation (Robbins and Monro, 1951).
//!
//! **Complexity.** O(log n) for an observation in a table of bounded size; of a full one the eighth that was seen longest ago gives way.
//!
//! **Invariants.** A factor is within `1/most` and `most`; with actual equal to predicted it tends to 1; one observation of one call changes what
//! is expected by at most a factor of `exp(weight * clip)`; other predictions change nothing of what is expected, within the bounds.

use std::collections::BTreeMap;

use fdn_core::{Millis, Timestamp};

/// How residuals are learnt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// What one call weighs beside all before it; above 0, at most 1.
    pub weight: f64,
    /// The largest error that counts as what it is, as a logarithm: larger ones count as this much.
    pub clip: f64,
    /// The largest correction, as a factor.
    pub most: f64,
    /// After so long without calls half of a correction is left.
    pub half_life: Millis,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            weight: 0.05,
            clip: 1.0,
            most: 16.0,
            half_life: Millis::new(3_600_000.0),
        }
    }
}

/// Below it a time that is known bounds no step: what took next to nothing may well take a millisecond.
const LEAST: f64 = 1.0;
/// A place that was seen within so long gives way to no other.
const LIVELY: Millis = Millis::new(60_000.0);

/// So few calls say nothing of what is typical yet.
const FEW: u64 = 10;

/// One step of a robust moving mean of times in milliseconds, after `before` other calls: an outlier counts as no more than twice what is known (a
/// millisecond more where that is less), and one call weighs a tenth. Of the first ten it is the plain mean: the very first is often like no other,
/// a probe that is answered at once or one that finds every cache empty.
#[must_use]
pub fn follow(known: f64, sample: f64, before: u64) -> f64 {
    if before == 0 || !known.is_finite() {
        return sample;
    }
    if before < FEW {
        return known + (sample - known) / (before + 1) as f64;
    }
    known + 0.1 * (sample - known).min(known.max(LEAST))
}

/// What was learnt of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residual {
    log: f64,
    /// The logarithm of the prediction that this is relative to.
    base: f64,
    calls: u64,
    error: f64,
    seen: Timestamp,
}

impl Residual {
    /// Calls took `actual` where `predicted` (uncorrected) was counted with, `calls` of them since the last time.
    fn observe(&mut self, sample: &Sample, now: Timestamp, terms: &Terms) {
        let Some(ratio) = sample.ratio() else { return };
        self.log = self.log_at(now, terms);
        let miss = (ratio - self.log).clamp(-terms.clip, terms.clip);
        // As many steps of one call each, all towards the same place.
        let share = 1.0 - (1.0 - terms.weight).powf(sample.calls as f64);
        self.log = (self.log + share * miss).clamp(-terms.most.ln(), terms.most.ln());
        let error = (self.log - ratio).exp() - 1.0;
        self.error += share * (error.abs().min(1.0) - self.error);
        self.calls = self.calls.saturating_add(sample.calls);
        self.seen = now;
    }

    /// Makes it relative to another prediction: what calls are expected to take stays as it is, whatever was measured elsewhere.
    fn rebase(&mut self, predicted: Millis, terms: &Terms) {
        let base = predicted.get().ln();
        if !base.is_finite() {
            return;
        }
        if self.calls > 0 {
            let most = terms.most.ln();
            self.log = (self.log + self.base - base).clamp(-most, most);
        }
        self.base = base;
    }

    fn log_at(&self, now: Timestamp, terms: &Terms) -> f64 {
        let idle = now.since(self.seen).as_secs_f64() * 1e3;
        self.log * 0.5_f64.powf(idle / terms.half_life.get())
    }

    /// By what `predicted` has to be multiplied. What calls are expected to take follows from what they took here: it does not depend on
    /// what was predicted then, but for the bounds.
    #[must_use]
    pub fn factor(&self, predicted: Millis, now: Timestamp, terms: &Terms) -> f64 {
        let mut here = *self;
        here.rebase(predicted, terms);
        here.log_at(now, terms).exp()
    }

    /// The prediction that it is relative to now.
    #[must_use]
    pub fn base(&self) -> Millis {
        Millis::new(self.base.exp())
    }

    /// The calls that it was learnt from.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// The moving mean of how far corrected predictions were off, as a share of what calls took.
    #[must_use]
    pub const fn error(&self) -> f64 {
        self.error
    }
}

/// What was seen of one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What the plan counts with, uncorrected.
    pub predicted: Millis,
    /// What calls took.
    pub actual: Millis,
    /// So many of them since the last time.
    pub calls: u64,
}

impl Sample {
    /// The logarithm of actual over predicted; nothing where there is none.
    fn ratio(&self) -> Option<f64> {
        let (predicted, actual) = (self.predicted.get(), self.actual.get());
        let is_one = predicted > 0.0 && actual > 0.0 && self.calls > 0;
        let ratio = (actual / predicted).ln();
        (is_one && ratio.is_finite()).then_some(ratio)
    }
}

/// What was learnt of all places: bounded, those that were seen longest ago give way, and none that are seen all the time.
#[derive(Clone, Debug)]
pub struct Residuals<K> {
    terms: Terms,
    capacity: usize,
    known: BTreeMap<K, Residual>,
    /// When a place was last refused: at that moment there is no room for others either, and nobody looks for it again.
    full_at: Option<Timestamp>,
}

impl<K: Ord + Clone> Residuals<K> {
    /// Keeps up to `capacity` places, at least one.
    #[must_use]
    pub fn new(terms: Terms, capacity: usize) -> Self {
        Self {
            terms,
            capacity: capacity.max(1),
            known: BTreeMap::new(),
            full_at: None,
        }
    }

    /// Takes in what was seen of a place; whether the correction has changed by more than `drift` (a share) with it.
    pub fn observe(&mut self, place: &K, sample: &Sample, now: Timestamp, drift: f64) -> bool {
        if sample.ratio().is_none() {
            return false;
        }
        if !self.known.contains_key(place) {
            if !self.make_room(now) {
                return false;
            }
            self.known.insert(place.clone(), Residual::default());
        }
        let Some(residual) = self.known.get_mut(place) else {
            return false;
        };
        residual.rebase(sample.predicted, &self.terms);
        let before = residual.log_at(now, &self.terms).exp();
        residual.observe(sample, now, &self.terms);
        let after = residual.log_at(now, &self.terms).exp();
        (after / before - 1.0).abs() > drift || (before / after - 1.0).abs() > drift
    }

    /// Lets up to an eighth of all go where there are as many as may be, so that the next ones need not look again; whether there is room then.
    fn make_room(&mut self, now: Timestamp) -> bool {
        if self.known.len() < self.capacity {
            return true;
        }
        if self.full_at == Some(now) {
            return false;
        }
        // All of a pass are seen at the same time: who is seen in every pass must stay, or all would be learnt anew again and again.
        let seen = self.known.values().map(|one| one.seen);
        let mut seen: Vec<Timestamp> = seen
            .filter(|seen| Millis::from(now.since(*seen)) >= LIVELY)
            .collect();
        if seen.is_empty() {
            self.full_at = Some(now);
            return false;
        }
        let last = (self.capacity / 8).clamp(1, seen.len()) - 1;
        let (older, oldest, _) = seen.select_nth_unstable(last);
        let oldest = *oldest;
        // Of those that were seen at the same time only as many as that: after a quiet night that may be all.
        let mut equal = 1 + older.iter().filter(|seen| **seen == oldest).count();
        self.known.retain(|_, residual| {
            if residual.seen != oldest || equal == 0 {
                return residual.seen >= oldest;
            }
            equal -= 1;
            false
        });
        true
    }

    /// By what `predicted` has to be multiplied in a place; 1 where nothing is known.
    #[must_use]
    pub fn factor(&self, place: &K, predicted: Millis, now: Timestamp) -> f64 {
        self.known
            .get(place)
            .map_or(1.0, |residual| residual.factor(predicted, now, &self.terms))
    }

    /// What was learnt of a place.
    #[must_use]
    pub fn get(&self, place: &K) -> Option<&Residual> {
        self.known.get(place)
    }

    /// All places.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Residual)> {
        self.known.iter()
    }

    /// Forgets places.
    pub fn retain(&mut self, mut there: impl FnMut(&K) -> bool) {
        self.known.retain(|place, _| there(place));
    }

    /// How many places are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn sample(predicted: f64, actual: f64, calls: u64) -> Sample {
        Sample {
            predicted: Millis::new(predicted),
            actual: Millis::new(actual),
            calls,
        }
    }

    /// Of the place that all tests look at.
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
        let (mut known, mut mean, mut calls) = (table(1), 0.0, 0);
        for _ in 0..1000 {
            let outlier = if rng.random_bool(0.05) { 50.0 } else { 1.0 };
            mean = follow(mean, 18.0 * rng.random_range(0.75..1.25) * outlier, calls);
            calls += 1;
            if calls % 20 == 0 {
                known.observe(&1, &sample(10.0, mean, 20), NOW, 0.1);
            }
        }
        let predicted = 10.0 * factor(&known, 10.0);
        assert!((predicted / 18.0 - 1.0).abs() < 0.15, "{predicted}");
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
        // Calls elsewhere take four times as long, which is all that has changed.
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

    #[test]
    fn a_wait_that_rises_from_next_to_nothing_is_soon_seen() {
        let after = (100..150).fold(0.02, |known, before| follow(known, 200.0, before));
        assert!(after > 5.0, "{after}");
        assert!(follow(0.02, 200.0, 100) < 0.2, "one alone is not");
    }

    #[test]
    fn the_first_call_says_no_more_than_the_next_ones() {
        for first in [0.1, 5_000.0] {
            let after = (1..30).fold(first, |known, before| follow(known, 500.0, before));
            assert!((400.0..600.0).contains(&after), "{first}: {after}");
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
                if let Some(before) = before
                    && calls == 1
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
        fn a_step_stays_in_between(known in 1e-3f64..1e6, sample in 1e-3f64..1e6, before in 0u64..30) {
            let next = follow(known, sample, before);
            prop_assert!(next >= known.min(sample) - 1e-9 && next <= known.max(sample) + 1e-9);
        }
    }
}
