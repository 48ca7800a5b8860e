//! What calls came to, in a few figures.

use std::time::Duration;

use fdn_sim::report::Summary;
use serde::Serialize;

use crate::median;

/// Calls of one kind; times are those of calls that were answered, in ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Times {
    pub(super) calls: usize,
    pub(super) failed: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) longest: f64,
}

impl Times {
    /// Of these calls; those without a time have failed.
    pub(super) fn of(calls: impl IntoIterator<Item = Option<Duration>>) -> Self {
        let (mut all, mut took) = (0, Vec::new());
        for call in calls {
            all += 1;
            took.extend(call.map(|time| time.as_secs_f64() * 1e3));
        }
        let failed = all - took.len();
        let Summary { p50, p99, max, .. } = Summary::of(&mut took);
        Self {
            calls: all,
            failed,
            p50,
            p99,
            longest: max,
        }
    }

    /// Of some rounds: the medians of their quantiles, the longest of all, and calls and failures together.
    pub(super) fn of_rounds(rounds: &[Self]) -> Self {
        let middle = |of: fn(&Self) -> f64| median(rounds.iter().map(of).collect());
        Self {
            calls: rounds.iter().map(|round| round.calls).sum(),
            failed: rounds.iter().map(|round| round.failed).sum(),
            p50: middle(|round| round.p50),
            p99: middle(|round| round.p99),
            longest: rounds.iter().map(|round| round.longest).fold(0.0, f64::max),
        }
    }

    /// The names of the columns of [`Times::row`].
    pub(super) fn header() -> String {
        format!(
            "{:>9} {:>7} {:>9} {:>9} {:>9}",
            "calls", "failed", "p50 ms", "p99 ms", "longest"
        )
    }

    /// These, in one line.
    pub(super) fn row(&self) -> String {
        format!(
            "{:>9} {:>7} {:>9.3} {:>9.3} {:>9.3}",
            self.calls, self.failed, self.p50, self.p99, self.longest
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_and_have_no_time() {
        let calls = (1..=100).map(|ms| Some(Duration::from_millis(ms)));
        let times = Times::of(calls.chain([None, None]));
        assert_eq!((times.calls, times.failed), (102, 2));
        assert!((times.p50 - 50.0).abs() < 1e-9 && (times.p99 - 99.0).abs() < 1e-9);
        assert!((times.longest - 100.0).abs() < 1e-9);
    }

    #[test]
    fn rounds_keep_the_longest_and_the_middle_quantile() {
        let round = |p99, longest, failed| Times {
            calls: 10,
            failed,
            p50: 1.0,
            p99,
            longest,
        };
        let rounds = [round(2.0, 3.0, 0), round(9.0, 90.0, 1), round(4.0, 5.0, 0)];
        let all = Times::of_rounds(&rounds);
        assert_eq!((all.calls, all.failed), (30, 1));
        assert!((all.p99 - 4.0).abs() < 1e-9 && (all.longest - 90.0).abs() < 1e-9);
        assert_eq!(Times::header().len(), all.row().len());
    }
}
