//! Whether a new version meets its objective.
//!
//! **Problem.** Of a new version's calls it is counted how many there were, how many failed, and how many exceeded the objective's
//! latency. Its true rates are unknown. Rolling back because of two unlucky calls is as wrong as waiting an hour while one call in ten
//! fails.
//!
//! **Rule.** Nothing is decided before the objective's minimum number of calls. From then on, at every check, the version *breaks*
//! its objective as soon as the measured rate is significantly above the limit: the lower end of the Wilson score interval (E. B.
//! Wilson, 1927) at z = 3.09 exceeds it, which happens by chance once in a thousand checks for a version exactly at its limit, and
//! far less often for a better one. At the end of the window it has *held* if the measured rate is at most the limit. If it is
//! above, but not significantly, watching continues: the interval narrows with every call, so one of the two follows in the end.
//! The limit of the latency objective is one call in a hundred.
//!
//! **Invariants.** Pure; the same counts give the same verdict. More failures among as many calls never turn *broken* into anything else,
//! and fewer never turn *held* into anything else. A version without failures and slow calls never breaks.
//!
//! **Complexity.** Constant.

use fdn_core::DurationMs;
use fdn_core::VersionNumber;
use fdn_core::policy::Traffic;
use fdn_core::rollout::{CallCounts, Objective};

/// How many standard deviations above the limit count as significant.
const Z: f64 = 3.09;
/// The share of calls that may exceed a 99th percentile.
const SLOW: f64 = 0.01;

/// The verdict on a version.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Too few calls to decide.
    TooFew {
        /// How many more calls are needed.
        missing: u64,
    },
    /// No significant violation; the window is not over, or the measured rate is above the limit but not significantly.
    Watching,
    /// It met its objective throughout the window.
    Held,
    /// It broke its objective.
    Broken(Breach),
}

/// The violated limit, with the counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Breach {
    /// Too many calls failed.
    Errors {
        /// The number of failed calls.
        failures: u64,
        /// The number of all calls.
        calls: u64,
        /// The limit in percent.
        limit_percent: f64,
    },
    /// Too many calls were slow.
    Slow {
        /// The number of calls that exceeded the latency limit.
        slow: u64,
        /// The number of all calls.
        calls: u64,
        /// The limit of the 99th percentile, in ms.
        limit_ms: u64,
    },
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errors {
                failures,
                calls,
                limit_percent,
            } => write!(
                f,
                "{failures} of {calls} calls failed, {:.2} % where {limit_percent} % may",
                percent(*failures, *calls)
            ),
            Self::Slow {
                slow,
                calls,
                limit_ms,
            } => write!(
                f,
                "{slow} of {calls} calls took longer than {limit_ms} ms, {:.2} % where 1 % may",
                percent(*slow, *calls)
            ),
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// The verdict on a version by its calls in the `elapsed` part of its window.
#[must_use]
pub fn evaluate(objective: &Objective, counts: &CallCounts, elapsed: DurationMs) -> Verdict {
    let calls = counts.calls;
    if calls < objective.minimum_calls.max(1) {
        let missing = objective.minimum_calls.max(1) - calls;
        return Verdict::TooFew { missing };
    }
    let mut kept = true;
    if let Some(limit_percent) = objective.error_percent {
        let limit = limit_percent / 100.0;
        let failures = counts.failures.min(calls);
        if lower_bound(failures, calls) > limit {
            return Verdict::Broken(Breach::Errors {
                failures,
                calls,
                limit_percent,
            });
        }
        kept &= rate(failures, calls) <= limit;
    }
    if let Some(limit_ms) = objective.p99_ms {
        let slow = counts.slower_than(limit_ms as f64).min(calls);
        if lower_bound(slow, calls) > SLOW {
            return Verdict::Broken(Breach::Slow {
                slow,
                calls,
                limit_ms,
            });
        }
        kept &= rate(slow, calls) <= SLOW;
    }
    if kept && elapsed >= objective.window {
        Verdict::Held
    } else {
        Verdict::Watching
    }
}

fn rate(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// The lower end of the Wilson score interval of a rate; 0 if `part` is 0.
fn lower_bound(part: u64, whole: u64) -> f64 {
    if part == 0 {
        return 0.0;
    }
    let (n, p, z2) = (whole as f64, rate(part, whole), Z * Z);
    let centre = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - half) / (1.0 + z2 / n)).max(0.0)
}

/// The watched version of a traffic split and its baseline, which gets its calls if it breaks: the newest version with calls, and the
/// newest other one that is not known to be bad, preferring one with calls. `None` if there are no two such versions.
#[must_use]
pub fn candidate(
    traffic: &Traffic,
    bad: &[VersionNumber],
) -> Option<(VersionNumber, VersionNumber)> {
    let called = traffic.split.iter().filter(|share| share.weight > 0);
    let newest = called.map(|share| share.version).max()?;
    let others = traffic.split.iter().filter(|share| share.version != newest);
    let good = others.filter(|share| !bad.contains(&share.version));
    let baseline = good.max_by_key(|share| (share.weight > 0, share.version))?;
    Some((newest, baseline.version))
}

/// The traffic split after a version broke its objective: its weight is added to the baseline's at once; all others are unchanged.
#[must_use]
pub fn rolled_back(traffic: &Traffic, broken: VersionNumber, baseline: VersionNumber) -> Traffic {
    let mut split = traffic.split.clone();
    let moved: u32 = split
        .iter()
        .filter(|s| s.version == broken)
        .map(|s| s.weight)
        .sum();
    split.retain(|share| share.version != broken);
    for share in &mut split {
        if share.version == baseline {
            // The sum may exceed the largest weight and is capped; apart from that, the shares of the others are unchanged.
            share.weight = share
                .weight
                .saturating_add(moved)
                .min(fdn_core::policy::traffic::WEIGHT_MAX);
        }
    }
    Traffic {
        split,
        sticky: traffic.sticky,
        pin: traffic.pin,
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::policy::traffic::Share;
    use proptest::prelude::*;

    use super::*;

    const HALF: DurationMs = DurationMs::from_secs(30);
    const WHOLE: DurationMs = DurationMs::from_secs(60);

    fn objective() -> Objective {
        Objective {
            error_percent: Some(1.0),
            p99_ms: Some(256),
            window: WHOLE,
            minimum_calls: 50,
        }
    }

    fn counts(calls: u64, failures: u64, slow: u64) -> CallCounts {
        // Bucket 33 begins at 256 ms, bucket 8 ends at 4 ms.
        let latency = vec![(8, calls - slow), (33, slow)];
        CallCounts {
            calls,
            failures,
            latency,
        }
    }

    #[test]
    fn examples() {
        let evaluate = |calls, failures, slow, elapsed| {
            evaluate(&objective(), &counts(calls, failures, slow), elapsed)
        };
        assert_eq!(evaluate(20, 20, 20, WHOLE), Verdict::TooFew { missing: 30 });
        assert_eq!(evaluate(1000, 0, 0, HALF), Verdict::Watching);
        assert_eq!(
            evaluate(1000, 10, 10, WHOLE),
            Verdict::Held,
            "exactly at both limits"
        );
        // Two of fifty may be chance: neither broken nor held.
        assert_eq!(evaluate(50, 2, 0, WHOLE), Verdict::Watching);
        let Verdict::Broken(breach) = evaluate(50, 10, 0, HALF) else {
            panic!("one in five is no chance");
        };
        assert_eq!(
            breach.to_string(),
            "10 of 50 calls failed, 20.00 % where 1 % may"
        );
        let Verdict::Broken(breach) = evaluate(1000, 0, 50, HALF) else {
            panic!("one in twenty is slow");
        };
        assert_eq!(
            breach.to_string(),
            "50 of 1000 calls took longer than 256 ms, 5.00 % where 1 % may"
        );
    }

    #[test]
    fn an_objective_of_no_errors_breaks_with_the_first() {
        let none = Objective {
            error_percent: Some(0.0),
            p99_ms: None,
            ..objective()
        };
        assert_eq!(
            super::evaluate(&none, &counts(100, 0, 100), WHOLE),
            Verdict::Held
        );
        let one = super::evaluate(&none, &counts(100, 1, 0), HALF);
        assert!(
            matches!(one, Verdict::Broken(Breach::Errors { failures: 1, .. })),
            "{one:?}"
        );
    }

    /// Versions that lie at half their limit, looked at after every 20 calls up to 10,000: of 300 hardly one is taken back. Versions at five
    /// times their limit: all are, after 400 calls in the mean.
    #[test]
    fn good_versions_stay_and_bad_ones_go_soon() {
        let objective = Objective {
            p99_ms: None,
            ..objective()
        };
        let run = |seed: u64, failing: f64| {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut draw = || {
                // xorshift64*: Vigna, 2016.
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut failures = 0;
            for calls in 1..=10_000u64 {
                failures += u64::from(draw() < failing);
                let look = calls % 20 == 0;
                if look
                    && matches!(
                        super::evaluate(&objective, &counts(calls, failures, 0), HALF),
                        Verdict::Broken(_)
                    )
                {
                    return Some(calls);
                }
            }
            None
        };
        let good = (1..=300).filter(|seed| run(*seed, 0.005).is_some()).count();
        assert!(good <= 6, "{good} of 300 good versions were taken back");
        let bad: Vec<u64> = (1..=300)
            .map(|seed| run(seed, 0.05).expect("taken back"))
            .collect();
        let mean = bad.iter().sum::<u64>() / 300;
        assert!(mean < 400, "after {mean} calls");
    }

    proptest! {
        #[test]
        fn more_failures_are_never_better(calls in 50u64..5000, a in 0u64..500, b in 0u64..500) {
            let (fewer, more) = (a.min(b).min(calls), a.max(b).min(calls));
            let evaluate = |failures| super::evaluate(&objective(), &counts(calls, failures, 0), WHOLE);
            if matches!(evaluate(fewer), Verdict::Broken(_)) {
                prop_assert!(matches!(evaluate(more), Verdict::Broken(_)));
            }
            if evaluate(more) == Verdict::Held {
                prop_assert_eq!(evaluate(fewer), Verdict::Held);
            }
            prop_assert_eq!(evaluate(0), Verdict::Held);
        }

        /// All calls stay with versions of the split, the broken one has none, and no other version but the baseline gains.
        #[test]
        fn calls_go_back_in_one_step(weights in proptest::collection::vec(0u32..=100, 2..8)) {
            let split: Vec<Share> = weights.iter().zip(1u32..).map(|(weight, n)| Share { version: version(n), weight: *weight }).collect();
            let traffic = Traffic { split, ..Traffic::default() };
            let Some((broken, baseline)) = candidate(&traffic, &[]) else {
                prop_assert!(weights.iter().all(|w| *w == 0));
                return Ok(());
            };
            prop_assert!(broken != baseline);
            let after = rolled_back(&traffic, broken, baseline);
            let sum = |traffic: &Traffic| traffic.split.iter().map(|s| s.weight).sum::<u32>();
            prop_assert_eq!(sum(&after), sum(&traffic));
            after.check().expect("valid");
            for share in &after.split {
                let before = traffic.split.iter().find(|s| s.version == share.version).expect("there");
                prop_assert!(share.version == baseline || share.weight == before.weight);
                prop_assert!(share.version != broken);
            }
        }
    }

    fn version(n: u32) -> VersionNumber {
        n.try_into().expect("a number")
    }

    #[test]
    fn the_newest_version_with_calls_is_watched_against_a_good_one() {
        let traffic = |shares: &[(u32, u32)]| Traffic {
            split: shares
                .iter()
                .map(|(n, weight)| Share {
                    version: version(*n),
                    weight: *weight,
                })
                .collect(),
            ..Traffic::default()
        };
        let pair = |a, b| Some((version(a), version(b)));
        assert_eq!(candidate(&traffic(&[(1, 90), (2, 10)]), &[]), pair(2, 1));
        assert_eq!(candidate(&traffic(&[(2, 1), (1, 0)]), &[]), pair(2, 1));
        assert_eq!(
            candidate(&traffic(&[(1, 50), (2, 50), (3, 0)]), &[]),
            pair(2, 1)
        );
        assert_eq!(
            candidate(&traffic(&[(1, 10), (2, 80), (3, 10)]), &[version(2)]),
            pair(3, 1)
        );
        assert_eq!(candidate(&traffic(&[(2, 1)]), &[]), None);
        assert_eq!(candidate(&traffic(&[(2, 1), (1, 0)]), &[version(1)]), None);
    }
}
