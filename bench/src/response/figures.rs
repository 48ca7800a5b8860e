//! What became of calls, in a few figures.

use std::time::Duration;

use fdn_sim::report::Summary;
use serde::Serialize;

use super::site::SITES;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With its answer.
    Answered,
    /// With another status.
    Refused(u16),
    /// Without an answer.
    Lost,
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// When it was to be made, from the beginning.
    pub(crate) at: Duration,
    pub(crate) app: usize,
    pub(crate) place: usize,
    /// Where it went, if it went anywhere.
    pub(crate) site: Option<usize>,
    /// Until its client knew where to call, as a part of `took`.
    pub(crate) asked: Duration,
    /// From then on when it was to be made until its last byte.
    pub(crate) took: Duration,
    pub(crate) ended: Ended,
}

/// What calls of one kind came to. Times are those of calls that were answered, in ms.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) calls: usize,
    pub(crate) failed: usize,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Of the mean, how long clients asked where to call.
    pub(crate) asking: f64,
    /// Of all calls, how many hundredths went to each cluster.
    pub(crate) shares: Vec<(&'static str, f64)>,
}

impl Figures {
    /// Of these calls.
    pub(crate) fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let calls: Vec<&Call> = calls.into_iter().collect();
        let good: Vec<&&Call> = calls
            .iter()
            .filter(|call| call.ended == Ended::Answered)
            .collect();
        let mut times: Vec<f64> = good.iter().map(|call| ms(call.took)).collect();
        let mut asked: Vec<f64> = good.iter().map(|call| ms(call.asked)).collect();
        let Summary { mean, p50, p99, .. } = Summary::of(&mut times);
        let share = |at: usize| {
            let there = calls.iter().filter(|call| call.site == Some(at)).count();
            100.0 * there as f64 / calls.len().max(1) as f64
        };
        Self {
            calls: calls.len(),
            failed: calls.len() - good.len(),
            mean,
            p50,
            p99,
            asking: Summary::of(&mut asked).mean,
            shares: (0..SITES.len())
                .map(|at| (SITES[at].name, share(at)))
                .collect(),
        }
    }

    /// The names of the columns of [`Figures::row`].
    pub(crate) fn header() -> String {
        let names = SITES.iter().map(|site| format!(" {:>9}", site.name));
        format!(
            "{:>7} {:>9} {:>9} {:>9} {:>7} {:>7} {}",
            "calls",
            "mean ms",
            "p50 ms",
            "p99 ms",
            "failed",
            "asking",
            names.collect::<String>()
        )
    }

    /// These, in one line.
    pub(crate) fn row(&self) -> String {
        let shares = self
            .shares
            .iter()
            .map(|(_, part)| format!(" {part:>7.1} %"));
        format!(
            "{:>7} {:>9.1} {:>9.1} {:>9.1} {:>7} {:>7.1} {}",
            self.calls,
            self.mean,
            self.p50,
            self.p99,
            self.failed,
            self.asking,
            shares.collect::<String>()
        )
    }
}

/// In milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(site: Option<usize>, took: u64, ended: Ended) -> Call {
        Call {
            at: Duration::ZERO,
            app: 0,
            place: 0,
            site,
            asked: Duration::from_millis(1),
            took: Duration::from_millis(took),
            ended,
        }
    }

    #[test]
    fn times_are_those_of_answers_and_shares_those_of_all() {
        let mut calls: Vec<Call> = (1..=200)
            .map(|n| call(Some(0), n, Ended::Answered))
            .collect();
        calls.extend((0..50).map(|_| call(Some(1), 9000, Ended::Refused(503))));
        calls.extend((0..150).map(|_| call(None, 60_000, Ended::Lost)));
        let figures = Figures::of(&calls);
        assert_eq!((figures.calls, figures.failed), (400, 200));
        assert!((figures.mean - 100.5).abs() < 1e-9 && (figures.asking - 1.0).abs() < 1e-9);
        assert!((figures.p50 - 100.0).abs() < 1e-9 && (figures.p99 - 198.0).abs() < 1e-9);
        let shares: Vec<f64> = figures.shares.iter().map(|(_, share)| *share).collect();
        assert_eq!(shares, [50.0, 12.5, 0.0, 0.0]);
        assert_eq!(Figures::header().len(), figures.row().len());
    }

    #[test]
    fn of_nothing_everything_is_nothing() {
        let none = Figures::of([]);
        assert_eq!((none.calls, none.failed, none.mean), (0, 0, 0.0));
    }
}
