//! What callers of one app experienced, for the controller's figures: a few atomic additions for each call.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fdn_core::figures::Tally;
use fdn_core::rollout::{BUCKETS, CallCounts, sparse};

use super::Outcome;

/// The counters of one app, kept over its versions.
#[derive(Debug)]
pub(super) struct TallyCounts {
    failures: AtomicU64,
    cold_starts: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for TallyCounts {
    fn default() -> Self {
        Self {
            failures: AtomicU64::new(0),
            cold_starts: AtomicU64::new(0),
            latency: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl TallyCounts {
    /// Counts a call that ended.
    pub(super) fn ended(&self, outcome: Outcome, took: Duration) {
        self.latency[Tally::bucket(took.into())].fetch_add(1, Ordering::Relaxed);
        let failed = match outcome {
            Outcome::Ok | Outcome::Client => false,
            Outcome::FunctionError
            | Outcome::FunctionEnded
            | Outcome::Overloaded
            | Outcome::NotReady
            | Outcome::Internal => true,
        };
        if failed {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call that waited until its code was loaded.
    pub(super) fn cold(&self) {
        self.cold_starts.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters since the agent started.
    pub(super) fn read(&self) -> Tally {
        // Failures are counted after their call: read first, they never exceed the calls.
        let failures = self.failures.load(Ordering::Relaxed);
        let latency: [u64; BUCKETS] = array::from_fn(|at| self.latency[at].load(Ordering::Relaxed));
        let calls = latency.iter().sum::<u64>().max(failures);
        Tally {
            counts: CallCounts {
                calls,
                failures,
                latency: sparse(&latency),
            },
            cold_starts: self.cold_starts.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_saw_is_counted_whoever_did_it() {
        let counts = TallyCounts::default();
        for (outcome, micros) in [
            (Outcome::Ok, 200),
            (Outcome::Client, 100),
            (Outcome::Overloaded, 50),
            (Outcome::FunctionEnded, 2_000_000),
        ] {
            counts.ended(outcome, Duration::from_micros(micros));
        }
        counts.cold();
        let tally = counts.read();
        assert_eq!(
            (tally.counts.calls, tally.counts.failures, tally.cold_starts),
            (4, 2, 1)
        );
        let slowest = tally.quantile(1.0).expect("calls").get();
        assert!((1_500.0..2_500.0).contains(&slowest), "{slowest}");
        let median = tally.quantile(0.5).expect("calls").get();
        assert!(median < 0.25, "{median}");
    }
}
