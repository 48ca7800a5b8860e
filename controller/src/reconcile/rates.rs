//! The call rate of each app on a node, from the counts in its reports.

use std::collections::BTreeMap;

use fdn_core::message::AppObserved;
use fdn_core::{AppName, Timestamp};

/// The time constant of the smoothing, in seconds: after it, a change of the rate is reflected by more than half. Long enough that a
/// single report moves nobody, short enough that a surge is planned for within a minute.
const MEMORY: f64 = 30.0;

/// The smoothed call rate of each app on one node, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    rates: BTreeMap<AppName, f64>,
}

impl Rates {
    /// Takes a report that came at `now` into account, after one of `then` in the same boot of the node.
    pub(super) fn observe(
        &mut self,
        before: &[AppObserved],
        then: Timestamp,
        after: &[AppObserved],
        now: Timestamp,
    ) {
        let elapsed = now.since(then).as_secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        let counts: BTreeMap<&AppName, u64> = before
            .iter()
            .map(|app| (&app.app, app.invocations))
            .collect();
        let weight = elapsed / (elapsed + MEMORY);
        let mut rates = BTreeMap::new();
        for app in after {
            // An app that was not in the last report received all its calls since.
            let calls = app
                .invocations
                .saturating_sub(counts.get(&app.app).copied().unwrap_or(0));
            let present = calls as f64 / elapsed;
            let old = self.rates.get(&app.app).copied().unwrap_or(0.0);
            rates.insert(app.app.clone(), old + (present - old) * weight);
        }
        self.rates = rates;
    }

    /// The call rates of all apps, per second.
    pub(super) fn all(&self) -> impl Iterator<Item = (&AppName, f64)> {
        self.rates.iter().map(|(app, rate)| (app, *rate))
    }

    /// The call rate of an app, per second; 0 if it is not known.
    #[must_use]
    pub(super) fn of(&self, app: &AppName) -> f64 {
        self.rates.get(app).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::fixture;

    fn observed(app: &str, invocations: u64) -> AppObserved {
        AppObserved {
            invocations,
            ..fixture::observed(app)
        }
    }

    fn name(app: &str) -> AppName {
        app.parse().expect("app")
    }

    #[test]
    fn a_steady_rate_is_learnt_and_forgotten_again() {
        let mut rates = Rates::default();
        let mut calls = 0;
        for second in 0..60u64 {
            let (before, after) = (observed("a", calls), observed("a", calls + 500));
            rates.observe(
                &[before],
                Timestamp(second * 5_000),
                &[after],
                Timestamp((second + 1) * 5_000),
            );
            calls += 500;
        }
        assert!((rates.of(&name("a")) - 100.0).abs() < 1.0, "{rates:?}");
        let silent = [observed("a", calls)];
        for second in 60..120u64 {
            rates.observe(
                &silent,
                Timestamp(second * 5_000),
                &silent,
                Timestamp((second + 1) * 5_000),
            );
        }
        assert!(rates.of(&name("a")) < 1.0);
    }

    #[test]
    fn what_cannot_be_counted_is_none() {
        let mut rates = Rates::default();
        // No time between, a count that went back, an app that left.
        rates.observe(&[], Timestamp(5), &[observed("a", 9)], Timestamp(5));
        assert_eq!(rates, Rates::default());
        rates.observe(
            &[observed("a", 9)],
            Timestamp(0),
            &[observed("a", 3)],
            Timestamp(1_000),
        );
        assert_eq!(rates.of(&name("a")), 0.0);
        rates.observe(&[], Timestamp(0), &[observed("b", 60)], Timestamp(30_000));
        assert_eq!(rates.of(&name("b")), 1.0);
        rates.observe(&[observed("b", 60)], Timestamp(0), &[], Timestamp(1_000));
        assert_eq!(rates.of(&name("b")), 0.0);
    }
}
