//! What is known of a function before it runs.

use fdn_core::{Coded, ErrorCode, Millis, Resources};

/// A function, by a number that its cluster gives it. Names are for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(u32);

impl FunctionIndex {
    /// The function of this number.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number as an index.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// What an instance of a function takes: registered demand and expected times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    demand: Resources,
    execution: Millis,
    cold_start: Millis,
}

/// A profile with a time that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the expected {what} of a function must be finite and at least zero")]
pub struct ProfileError {
    what: &'static str,
}

impl Coded for ProfileError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

impl Profile {
    /// A profile of demand `R(j)`, execution time `E(j)` and cold-start time `D(j)`.
    ///
    /// # Errors
    /// When a time is negative or not finite.
    pub fn new(
        demand: Resources,
        execution: Millis,
        cold_start: Millis,
    ) -> Result<Self, ProfileError> {
        for (what, time) in [
            ("execution time", execution),
            ("cold-start time", cold_start),
        ] {
            if !time.is_finite() || time.get() < 0.0 {
                return Err(ProfileError { what });
            }
        }
        Ok(Self {
            demand,
            execution,
            cold_start,
        })
    }

    /// What an instance takes of a node.
    #[must_use]
    pub const fn demand(&self) -> &Resources {
        &self.demand
    }

    /// How long a call is expected to run.
    #[must_use]
    pub const fn execution(&self) -> Millis {
        self.execution
    }

    /// How long an instance is expected to take until it is ready.
    #[must_use]
    pub const fn cold_start(&self) -> Millis {
        self.cold_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_finite_and_not_negative() {
        let of = |execution, cold_start| {
            let (execution, cold_start) = (Millis::new(execution), Millis::new(cold_start));
            Profile::new(Resources::default(), execution, cold_start)
        };
        assert!(of(0.0, 0.0).is_ok() && of(5.0, 700.0).is_ok());
        for (execution, cold_start) in [(-1.0, 0.0), (f64::NAN, 0.0), (1.0, f64::INFINITY)] {
            let error = of(execution, cold_start).expect_err("no time");
            assert_eq!(error.code(), ErrorCode::BadRequest);
        }
        let error = of(1.0, -0.5).expect_err("negative");
        assert!(error.to_string().contains("cold-start time"));
    }
}
