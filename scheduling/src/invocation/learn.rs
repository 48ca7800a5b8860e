//! Profiles that follow observations, so that no recorded profiles are needed in production.
//!
//! **Problem.** `E(j)`, `D(j)` and the memory that function `j` uses are not known beforehand, drift, and single observations can be far
//! off (a cold page cache, a stalled download). The order needs means that are roughly right soon and steady later.
//!
//! **Method.** Each figure is a moving mean that starts from the value given at registration. The `n`-th observation has weight
//! `max(floor, 1/(n + prior))`: the given value counts as `prior` observations, and the mean becomes exponential once `1/floor` were
//! seen. Observations are clipped to between the mean over `reach` and `reach` times the mean: one outlier moves the mean by at most its
//! weight times `reach - 1`, while a lasting change of any size is followed at a geometric pace.
//!
//! **Deviation.** For very skewed times, clipping makes the mean smaller than the arithmetic one: with a reach of 8, by the part of the
//! mean that lies beyond eight times it. The order compares functions, which this changes little.
//!
//! **Complexity.** O(1) and no allocation for each observation. **Invariant.** A mean stays between the smallest and the largest of the
//! given value and the observations.

use fdn_core::Millis;

use super::profile::Profile;
use super::refusal::Refusal;
use super::weight::Weight;

/// How profiles follow observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnSettings {
    /// How many observations the value given at registration counts as.
    pub prior: f64,
    /// The least weight of a new observation, above 0.
    pub floor: f64,
    /// The factor to which an observation is clipped relative to the mean, above 1.
    pub reach: f64,
}

impl Default for LearnSettings {
    fn default() -> Self {
        Self {
            prior: 2.0,
            floor: 0.02,
            reach: 8.0,
        }
    }
}

impl LearnSettings {
    /// # Errors
    /// When a mean could leave the range of what was observed.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let valid = self.prior >= 0.0
            && self.prior.is_finite()
            && self.floor > 0.0
            && self.floor <= 1.0
            && self.reach > 1.0
            && self.reach.is_finite();
        let what =
            "learning needs a prior of at least 0, a floor above 0 and at most 1, a reach above 1";
        valid.then_some(()).ok_or(Refusal::InvalidSetting { what })
    }
}

/// A moving mean with clipping.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mean {
    value: f64,
    seen: u32,
}

/// The least value of a mean: one of zero could never grow by a factor.
const LEAST: f64 = 1e-3;

impl Mean {
    const fn new(value: f64) -> Self {
        Self { value, seen: 0 }
    }

    fn observe(&mut self, seen: f64, settings: &LearnSettings) {
        if !seen.is_finite() || seen < 0.0 {
            return;
        }
        let middle = self.value.max(LEAST);
        let counted = seen.min(middle * settings.reach);
        let counted = if seen < middle / settings.reach {
            (middle / settings.reach).min(self.value)
        } else {
            counted
        };
        self.seen = self.seen.saturating_add(1);
        let weight = (1.0 / (f64::from(self.seen) + settings.prior)).max(settings.floor);
        self.value += weight * (counted - self.value);
    }
}

/// The live profile of one function version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveProfile {
    execution: Mean,
    cold_start: Mean,
    memory: Mean,
    /// The memory that containers hold; the memory seen in use does not change it.
    reserved: Weight,
    settings: LearnSettings,
}

impl LiveProfile {
    /// Starts from the profile given at registration.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(given: &Profile, settings: LearnSettings) -> Result<Self, Refusal> {
        settings.check()?;
        Ok(Self {
            execution: Mean::new(given.execution().get()),
            cold_start: Mean::new(given.cold_start().get()),
            memory: Mean::new(given.memory().get() as f64),
            reserved: given.memory(),
            settings,
        })
    }

    /// Observes the execution time of an invocation.
    pub fn saw_execution(&mut self, time: Millis) {
        self.execution.observe(time.get(), &self.settings);
    }

    /// Observes the loading time of a container.
    pub fn saw_cold_start(&mut self, time: Millis) {
        self.cold_start.observe(time.get(), &self.settings);
    }

    /// Observes the peak memory use of a container.
    pub fn saw_memory(&mut self, memory: impl Into<Weight>) {
        self.memory
            .observe(memory.into().get() as f64, &self.settings);
    }

    /// The mean of the observed peak memory use, rounded up: advice for the function's next memory setting.
    #[must_use]
    pub fn memory_used(&self) -> Weight {
        Weight(self.memory.value.ceil() as u64)
    }

    /// The present profile: times as observed, memory as reserved, since a container holds what was reserved for it.
    ///
    /// # Panics
    /// Never: means of finite times are finite.
    #[must_use]
    pub fn profile(&self) -> Profile {
        Profile::new(
            Millis::new(self.execution.value),
            Millis::new(self.cold_start.value),
            self.reserved,
        )
        .expect("means of finite times that are not negative")
    }
}
