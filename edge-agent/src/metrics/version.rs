//! The metrics of one version of an app, for checks against its objective: a few atomic additions for each call.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fdn_core::VersionNumber;
use fdn_core::rollout::{BUCKETS, CallCounts, VersionObserved, bucket_of, sparse};

use super::Outcome;

/// The counters of one version, kept when its secrets change.
#[derive(Debug)]
pub struct VersionCounts {
    calls: AtomicU64,
    failures: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for VersionCounts {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            latency: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl VersionCounts {
    /// Counts an ended call, by the time to the head of its answer. Outcomes that the version did not cause are not counted.
    pub fn ended(&self, outcome: Outcome, head: Duration) {
        let failed = match outcome {
            Outcome::Ok => false,
            Outcome::FunctionError | Outcome::FunctionEnded => true,
            Outcome::Client | Outcome::Overloaded | Outcome::NotReady | Outcome::Internal => return,
        };
        self.latency[bucket_of(head.as_secs_f64() * 1e3)].fetch_add(1, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failures
            .fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    /// The counters since the agent started.
    #[must_use]
    pub fn observed(&self, version: VersionNumber) -> VersionObserved {
        // Read one after the other while calls end, so the values may be from slightly different moments.
        let failures = self.failures.load(Ordering::Relaxed);
        let calls = self.calls.load(Ordering::Relaxed).max(failures);
        let latency = array::from_fn(|at| self.latency[at].load(Ordering::Relaxed));
        VersionObserved {
            version,
            counts: CallCounts {
                calls,
                failures,
                latency: sparse(&latency),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_whose_doing_their_end_was() {
        let counts = VersionCounts::default();
        let ms = Duration::from_millis;
        for (outcome, took) in [
            (Outcome::Ok, ms(2)),
            (Outcome::FunctionError, ms(2)),
            (Outcome::FunctionEnded, ms(1000)),
            (Outcome::Client, ms(1)),
            (Outcome::Overloaded, ms(1)),
            (Outcome::NotReady, ms(1)),
            (Outcome::Internal, ms(1)),
        ] {
            counts.ended(outcome, took);
        }
        let seen = counts.observed(VersionNumber::FIRST).counts;
        assert_eq!((seen.calls, seen.failures), (3, 2));
        assert_eq!(seen.latency.iter().map(|(_, calls)| calls).sum::<u64>(), 3);
        assert_eq!(seen.slower_than(500.0), 1);
    }
}
