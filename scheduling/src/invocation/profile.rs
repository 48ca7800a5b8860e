//! The expected resource needs of a function.

use fdn_core::Millis;

use super::refusal::Refusal;
use super::weight::Weight;

/// The profile of a function version: `E(j)`, `D(j)` and `R(j)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    execution: Millis,
    cold_start: Millis,
    memory: Weight,
}

impl Profile {
    /// A profile of execution time `E`, time `D` to load a container, and memory `R` that a container holds.
    ///
    /// # Errors
    /// When a time is negative or not finite, or the memory is zero (the number of containers would be unbounded) or above [`Self::MEMORY_MAX`].
    pub fn new(
        execution: Millis,
        cold_start: Millis,
        memory: impl Into<Weight>,
    ) -> Result<Self, Refusal> {
        let memory = memory.into();
        let invalid = |what| Err(Refusal::InvalidProfile { what });
        let is_span = |time: Millis| time.is_finite() && time.get() >= 0.0;
        if !is_span(execution) {
            return invalid("the execution time must be finite and not negative");
        }
        if !is_span(cold_start) {
            return invalid("the cold-start time must be finite and not negative");
        }
        if memory.get() == 0 || memory > Self::MEMORY_MAX {
            return invalid("the memory must be from 1 to 2^30 parts");
        }
        Ok(Self {
            execution,
            cold_start,
            memory,
        })
    }

    /// The most memory that a container may have.
    pub const MEMORY_MAX: Weight = Weight(1 << 30);

    /// `E(j)`: the expected execution time.
    #[must_use]
    pub const fn execution(&self) -> Millis {
        self.execution
    }

    /// `D(j)`: the expected time to load a container (cold start).
    #[must_use]
    pub const fn cold_start(&self) -> Millis {
        self.cold_start
    }

    /// `R(j)`: the memory that a container holds.
    #[must_use]
    pub const fn memory(&self) -> Weight {
        self.memory
    }

    /// The expected time from a start to its end: `E(j) + D(j)*[cold]`.
    #[must_use]
    pub fn span(&self, cold: bool) -> Millis {
        if cold {
            self.execution + self.cold_start
        } else {
            self.execution
        }
    }

    /// The memory held over that time, in units of weight times ms: `P` of formula (10) for `cold = [W(j) = 0]`.
    #[must_use]
    pub fn memory_time(&self, cold: bool) -> f64 {
        self.span(cold).get() * self.memory.get() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_finite_and_holds_memory() {
        let profile = |execution, cold, memory| {
            Profile::new(Millis::new(execution), Millis::new(cold), Weight(memory))
        };
        let good = profile(2.0, 3.0, 4).expect("valid");
        assert_eq!(
            (good.memory_time(false), good.memory_time(true)),
            (8.0, 20.0)
        );
        for bad in [
            profile(-1.0, 0.0, 1),
            profile(f64::INFINITY, 0.0, 1),
            profile(0.0, f64::NAN, 1),
            profile(0.0, -0.1, 1),
            profile(0.0, 0.0, 0),
            profile(0.0, 0.0, u64::MAX),
        ] {
            assert!(
                matches!(bad, Err(Refusal::InvalidProfile { .. })),
                "{bad:?}"
            );
        }
    }
}
