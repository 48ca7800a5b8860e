//! Metrics of apps as callers experience them: bodies of `/v1/metrics`, and the counters that nodes report for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::rollout::{BUCKETS, CallCounts, bucket_end, bucket_of};
use crate::unit::{Millis, Timestamp};

/// Latency buckets of a [`Tally`] are those of [`bucket_of`] scaled by this factor, since calls at the edge take less than a millisecond.
/// The last bucket but one ends at 33 s.
const PER_MS: f64 = 16.0;

/// Counters of an app's calls as its callers experience them, from the arrival of the request to the last byte of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// The calls. `failures` are those answered with 5xx, whatever the cause, and `latency` counts in sixteenths of a millisecond: bucket
    /// `n` ends at 2^(n/4)/16 ms.
    #[serde(flatten)]
    pub counts: CallCounts,
    /// The number of calls that waited for their code to be loaded, plus the number of instances that were started.
    #[serde(default)]
    pub cold_starts: u64,
}

impl Tally {
    /// The latency bucket of a call that took this long.
    #[must_use]
    pub fn bucket(took: Millis) -> usize {
        bucket_of(took.get() * PER_MS)
    }

    /// The increase since `before`; the whole tally if the counter was reset in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if !self.counts.continues(&before.counts) {
            return self.clone();
        }
        Self {
            counts: self.counts.since(&before.counts),
            cold_starts: self.cold_starts.saturating_sub(before.cold_starts),
        }
    }

    /// The sum of two tallies.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            counts: self.counts.plus(&other.counts),
            cold_starts: self.cold_starts.saturating_add(other.cold_starts),
        }
    }

    /// The share of `part` (from 0) if the tally is distributed evenly over `parts` equal spans of time; all shares together equal the whole.
    #[must_use]
    pub fn part(&self, part: u64, parts: u64) -> Self {
        let share = |count: u64| {
            let up_to = |n: u64| u128::from(count) * u128::from(n) / u128::from(parts.max(1));
            u64::try_from(up_to(part + 1) - up_to(part)).unwrap_or(u64::MAX)
        };
        let latency = self.counts.latency.iter();
        let latency = latency.map(|(bucket, calls)| (*bucket, share(*calls)));
        Self {
            counts: CallCounts {
                calls: share(self.counts.calls),
                failures: share(self.counts.failures),
                latency: latency.filter(|(_, calls)| *calls > 0).collect(),
            },
            cold_starts: share(self.cold_starts),
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.counts.calls == 0 && self.cold_starts == 0
    }

    /// The latency that this share of the calls (0 to 1) did not exceed; `None` without calls. Within a bucket, calls are assumed to
    /// be evenly distributed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Millis> {
        let total: u64 = self.counts.latency.iter().map(|(_, calls)| *calls).sum();
        if total == 0 {
            return None;
        }
        let rank = (total as f64 * share).clamp(0.0, total as f64);
        let mut before = 0.0;
        for (bucket, calls) in &self.counts.latency {
            let (bucket, calls) = (usize::from(*bucket), *calls as f64);
            if before + calls >= rank {
                let begin = bucket.checked_sub(1).map_or(0.0, bucket_end);
                // The last bucket has no end.
                let end = if bucket >= BUCKETS - 1 {
                    begin
                } else {
                    bucket_end(bucket)
                };
                let within = (rank - before) / calls;
                return Some(Millis::new((begin + (end - begin) * within) / PER_MS));
            }
            before += calls;
        }
        None
    }
}

/// The period of the metrics, which ends now, and its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Window {
    /// 15 minutes in steps of 10 s.
    #[default]
    #[serde(rename = "15m")]
    Quarter,
    /// 24 hours in steps of 5 minutes.
    #[serde(rename = "24h")]
    Day,
}

impl Window {
    /// The length of a step, in milliseconds.
    #[must_use]
    pub const fn step_ms(self) -> u64 {
        match self {
            Self::Quarter => 10_000,
            Self::Day => 300_000,
        }
    }

    /// The number of steps in the window.
    #[must_use]
    pub const fn steps(self) -> u64 {
        match self {
            Self::Quarter => 90,
            Self::Day => 288,
        }
    }
}

/// How metrics are grouped into series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiguresBy {
    /// A single series of all calls.
    #[default]
    Total,
    /// One series per app.
    App,
    /// One series per cluster.
    Cluster,
    /// One series per region.
    Region,
}

impl fmt::Display for FiguresBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Total => "total",
            Self::App => "app",
            Self::Cluster => "cluster",
            Self::Region => "region",
        })
    }
}

impl FromStr for FiguresBy {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let all = [Self::Total, Self::App, Self::Cluster, Self::Region];
        let found = all.into_iter().find(|by| by.to_string() == s);
        found.ok_or_else(|| ParseError::new("series", s, "total, app, cluster or region"))
    }
}

/// The metrics of a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// The period.
    pub window: Window,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// When the first step begins.
    pub from: Timestamp,
    /// The present time; the last step has not ended yet.
    pub to: Timestamp,
    /// The series, those with most calls first.
    pub series: Vec<FigureSeries>,
    /// Whether there are more series than requested.
    pub more: bool,
}

/// The metrics of one app, cluster or region, or of all calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FigureSeries {
    /// The name of the app, cluster or region; `total` for the series of all calls.
    pub key: String,
    /// The metrics of the whole period; its `at` is the beginning of the period.
    pub sum: FigurePoint,
    /// The metrics of the steps with calls, in order of time.
    pub points: Vec<FigurePoint>,
}

/// The metrics of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FigurePoint {
    /// When the step begins.
    pub at: Timestamp,
    /// The number of calls that ended in the step.
    pub calls: u64,
    /// The number of those that were answered with 5xx.
    pub errors: u64,
    /// The number of calls that waited for their code to be loaded, plus the number of instances that were started.
    pub cold_starts: u64,
    /// The median latency of the calls, in milliseconds; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<Millis>,
    /// The 99th percentile of the latency of the calls, in milliseconds; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<Millis>,
}

impl FigurePoint {
    /// The figures of the step that began at `at`.
    #[must_use]
    pub fn of(at: Timestamp, tally: &Tally) -> Self {
        Self {
            at,
            calls: tally.counts.calls,
            errors: tally.counts.failures,
            cold_starts: tally.cold_starts,
            p50_ms: tally.quantile(0.5),
            p99_ms: tally.quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that took these milliseconds.
    fn tally(calls: &[f64]) -> Tally {
        let mut tally = Tally::default();
        for took in calls {
            let bucket = u8::try_from(Tally::bucket(Millis::new(*took))).expect("few buckets");
            tally = tally.plus(&Tally {
                counts: CallCounts {
                    calls: 1,
                    failures: 0,
                    latency: vec![(bucket, 1)],
                },
                cold_starts: 0,
            });
        }
        tally
    }

    #[test]
    fn quantiles_are_within_a_fifth_of_what_was_measured() {
        let mut calls = vec![0.4; 50];
        calls.extend(vec![3.0; 48]);
        calls.extend([200.0, 250.0]);
        let tally = tally(&calls);
        for (share, expected) in [(0.25, 0.4), (0.9, 3.0), (1.0, 250.0)] {
            let got = tally.quantile(share).expect("calls").get();
            assert!(
                (got / expected - 1.0).abs() < 0.2,
                "{share}: {got}, not {expected}"
            );
        }
        assert_eq!(Tally::default().quantile(0.5), None);
        let endless = super::tests::tally(&[1e9]).quantile(0.5).expect("a call");
        assert!(endless.get() > 10_000.0 && endless.get().is_finite());
    }

    #[test]
    fn counters_go_on_or_begin_anew() {
        let (early, late) = (tally(&[1.0, 2.0]), tally(&[1.0, 2.0, 2.0, 80.0]));
        let between = late.since(&early);
        assert_eq!(between.counts.calls, 2);
        assert_eq!(
            between
                .counts
                .latency
                .iter()
                .map(|(_, calls)| calls)
                .sum::<u64>(),
            2
        );
        assert_eq!(
            early.since(&late),
            early,
            "the node forgot what it had counted"
        );
    }

    #[test]
    fn parts_make_up_the_whole() {
        let mut whole = tally(&[0.2, 0.2, 0.2, 7.0, 7.0]);
        whole.cold_starts = 2;
        for parts in 1..5 {
            let sum = (0..parts).fold(Tally::default(), |sum, part| {
                sum.plus(&whole.part(part, parts))
            });
            assert_eq!(sum, whole, "{parts}");
        }
    }

    #[test]
    fn a_tally_survives_json_and_an_older_one_is_understood() {
        let tally = tally(&[0.2, 7.0]);
        let json = serde_json::to_string(&tally).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Tally>(&json).expect("own JSON"),
            tally
        );
        let old = r#"{"calls":1,"failures":0,"latency":[]}"#;
        assert_eq!(
            serde_json::from_str::<Tally>(old)
                .expect("JSON")
                .counts
                .calls,
            1
        );
    }
}
