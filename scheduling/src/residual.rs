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
//! **A run of outliers.** Clipping, and a tracking signal that has to rise first, need some fifty calls for a place that became ten times slower,
//! and with a call now and then clients wait there for minutes. Outliers are single; many in a row on the same side are none. Beyond [`RUN`] of them
//! the correction follows without a clip. A report counts as two calls at most, since its calls may have been slow together.
//!
//! **Source.** P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964; the recursive form as in
//! stochastic approximation (Robbins and Monro, 1951); the tracking signal of D. W. Trigg and A. G. Leach, Exponential smoothing with an adaptive
//! response rate, Operational Research Quarterly 18, 1967.
//!
//! **Complexity.** O(log n) for an observation in a table of bounded size; from a full table the eighth observed longest ago is removed.
//!
//! **Invariants.** A factor is within `1/most` and `most`; with actual equal to predicted it tends to 1; one observation of one call
//! changes the expectation by at most a factor of `exp(weight * clip)`, unless it is in a run; a change of the prediction does not change the
//! expectation, within the bounds.

use std::cmp::Ordering;
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
/// A place observed within this time is never removed to make room, and only calls within this time are a run.
const LIVELY: Millis = Millis::new(60_000.0);

/// Up to this many calls [`follow`] is the plain mean, since so few say little about what is typical; later it is a mean of about as many.
pub const FEW: u64 = 10;
/// The power of the tracking signal with which an observation counts as a change: noise gives signals of a third or a half every now and then.
const POWER: i32 = 4;

/// More calls in a row than these that are all far longer, or all far shorter, than what is known are a change, and no outliers.
pub const RUN: i64 = 6;
/// The calls as which a report counts at most in a run.
const RUN_CALLS: u64 = 2;
/// The weight of one call in a correction once a run is longer than [`RUN`].
const RUN_WEIGHT: f64 = 0.2;
/// The same in [`follow`], and the bound on its error then, in known means.
const RUN_FOLLOW: (f64, f64) = (0.5, 4.0);

/// The length of a run, above 0 while calls are far longer, below 0 while they are far shorter, after `calls` more of this kind. It ends at what is
/// needed.
fn extended(run: i64, side: Option<Ordering>, calls: u64) -> i64 {
    let calls = calls.min(RUN_CALLS).cast_signed();
    match side {
        Some(Ordering::Greater) => (run.max(0) + calls).min(RUN + 1),
        Some(Ordering::Less) => (run.min(0) - calls).max(-RUN - 1),
        Some(Ordering::Equal) | None => 0,
    }
}

/// The share by which `calls` calls of this weight each move a mean: the sum of as many steps towards the same target.
fn share(weight: f64, calls: u64) -> f64 {
    1.0 - (1.0 - weight).powf(calls as f64)
}

/// A robust moving mean of times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Typical {
    /// In ms.
    pub mean: f64,
    /// The calls in a row that took more than twice as long (above 0), or less than half as long (below 0).
    pub run: i64,
}

/// A call's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// In ms.
    pub took: f64,
    /// Whether it began after all calls of the run had ended; calls side by side are slow together when the machine pauses, and count as one.
    pub is_next: bool,
}

/// One step of a robust moving mean of times in ms, after `before` other calls: an outlier counts at most as twice the known mean (or as
/// a millisecond more, if that is larger), and one call has weight 0.1. Over the first ten calls it is the plain mean: the very first is
/// often atypical, a probe that is answered at once or one that finds every cache empty. After [`RUN`] outliers in a row on the same side
/// each further one has weight 0.5, and counts at most as five times the known mean.
#[must_use]
pub fn follow(known: Typical, observed: Observed, before: u64) -> Typical {
    let Typical { mean, run } = known;
    let sample = observed.took;
    if before == 0 || !mean.is_finite() {
        return Typical {
            mean: sample,
            run: 0,
        };
    }
    if before < FEW {
        let mean = mean + (sample - mean) / (before + 1) as f64;
        return Typical { mean, run: 0 };
    }
    let side = if sample - mean > mean.max(LEAST) {
        Some(Ordering::Greater)
    } else {
        (mean - sample > (mean / 2.0).max(LEAST)).then_some(Ordering::Less)
    };
    let run = extended(run, side, u64::from(observed.is_next));
    let (weight, clip) = if is_change(run, observed) {
        RUN_FOLLOW
    } else {
        (0.1, 1.0)
    };
    let mean = mean + weight * (sample - mean).min(clip * mean.max(LEAST));
    Typical { mean, run }
}

/// Whether an observation that left a run of this length shows that calls take another time from now on: after more than [`RUN`] outliers one after
/// the other.
#[must_use]
pub const fn is_change(run: i64, observed: Observed) -> bool {
    run.abs() > RUN && observed.is_next
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
    /// The calls in a row that were beyond the clip, above 0 for longer ones, below 0 for shorter ones.
    run: i64,
    seen: Timestamp,
}

impl Residual {
    /// Takes an observation into account.
    fn observe(&mut self, sample: &Sample, now: Timestamp, terms: &Terms) {
        let Some(ratio) = sample.ratio() else { return };
        self.log = self.log_at(now, terms);
        // Of the prediction as it was: the one that this sample corrects would always look better.
        let error = (self.log - ratio).exp() - 1.0;
        let beyond = ratio - self.log;
        let miss = beyond.clamp(-terms.clip, terms.clip);
        let effective = sample.effective.clamp(1, sample.calls);
        let tracked = share(terms.tracking, effective);
        self.bias += tracked * (miss - self.bias);
        self.spread += tracked * (miss.abs() - self.spread);
        let quick = share(terms.weight, sample.calls);
        self.effective = self.effective.saturating_add(effective);
        let mean = effective as f64 / self.effective as f64;
        let calm = share(terms.calm, effective).max(mean.min(quick));
        let side = if beyond >= terms.clip {
            Some(Ordering::Greater)
        } else {
            (beyond <= -terms.clip).then_some(Ordering::Less)
        };
        let is_old = Millis::from(now.since(self.seen)) >= LIVELY;
        let before = if is_old { 0 } else { self.run };
        self.run = extended(before, side, sample.calls);
        let mut step = (calm + self.change() * (quick - calm)) * miss;
        let followed = share(RUN_WEIGHT, sample.calls.min(RUN_CALLS)) * beyond;
        if self.run.abs() > RUN && followed.abs() > step.abs() {
            step = followed;
        }
        self.log = (self.log + step).clamp(-terms.most.ln(), terms.most.ln());
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
mod tests;
