//! What is compared, as published and as measured.

use rayon::prelude::*;

use super::super::Context;
use super::super::azure::{RESOLUTION, Setting};
use crate::Error;
use crate::invocations::{
    KeepAliveName::{self, Gdsf, Hist, Lru},
    Policy,
    PolicyName::{self, Fcfs, Funcsched, QueueOrCold, Sjf, Srf, UseOrEvict},
    Run, lower_bound,
};
use crate::seed::Seed;

/// What is compared, in the order of the published columns.
pub(super) const POLICIES: [(PolicyName, KeepAliveName); 7] = [
    (Fcfs, Lru),
    (Sjf, Lru),
    (Srf, Lru),
    (Funcsched, Lru),
    (Funcsched, Gdsf),
    (Funcsched, Hist),
    (QueueOrCold, Lru),
];
/// What goes beyond the article and has no published figures.
pub(super) const BEYOND: [(PolicyName, KeepAliveName); 3] =
    [(QueueOrCold, Gdsf), (UseOrEvict, Lru), (UseOrEvict, Gdsf)];
pub(super) const FCFS: usize = 0;
pub(super) const SJF: usize = 1;
pub(super) const SRF: usize = 2;
pub(super) const FUNCSCHED: usize = 3;
pub(super) const QUEUE_OR_COLD: usize = 6;
pub(super) const USE_OR_EVICT: usize = 8;

/// A published row: mean completion in s of each policy, the 99th percentile of some, and the lower bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    pub(super) setting: Setting,
    pub(super) mean_s: [f64; 7],
    pub(super) p99_s: [f64; 3],
    pub(super) bound_s: f64,
}

const fn row(
    trace: &'static str,
    scale: f64,
    mean_s: [f64; 7],
    p99_s: [f64; 3],
    bound_s: f64,
) -> Published {
    // The rare functions alone would leave the large machines idle.
    let memory = if trace.len() == 4 { 2048 } else { 16_384 };
    Published {
        setting: Setting {
            trace,
            memory,
            scale,
        },
        mean_s,
        p99_s,
        bound_s,
    }
}

/// Columns: FCFS, SJF, SRF, FuncSched, FuncSched gdsf, FuncSched hist, queue or cold; p99 of FCFS, FuncSched, queue or cold.
#[rustfmt::skip]
pub(super) const PUBLISHED: [Published; 12] = [
    row("rare", 0.5, [5.82, 5.84, 5.86, 5.80, 5.22, 5.42, 5.25], [61.0, 63.0, 63.0], 3.26),
    row("rare", 0.7, [11.47, 8.74, 9.40, 7.67, 7.54, 7.57, 6.10], [66.0, 65.0, 63.0], 3.31),
    row("rare", 0.8, [30.30, 12.47, 19.35, 9.85, 10.04, 9.93, 6.73], [89.0, 111.0, 64.0], 3.36),
    row("rare", 1.0, [75.28, 24.55, 43.88, 17.39, 16.92, 17.27, 11.01], [161.0, 293.0, 134.0], 3.54),
    row("representative", 0.3, [7.32, 7.32, 7.32, 7.32, 7.41, 8.08, 7.31], [305.0, 305.0, 306.0], 6.86),
    row("representative", 0.4, [39.95, 18.57, 36.72, 10.63, 10.47, 10.73, 7.47], [306.0, 306.0, 307.0], 6.80),
    row("representative", 0.5, [113.49, 31.31, 115.99, 13.52, 13.76, 13.40, 9.45], [370.0, 405.0, 307.0], 6.82),
    row("representative", 0.6, [187.29, 43.87, 196.23, 17.60, 17.45, 17.37, 11.23], [459.0, 462.0, 307.0], 6.94),
    row("representative", 0.7, [248.87, 57.36, 261.80, 22.53, 23.14, 23.03, 16.83], [555.0, 551.0, 308.0], 6.96),
    row("random", 0.3, [6.74, 6.74, 6.74, 6.74, 6.75, 7.27, 6.77], [305.0, 305.0, 306.0], 6.50),
    row("random", 0.4, [8.58, 7.84, 8.24, 7.27, 7.31, 7.75, 6.88], [305.0, 305.0, 307.0], 6.57),
    row("random", 0.5, [42.11, 17.59, 43.12, 10.37, 10.49, 10.85, 7.89], [305.0, 305.0, 307.0], 6.69),
];

/// What was measured of a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) published: Published,
    pub(super) runs: Vec<Run>,
    /// The least and the largest mean with arrivals moved by less than the trace's resolution.
    pub(super) ranges_s: Vec<(f64, f64)>,
    pub(super) bound_s: f64,
}

impl Row {
    pub(super) fn measure(
        published: Published,
        shifts: u64,
        context: &Context<'_>,
    ) -> Result<Self, Error> {
        let setting = published.setting;
        let workload = setting.read(context)?;
        let shifted: Vec<_> = (0..shifts)
            .map(|n| workload.shifted(RESOLUTION, &mut Seed(2).nth(n).stream("shift")))
            .collect();
        let all: Vec<_> = POLICIES.iter().chain(&BEYOND).collect();
        let runs = all.par_iter().map(|&&(name, keep_alive)| {
            let policy = Policy::new(name, keep_alive);
            let run = setting.run(&workload, &policy)?;
            let means: Vec<f64> = shifted
                .par_iter()
                .map(|workload| setting.run(workload, &policy).map(|run| run.mean_s()))
                .collect::<Result<_, Error>>()?;
            let start = (run.mean_s(), run.mean_s());
            let range = means
                .iter()
                .fold(start, |(low, high), &mean| (low.min(mean), high.max(mean)));
            Ok((run, range))
        });
        let (runs, ranges_s) = runs.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
        Ok(Self {
            published,
            runs,
            ranges_s,
            bound_s: lower_bound(&workload, setting.machines()).get() / 1e3,
        })
    }

    pub(super) fn mean(&self, policy: usize) -> f64 {
        self.runs[policy].mean_s()
    }

    pub(super) fn ratio(&self, policy: usize, other: usize) -> f64 {
        self.mean(policy) / self.mean(other)
    }

    pub(super) fn is(&self, trace: &str, scales: std::ops::RangeInclusive<f64>) -> bool {
        let setting = &self.published.setting;
        setting.trace == trace && scales.contains(&setting.scale)
    }

    /// How far the measured mean lies from the published one, as a share of it.
    pub(super) fn deviation(&self, policy: usize) -> f64 {
        let published = self.published.mean_s[policy];
        (self.mean(policy) - published).abs() / published
    }

    /// How far the published mean lies outside the range.
    pub(super) fn deviation_of_range(&self, policy: usize) -> f64 {
        let published = self.published.mean_s[policy];
        let (low, high) = self.ranges_s[policy];
        (low - published).max(published - high).max(0.0) / published
    }
}
