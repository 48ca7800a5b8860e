//! Objectives of new versions and the counters for them: bodies of `/v1/apps/{app}/objective`, and what nodes report of versions with a
//! traffic split. `fdn_scheduling::rollout` decides by both.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{Coded, ErrorCode};
use crate::id::{AppName, VersionNumber};
use crate::unit::{DurationMs, Timestamp};

/// The objective that new versions of an app must meet. At least one of the two limits must be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// The largest share of calls that may fail through the version's fault, in percent, from 0 to below 100; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// The limit of the 99th percentile of the time until the head of the response, in milliseconds, from 1 to 600000; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// How long the version must meet the objective, from `1s` to `24h`; `5m` if absent.
    #[serde(default = "Objective::default_window")]
    pub window: DurationMs,
    /// The least number of calls before anything is decided, from 1 to 1000000; 100 if absent.
    #[serde(default = "Objective::default_calls")]
    pub minimum_calls: u64,
}

/// An objective is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("objective.{field}: {problem}")]
pub struct ObjectiveError {
    field: &'static str,
    problem: &'static str,
}

impl Coded for ObjectiveError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ObjectiveInvalid
    }
}

impl Objective {
    const fn default_window() -> DurationMs {
        DurationMs::from_secs(300)
    }

    const fn default_calls() -> u64 {
        100
    }

    /// Validates the objective.
    ///
    /// # Errors
    /// The field that is not valid, and what is allowed.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        let wrong = |field, problem| Err(ObjectiveError { field, problem });
        if self.error_percent.is_none() && self.p99_ms.is_none() {
            return wrong("error_percent", "it or p99_ms must be set");
        }
        if self
            .error_percent
            .is_some_and(|percent| !(0.0..100.0).contains(&percent))
        {
            return wrong("error_percent", "it must be from 0 to below 100");
        }
        if self.p99_ms.is_some_and(|ms| !(1..=600_000).contains(&ms)) {
            return wrong("p99_ms", "it must be from 1 to 600000");
        }
        if !(1000..=86_400_000).contains(&self.window.as_millis()) {
            return wrong("window", "it must be from 1s to 24h");
        }
        if !(1..=1_000_000).contains(&self.minimum_calls) {
            return wrong("minimum_calls", "it must be from 1 to 1000000");
        }
        Ok(())
    }
}

/// The number of buckets of a latency histogram. The upper bound of each is the fourth root of 2 times the previous one; the first ends
/// at 1 ms, the last but one at about 9 min, and the last is unbounded.
pub const BUCKETS: usize = 78;

/// The bucket of a call that took `ms` milliseconds.
#[must_use]
pub fn bucket_of(ms: f64) -> usize {
    if ms <= 1.0 {
        return 0;
    }
    let at = (ms.log2() * 4.0).ceil();
    // A float above 0 and at most the number of buckets.
    if at >= (BUCKETS - 1) as f64 {
        BUCKETS - 1
    } else {
        at as usize
    }
}

/// The upper bound of a bucket in milliseconds; infinite for the last.
#[must_use]
pub fn bucket_end(bucket: usize) -> f64 {
    if bucket >= BUCKETS - 1 {
        f64::INFINITY
    } else {
        (bucket as f64 / 4.0).exp2()
    }
}

/// Counters of calls. Those of a version leave out calls whose end it did not cause, such as those given up by the client or refused for
/// lack of room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallCounts {
    /// The number of calls.
    pub calls: u64,
    /// The number of those that failed; for a version, through its own fault: 5xx, traps, limits, instances that do not start.
    pub failures: u64,
    /// A histogram of the time, for a version until the head of the response: pairs of bucket number and number of calls, ascending,
    /// without empty buckets. Bucket `n` ends at 2^(n/4) ms unless stated otherwise; the last one, 77, is unbounded.
    pub latency: Vec<(u8, u64)>,
}

impl CallCounts {
    /// Whether these counts can be a continuation of `before`: no count is smaller.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        self.calls >= before.calls && self.failures >= before.failures
    }

    /// The increase since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let old = |bucket| {
            let known = before.latency.iter().find(|(b, _)| *b == bucket);
            known.map_or(0, |(_, calls)| *calls)
        };
        let latency = self.latency.iter();
        let latency = latency.map(|(bucket, calls)| (*bucket, calls.saturating_sub(old(*bucket))));
        Self {
            calls: self.calls.saturating_sub(before.calls),
            failures: self.failures.saturating_sub(before.failures),
            latency: latency.filter(|(_, calls)| *calls > 0).collect(),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = [0u64; BUCKETS];
        for (bucket, calls) in self.latency.iter().chain(&other.latency) {
            let bucket = usize::from(*bucket).min(BUCKETS - 1);
            sums[bucket] = sums[bucket].saturating_add(*calls);
        }
        Self {
            calls: self.calls.saturating_add(other.calls),
            failures: self.failures.saturating_add(other.failures),
            latency: sparse(&sums),
        }
    }

    /// How many calls certainly took longer than `ms` milliseconds: those in buckets that begin there or later.
    #[must_use]
    pub fn slower_than(&self, ms: f64) -> u64 {
        let begins = |bucket: u8| match usize::from(bucket) {
            0 => 0.0,
            bucket => bucket_end(bucket - 1),
        };
        let slow = self
            .latency
            .iter()
            .filter(|(bucket, _)| begins(*bucket) >= ms);
        slow.map(|(_, calls)| *calls).sum()
    }
}

/// The non-empty buckets, with their indices.
#[must_use]
pub fn sparse(buckets: &[u64; BUCKETS]) -> Vec<(u8, u64)> {
    let numbered = (0u8..).zip(buckets.iter().copied());
    numbered.filter(|(_, calls)| *calls > 0).collect()
}

/// The calls of a version on a node since the agent started. Reported only for apps whose calls are split between versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionObserved {
    /// The number of the version.
    pub version: VersionNumber,
    /// The counters of its calls.
    #[serde(flatten)]
    pub counts: CallCounts,
}

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// The version is being watched.
    Watching,
    /// The version met its objective throughout the window.
    Held,
    /// The version broke its objective and gets no more calls.
    Broken,
}

impl RolloutState {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Held => "held",
            Self::Broken => "broken",
        }
    }
}

/// The rollout of a new version that is watched for the app's objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RolloutInfo {
    /// The version that is watched.
    pub version: VersionNumber,
    /// The version that gets the calls if the watched one breaks the objective.
    pub baseline: VersionNumber,
    /// The state of the rollout.
    pub state: RolloutState,
    /// When the present window began.
    pub since: Timestamp,
    /// The number of calls of the watched version in the window.
    pub calls: u64,
    /// The number of those that failed.
    pub failures: u64,
    /// Why the version broke the objective, or what is still missing, in words.
    pub reason: String,
}

/// The objective of an app, and the rollout of its newest version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectiveInfo {
    /// The app's name.
    pub app: AppName,
    /// The objective of new versions; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// When the objective was set; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who set the objective; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// The newest version that is or was watched; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutInfo>,
}

/// A mark on a version that must not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BadMark)]
pub struct VersionRejection {
    /// Why the version must not be used, in words.
    pub reason: String,
    /// When it was marked.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objective() -> Objective {
        Objective {
            error_percent: Some(1.0),
            p99_ms: Some(300),
            window: DurationMs::from_secs(60),
            minimum_calls: 50,
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        objective().check().expect("fine");
        let changed = |change: fn(&mut Objective)| {
            let mut wrong = objective();
            change(&mut wrong);
            wrong.check().expect_err("wrong").to_string()
        };
        for (error, word) in [
            (
                changed(|o| (o.error_percent, o.p99_ms) = (None, None)),
                "p99_ms must be set",
            ),
            (changed(|o| o.error_percent = Some(100.0)), "error_percent"),
            (
                changed(|o| o.error_percent = Some(f64::NAN)),
                "error_percent",
            ),
            (changed(|o| o.p99_ms = Some(0)), "p99_ms"),
            (
                changed(|o| o.window = DurationMs::from_millis(999)),
                "window",
            ),
            (changed(|o| o.minimum_calls = 0), "minimum_calls"),
        ] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn buckets_cover_everything_once() {
        assert_eq!((bucket_of(0.0), bucket_of(1.0)), (0, 0));
        assert_eq!(bucket_of(2.0), 4);
        assert_eq!(bucket_of(f64::INFINITY), BUCKETS - 1);
        assert!(bucket_end(BUCKETS - 2) > 500_000.0);
        let text = serde_json::to_string(&CallCounts::default()).expect("JSON");
        assert_eq!(text, r#"{"calls":0,"failures":0,"latency":[]}"#);
    }

    proptest! {
        #[test]
        fn a_call_lies_in_its_bucket(ms in 0.0f64..1e7) {
            let bucket = bucket_of(ms);
            prop_assert!(ms <= bucket_end(bucket) * (1.0 + 1e-9));
            prop_assert!(bucket == 0 || ms > bucket_end(bucket - 1) * (1.0 - 1e-9));
        }

        /// Calls counted as slower than a limit are slower, and calls slower than it by more than a fifth are counted as such.
        #[test]
        fn slow_calls_are_told_from_others(ms in 1.0f64..400_000.0, limit in 1.0f64..400_000.0) {
            let bucket = u8::try_from(bucket_of(ms)).expect("few buckets");
            let counts = CallCounts { calls: 1, failures: 0, latency: vec![(bucket, 1)] };
            if counts.slower_than(limit) == 1 {
                prop_assert!(ms >= limit * (1.0 - 1e-9));
            } else {
                prop_assert!(ms <= limit * 1.2);
            }
        }

        /// Sums and differences go back and forth.
        #[test]
        fn counts_add_up(a in any::<[u8; 4]>(), b in any::<[u8; 4]>()) {
            let counts = |n: [u8; 4]| {
                let mut buckets = [0; BUCKETS];
                for (at, n) in n.into_iter().enumerate() {
                    buckets[at * 7] = u64::from(n);
                }
                CallCounts { calls: buckets.iter().sum(), failures: u64::from(n[0]), latency: sparse(&buckets) }
            };
            let (a, b) = (counts(a), counts(b));
            let sum = a.plus(&b);
            prop_assert!(sum.continues(&a));
            prop_assert_eq!(sum.since(&a), b);
        }
    }
}
