//! What E2 aims at.

use super::rows::{FCFS, FUNCSCHED, POLICIES, QUEUE_OR_COLD, Row, SJF, SRF, USE_OR_EVICT};
use crate::invocations::{KeepAliveName::Hist, PolicyName, Run};
use crate::report::{Bound, Gate};

/// The largest of some figures; nothing where there are none.
fn largest(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.max_by(f64::total_cmp)
}

pub(super) fn gates(rows: &[Row]) -> Vec<Gate> {
    let at_most = |what: &str, figure: Option<f64>, most: f64| {
        figure.map(|figure| Gate::new(what, figure, Bound::AtMost(most)))
    };
    let all = || rows.iter();
    let far = |policy: usize, by: fn(&Row, usize) -> f64| all().map(move |row| by(row, policy));
    let exact = (0..POLICIES.len()).filter(|&at| POLICIES[at].1 != Hist);
    let hist = (0..POLICIES.len()).filter(|&at| POLICIES[at].1 == Hist);
    let each = |policies: Vec<usize>, by: fn(&Row, usize) -> f64| {
        largest(policies.into_iter().flat_map(|policy| far(policy, by)))
    };
    let (exact, hist): (Vec<usize>, Vec<usize>) = (exact.collect(), hist.collect());
    let crowded = || all().filter(|row| row.mean(FCFS) > 5.0 * row.bound_s);
    let heavy = || all().filter(|r| r.is("representative", 0.7..=0.7) || r.is("rare", 1.0..=1.0));
    let thrashing =
        || all().filter(|r| r.is("representative", 0.4..=0.7) || r.is("rare", 0.7..=1.0));
    [
        at_most(
            "funcsched/fcfs, worst where fcfs > 5 x bound",
            largest(crowded().map(|row| row.ratio(FUNCSCHED, FCFS))),
            1.0 / 2.5,
        ),
        at_most(
            "funcsched/fcfs, worst of representative 0.7 and rare 1",
            largest(heavy().map(|row| row.ratio(FUNCSCHED, FCFS))),
            1.0 / 4.0,
        ),
        at_most(
            "funcsched/fcfs, worst of all",
            largest(all().map(|row| row.ratio(FUNCSCHED, FCFS))),
            1.02,
        ),
        at_most(
            "funcsched/sjf, worst",
            largest(all().map(|row| row.ratio(FUNCSCHED, SJF))),
            1.01,
        ),
        at_most(
            "funcsched/srf, worst",
            largest(all().map(|row| row.ratio(FUNCSCHED, SRF))),
            1.01,
        ),
        at_most(
            "queue-or-cold/funcsched, worst of representative 0.4-0.7 and rare 0.7-1",
            largest(thrashing().map(|row| row.ratio(QUEUE_OR_COLD, FUNCSCHED))),
            0.8,
        ),
        at_most(
            "queue-or-cold/funcsched, worst of all",
            largest(all().map(|row| row.ratio(QUEUE_OR_COLD, FUNCSCHED))),
            1.02,
        ),
        at_most(
            "use-or-evict/queue-or-cold, worst of all",
            largest(all().map(|row| row.ratio(USE_OR_EVICT, QUEUE_OR_COLD))),
            1.02,
        ),
        at_most(
            "lower bound against published, largest deviation",
            largest(all().map(|r| (r.bound_s / r.published.bound_s - 1.0).abs())),
            0.01,
        ),
        at_most(
            "mean against published, as recorded, largest deviation but for hist",
            each(exact.clone(), Row::deviation),
            0.03,
        ),
        at_most(
            "the same, from the range with arrivals moved",
            each(exact, Row::deviation_of_range),
            0.03,
        ),
        at_most(
            "hist against published, as recorded, largest deviation",
            each(hist, Row::deviation),
            0.05,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn interrupting_gates(
    rows: &[Row],
    interrupting: &[(PolicyName, f64, Run)],
) -> Vec<Gate> {
    let Some(row) = rows.iter().find(|row| row.is("rare", 0.7..=0.7)) else {
        return Vec::new();
    };
    let gate = |(name, _, run): &(PolicyName, f64, Run)| {
        let what = format!("{}/fcfs, rare 0.7", name.as_str());
        Gate::new(what, run.mean_s() / row.mean(FCFS), Bound::AtLeast(1.0))
    };
    interrupting.iter().map(gate).collect()
}
