//! The retry policy of jobs: exponential backoff up to a bound, with jitter so that jobs that failed together are not retried together.

use serde::{Deserialize, Serialize};

use crate::unit::DurationMs;

/// How often a job may fail, and the pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Failed attempts after which the job is a dead letter; at least 1.
    pub attempts: u32,
    /// The pause after the first failure.
    pub first: DurationMs,
    /// The longest pause.
    pub longest: DurationMs,
}

impl RetryPolicy {
    /// The pause after `failures` consecutive attempts that did not succeed; `jitter` from 0 to 1 shortens it by up to half.
    #[must_use]
    pub fn pause(&self, failures: u32, jitter: f64) -> DurationMs {
        let doublings = failures.saturating_sub(1).min(32);
        let full = self.first.as_millis().saturating_mul(1 << doublings);
        let full = full.min(self.longest.as_millis());
        let cut = full / 2;
        // A share of a u64, and therefore within its range.
        let taken = (cut as f64 * jitter.clamp(0.0, 1.0)) as u64;
        DurationMs::from_millis(full - taken.min(cut))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        attempts: 5,
        first: DurationMs::from_millis(1000),
        longest: DurationMs::from_millis(60_000),
    };

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u64> = (1..=8).map(|n| POLICY.pause(n, 0.0).as_millis()).collect();
        assert_eq!(
            pauses,
            [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(POLICY.pause(3, 1.0).as_millis(), 2000);
        assert_eq!(POLICY.pause(u32::MAX, 0.0).as_millis(), 60_000);
    }

    proptest! {
        #[test]
        fn a_pause_is_between_half_and_all_of_what_it_would_be(failures in 0u32..100, jitter in 0.0f64..=1.0) {
            let full = POLICY.pause(failures, 0.0).as_millis();
            let pause = POLICY.pause(failures, jitter).as_millis();
            prop_assert!(pause <= full && pause >= full / 2);
        }
    }
}
