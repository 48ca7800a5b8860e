//! Figures as the API shows them: series summed by the requested key, the busiest first.

use std::collections::BTreeMap;

use fdn_core::figures::{FigurePoint, FigureSeries, Figures, FiguresBy, Tally, Window};
use fdn_core::{AppName, ClusterId, RegionName, Timestamp};

use super::first_step;

/// The series of one app in one cluster.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    /// The app.
    pub app: AppName,
    /// The cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Step numbers and tallies, in the order of time.
    pub steps: Vec<(u64, Tally)>,
}

impl SeriesSnapshot {
    fn key(&self, by: FiguresBy) -> String {
        match by {
            FiguresBy::Total => by.to_string(),
            FiguresBy::App => self.app.to_string(),
            FiguresBy::Cluster => self.cluster.to_string(),
            FiguresBy::Region => self.region.to_string(),
        }
    }
}

/// The figures of a window: of at most `limit` series, the points that begin after `after`.
#[must_use]
pub fn summarize(
    series: &[SeriesSnapshot],
    (window, by): (Window, FiguresBy),
    after: Option<Timestamp>,
    limit: usize,
    now: Timestamp,
) -> Figures {
    let mut keys: BTreeMap<String, BTreeMap<u64, Tally>> = BTreeMap::new();
    if by == FiguresBy::Total {
        keys.insert(by.to_string(), BTreeMap::new());
    }
    for one in series {
        let steps = keys.entry(one.key(by)).or_default();
        for (step, tally) in &one.steps {
            let sum = steps.entry(*step).or_default();
            *sum = sum.plus(tally);
        }
    }
    let step_ms = window.step_ms();
    let begins = |step: u64| Timestamp(step.saturating_mul(step_ms));
    let from = begins(first_step(window, now));
    let series = keys.into_iter().map(|(key, steps)| {
        let whole = steps
            .values()
            .fold(Tally::default(), |sum, tally| sum.plus(tally));
        let points = steps
            .iter()
            .map(|(step, tally)| FigurePoint::of(begins(*step), tally));
        FigureSeries {
            key,
            sum: FigurePoint::of(from, &whole),
            points: points
                .filter(|point| after.is_none_or(|after| point.at > after))
                .collect(),
        }
    });
    let mut series: Vec<FigureSeries> = series.collect();
    // The sort is stable: equally busy series stay in the order of their names.
    series.sort_by_key(|series| std::cmp::Reverse(series.sum.calls));
    let more = series.len() > limit;
    series.truncate(limit);
    Figures {
        window,
        step_ms,
        from,
        to: now,
        series,
        more,
    }
}
