//! Profiles that follow what is seen, so that production needs no recorded ones.
//!
//! **Problem.** `E(j)`, `D(j)` and the memory that function `j` uses are not known beforehand, drift, and single
//! observations are wild (a page cache that was cold, a stuck download). The order needs means that are roughly right soon
//! and steady later.
//!
//! **Rule.** Each figure is a moving mean that starts from the value given at registration. The `n`-th observation has weight
//! `max(floor, 1/(n + prior))`: the value given counts as `prior` observations, and old ones fade once `1/floor` were seen.
//! An observation beyond `reach` times the mean, or below the mean over `reach`, counts as just that: one outlier moves the
//! mean by at most its weight times `reach - 1`, while a lasting change of any size is followed at a geometric pace.
//!
//! **Deviation.** For very skewed times the cut makes the mean smaller than the arithmetic one; with a reach of 8 that is the
//! part of the mean that lies beyond eight times it. The order compares functions, which that does not change much.
//!
//! **Complexity.** O(1) and no allocation for each observation. **Invariant.** A mean stays between the smallest and the
//! largest of the value given and what was seen.

use fdn_core::Millis;

use super::profile::Profile;
use super::refusal::Refusal;
use super::weight::Weight;

/// How profiles follow what is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnSettings {
    /// How many observations the value given at registration counts as.
    pub prior: f64,
    /// The least weight of a new observation.
    pub floor: f64,
    /// How many times the mean an observation may count as.
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
    /// When a mean would not stay between what was seen.
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

/// A moving mean.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mean {
    value: f64,
    seen: u32,
}

/// What counts as the least figure: a mean of nothing could never grow by a ratio.
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
    /// What a container holds; what it uses says only how far that is from need.
    reserved: Weight,
    settings: LearnSettings,
}

impl LiveProfile {
    /// Starts from the profile given at registration.
    ///
    /// # Errors
    /// When the settings cannot be used.
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

    /// An invocation executed for this long.
    pub fn saw_execution(&mut self, time: Millis) {
        self.execution.observe(time.get(), &self.settings);
    }

    /// A container took this long to load.
    pub fn saw_cold_start(&mut self, time: Millis) {
        self.cold_start.observe(time.get(), &self.settings);
    }

    /// A container used this much memory at most.
    pub fn saw_memory(&mut self, memory: impl Into<Weight>) {
        self.memory
            .observe(memory.into().get() as f64, &self.settings);
    }

    /// The memory that containers are seen to use, which is advice for the next reservation.
    #[must_use]
    pub fn memory_used(&self) -> Weight {
        Weight(self.memory.value.ceil() as u64)
    }

    /// The profile as it stands: times as seen, memory as reserved, since a container holds what was promised to it.
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
