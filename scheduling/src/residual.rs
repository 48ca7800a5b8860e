//! Predicted and actual latency: how far calls deviate from what plans assumed, and the correction of the next plan.
//!
//! **Problem.** A plan has for each function a run time measured across all clusters, at speed 1, and for each cluster one speed for all
//! functions. A function that is bound by memory, throttled, or accelerated by a device in one place only is mispredicted there
//! permanently. A plain mean of the errors would follow single outliers; the last error alone would chase noise.
//!
//! **Method.** For each place the logarithm of actual over predicted is kept, so that twice as long and half as long weigh the same. Each
//! observation moves it by a share that grows with the number of calls behind it (as an exponentially weighted mean over calls does), and
//! by no more than a bounded step: that of Huber's estimator of location, between mean and median. Without calls it decays, since what is
//! no longer observed may have changed. The correction is bounded to a factor of [`Terms::most`] either way.
//!
//! **Noise and change.** Calls differ, and a plan that follows every difference sends clients to and fro. So the weight of a call depends on the
//! tracking signal: the smoothed error over the smoothed absolute error, near 0 where errors have both signs, 1 where all have the same. With errors to
//! both sides a call weighs [`Terms::calm`], and an observation as many calls as it is really a mean of; with a lasting change it weighs
//! [`Terms::weight`]. The first observations form a plain mean, as far as that weight allows it.
//!
//! **Source.** P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964; the recursive form as in
//! stochastic approximation (Robbins and Monro, 1951); the tracking signal of D. W. Trigg and A. G. Leach, Exponential smoothing with an adaptive
//! response rate, Operational Research Quarterly 18, 1967.
//!
//! **Complexity.** O(log n) for an observation in a table of bounded size; from a full table the eighth observed longest ago is removed.
//!
//! **Invariants.** A factor is within `1/most` and `most`; with actual equal to predicted it tends to 1; one observation of one call
//! changes the expectation by at most a factor of `exp(weight * clip)`; a change of the prediction does not change the expectation,
//! within the bounds.

use std::collections::BTreeMap;

use fdn_core::{Millis, Timestamp};

/// Parameters of the estimator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The weight of one call relative to all before it, while the place is new or changes; above 0, at most 1.
    pub weight: f64,
    /// The weight of one call while errors have both signs; above 0, at most `weight`.
    pub calm: f64,
    /// The weight of one call in the tracking signal.
    pub tracking: f64,
    /// The bound on the error of one observation, as a natural logarithm: larger errors are clipped to it.
    pub clip: f64,
    /// The largest correction, as a factor above 1; the smallest is its inverse.
    pub most: f64,
    /// The time without calls after which half of a correction (in its logarithm) is left.
    pub half_life: Millis,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            weight: 0.05,
            calm: 0.005,
            tracking: 0.02,
            clip: 1.0,
            most: 16.0,
            half_life: Millis::new(3_600_000.0),
        }
    }
}

/// The least clipping bound of [`follow`], in ms: what took next to nothing may well take a millisecond.
const LEAST: f64 = 1.0;
/// A place observed within this time is never removed to make room.
const LIVELY: Millis = Millis::new(60_000.0);

/// Up to this many calls [`follow`] is the plain mean, since so few say little about what is typical; later it is a mean of about as many.
pub const FEW: u64 = 10;
/// The power of the tracking signal with which an observation counts as a change: noise gives signals of a third or a half every now and then.
const POWER: i32 = 4;

/// The share by which `calls` calls of this weight each move a mean: the sum of as many steps towards the same target.
fn share(weight: f64, calls: u64) -> f64 {
    1.0 - (1.0 - weight).powf(calls as f64)
}

/// One step of a robust moving mean of times in ms, after `before` other calls: an outlier counts at most as twice the known mean (or as
/// a millisecond more, if that is larger), and one call has weight 0.1. Over the first ten calls it is the plain mean: the very first is
/// often atypical, a probe that is answered at once or one that finds every cache empty.
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

/// The correction learnt for one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residual {
    log: f64,
    /// The logarithm of the prediction to which `log` refers.
    base: f64,
    calls: u64,
    error: f64,
    /// The smoothed error, as a logarithm.
    bias: f64,
    /// The smoothed absolute error, as a logarithm.
    spread: f64,
    /// The sum of [`Sample::effective`].
    effective: u64,
    seen: Timestamp,
}

impl Residual {
    /// Takes an observation into account.
    fn observe(&mut self, sample: &Sample, now: Timestamp, terms: &Terms) {
        let Some(ratio) = sample.ratio() else { return };
        self.log = self.log_at(now, terms);
        // Of the prediction as it was: the one that this sample corrects would always look better.
        let error = (self.log - ratio).exp() - 1.0;
        let miss = (ratio - self.log).clamp(-terms.clip, terms.clip);
        let effective = sample.effective.clamp(1, sample.calls);
        let tracked = share(terms.tracking, effective);
        self.bias += tracked * (miss - self.bias);
        self.spread += tracked * (miss.abs() - self.spread);
        let quick = share(terms.weight, sample.calls);
        self.effective = self.effective.saturating_add(effective);
        let mean = effective as f64 / self.effective as f64;
        let calm = share(terms.calm, effective).max(mean.min(quick));
        let step = calm + self.change() * (quick - calm);
        self.log = (self.log + step * miss).clamp(-terms.most.ln(), terms.most.ln());
        self.error += quick * (error.abs().min(1.0) - self.error);
        self.calls = self.calls.saturating_add(sample.calls);
        self.seen = now;
    }

    /// How much recent errors look like a change rather than noise: from 0 to 1.
    fn change(&self) -> f64 {
        let signal = self.bias.abs() / self.spread;
        if signal.is_finite() {
            signal.min(1.0).powi(POWER)
        } else {
            0.0
        }
    }

    /// Changes the reference to another prediction: the expectation for this place stays, whatever was measured elsewhere.
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

    /// The factor by which `predicted` must be multiplied. The resulting expectation follows from what calls took here and does not
    /// depend on what was predicted then, except for the bounds.
    #[must_use]
    pub fn factor(&self, predicted: Millis, now: Timestamp, terms: &Terms) -> f64 {
        let mut here = *self;
        here.rebase(predicted, terms);
        here.log_at(now, terms).exp()
    }

    /// The prediction to which the correction refers.
    #[must_use]
    pub fn base(&self) -> Millis {
        Millis::new(self.base.exp())
    }

    /// The number of calls from which it was learnt.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// The moving mean of the relative error of corrected predictions, as a share of the actual time, at most 1 per observation.
    #[must_use]
    pub const fn error(&self) -> f64 {
        self.error
    }
}

/// An observation of one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The uncorrected prediction of the plan.
    pub predicted: Millis,
    /// What calls actually took, on average.
    pub actual: Millis,
    /// The number of calls since the last observation.
    pub calls: u64,
    /// Of how many calls `actual` is a mean; counts as `calls` if it is more. A typical time of the last ten calls says no more of a thousand.
    pub effective: u64,
}

impl Sample {
    /// The logarithm of actual over predicted; `None` if it is not defined.
    fn ratio(&self) -> Option<f64> {
        let (predicted, actual) = (self.predicted.get(), self.actual.get());
        let is_one = predicted > 0.0 && actual > 0.0 && self.calls > 0;
        let ratio = (actual / predicted).ln();
        (is_one && ratio.is_finite()).then_some(ratio)
    }
}

/// The corrections of all places. The table is bounded: those observed longest ago are removed first, but none observed recently.
#[derive(Clone, Debug)]
pub struct Residuals<K> {
    terms: Terms,
    capacity: usize,
    known: BTreeMap<K, Residual>,
    /// When a place was last refused: until later no other can be admitted either, and the search is not repeated.
    full_at: Option<Timestamp>,
}

impl<K: Ord + Clone> Residuals<K> {
    /// A table of up to `capacity` places, at least one.
    #[must_use]
    pub fn new(terms: Terms, capacity: usize) -> Self {
        Self {
            terms,
            capacity: capacity.max(1),
            known: BTreeMap::new(),
            full_at: None,
        }
    }

    /// Takes an observation into account; true if it changes the correction by more than `drift` (a share).
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

    /// Removes up to an eighth of a full table, so that the next insertions need no search; true if there is room then.
    fn make_room(&mut self, now: Timestamp) -> bool {
        if self.known.len() < self.capacity {
            return true;
        }
        if self.full_at == Some(now) {
            return false;
        }
        // All observations of a pass have the same time: what is observed in every pass must stay, or everything would be learnt anew each time.
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
        // Of those with the boundary time only as many as fill the eighth: after a quiet night that may be all.
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

    /// The factor by which `predicted` must be multiplied for a place; 1 where nothing is known.
    #[must_use]
    pub fn factor(&self, place: &K, predicted: Millis, now: Timestamp) -> f64 {
        self.known
            .get(place)
            .map_or(1.0, |residual| residual.factor(predicted, now, &self.terms))
    }

    /// The correction learnt for a place; `None` if nothing is known.
    #[must_use]
    pub fn get(&self, place: &K) -> Option<&Residual> {
        self.known.get(place)
    }

    /// All known places.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Residual)> {
        self.known.iter()
    }

    /// Removes the places that `there` rejects.
    pub fn retain(&mut self, mut there: impl FnMut(&K) -> bool) {
        self.known.retain(|place, _| there(place));
    }

    /// The number of known places.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no place is known.
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
    fn calls_that_differ_widely_are_told_from_a_place_that_changed() {
        // The typical time of the last ten calls, of which each takes from a fifth to five times as long; thirty calls between two reports.
        let (mut corrected, mut reported, mut changed) = (0.0, 0.0, 0.0);
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut known, mut typical, mut calls) = (table(1), 0.0, 0);
            let mut report = |usual: f64| {
                for _ in 0..30 {
                    let one = usual * rng.random_range(-1.6_f64..1.6).exp();
                    typical = follow(typical, one, calls);
                    calls += 1;
                }
                known.observe(&1, &sample(10.0, typical, 30), NOW, 0.1);
                (factor(&known, 10.0).ln(), (typical / 10.0).ln())
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
