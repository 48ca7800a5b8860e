//! E2: orders and keep-alive policies on recorded invocations.

use rayon::prelude::*;

use super::azure::{RESOLUTION, SPAN, Setting};
use super::{Context, Effort, Experiment};
use crate::Error;
use crate::invocations::{
    KeepAliveName::{self, Gdsf, Hist, Lru},
    Policy,
    PolicyName::{self, Fcfs, Funcsched, QueueOrCold, Rr, Sjf, Srf, Srtf},
    Run, lower_bound,
};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table};
use crate::seed::Seed;

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct E2;

/// What is compared, in the order of the published columns.
const POLICIES: [(PolicyName, KeepAliveName); 7] = [
    (Fcfs, Lru),
    (Sjf, Lru),
    (Srf, Lru),
    (Funcsched, Lru),
    (Funcsched, Gdsf),
    (Funcsched, Hist),
    (QueueOrCold, Lru),
];
const FCFS: usize = 0;
const SJF: usize = 1;
const SRF: usize = 2;
const FUNCSCHED: usize = 3;
const QUEUE_OR_COLD: usize = 6;

/// A published row: mean completion in s of each policy, the 99th percentile of some, and the lower bound.
#[derive(Clone, Copy, Debug)]
struct Published {
    setting: Setting,
    mean_s: [f64; 7],
    p99_s: [f64; 3],
    bound_s: f64,
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
const PUBLISHED: [Published; 12] = [
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

/// Published means of round robin and shortest remaining time first, rare 0.7.
const INTERRUPTING: [(PolicyName, f64); 2] = [(Rr, 1206.0), (Srtf, 41.4)];

/// What was measured of a row.
#[derive(Debug)]
struct Row {
    published: Published,
    runs: Vec<Run>,
    /// The least and the largest mean with arrivals moved by less than the trace's resolution.
    ranges_s: Vec<(f64, f64)>,
    bound_s: f64,
}

impl Row {
    fn measure(published: Published, shifts: u64, context: &Context<'_>) -> Result<Self, Error> {
        let setting = published.setting;
        let workload = setting.read(context)?;
        let shifted: Vec<_> = (0..shifts)
            .map(|n| workload.shifted(RESOLUTION, &mut Seed(2).nth(n).stream("shift")))
            .collect();
        let runs = POLICIES.par_iter().map(|&(name, keep_alive)| {
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

    fn mean(&self, policy: usize) -> f64 {
        self.runs[policy].mean_s()
    }

    fn ratio(&self, policy: usize, other: usize) -> f64 {
        self.mean(policy) / self.mean(other)
    }

    fn is(&self, trace: &str, scales: std::ops::RangeInclusive<f64>) -> bool {
        let setting = &self.published.setting;
        setting.trace == trace && scales.contains(&setting.scale)
    }

    /// How far the measured mean lies from the published one, as a share of it.
    fn deviation(&self, policy: usize) -> f64 {
        let published = self.published.mean_s[policy];
        (self.mean(policy) - published).abs() / published
    }

    /// How far the published mean lies outside the range.
    fn deviation_of_range(&self, policy: usize) -> f64 {
        let published = self.published.mean_s[policy];
        let (low, high) = self.ranges_s[policy];
        (low - published).max(published - high).max(0.0) / published
    }
}

impl Experiment for E2 {
    fn name(&self) -> &'static str {
        "e2"
    }

    fn title(&self) -> &'static str {
        "FuncSched against other orders, on recorded invocations"
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let (count, shifts) = match context.effort {
            Effort::Quick => (2, 1),
            Effort::Full => (PUBLISHED.len(), 8),
        };
        let part = context.progress.begin("e2", count as u64);
        let rows = PUBLISHED[..count]
            .iter()
            .map(|&published| {
                let row = Row::measure(published, shifts, context);
                part.advance(1);
                row
            })
            .collect::<Result<Vec<Row>, Error>>()?;
        let interrupting = interrupting(context)?;
        let mut gates = gates(&rows);
        gates.extend(interrupting_gates(&rows, &interrupting));
        Ok(Outcome {
            conditions: format!(
                "8 workers of 2048 MiB (rare) or 16 384 MiB; load rho over {:.0} s; each mean also with all arrivals moved \
                 {shifts} times by less than the 0.1 ms to which they are written",
                SPAN.get() / 1e3
            ),
            tables: vec![
                means(&rows),
                ranges(&rows),
                tails(&rows),
                savings(&rows),
                interrupting_table(&interrupting),
            ],
            gates,
            notes: vec![
                "Where two means are compared, both come from the trace as it is written."
                    .to_owned(),
            ],
            plots: ["rare", "representative", "random"]
                .into_iter()
                .filter_map(|trace| plot(&rows, trace))
                .collect(),
        })
    }
}

fn interrupting(context: &Context<'_>) -> Result<Vec<(PolicyName, f64, Run)>, Error> {
    let setting = PUBLISHED[1].setting;
    let workload = setting.read(context)?;
    INTERRUPTING
        .par_iter()
        .map(|&(name, published)| {
            let run = setting.run(&workload, &Policy::new(name, Lru))?;
            Ok((name, published, run))
        })
        .collect()
}

fn names() -> Vec<String> {
    let name = |&(name, keep_alive): &(PolicyName, KeepAliveName)| {
        let name: PolicyName = name;
        match keep_alive {
            Lru => name.as_str().to_owned(),
            other => format!("{} {}", name.as_str(), other.as_str()),
        }
    };
    POLICIES.iter().map(name).collect()
}

fn table(title: &str, first: &[&str], rest: &[String]) -> Table {
    let columns: Vec<&str> = first
        .iter()
        .copied()
        .chain(rest.iter().map(String::as_str))
        .collect();
    Table::new(title, &columns)
}

/// Measured and published means, one below the other.
fn means(rows: &[Row]) -> Table {
    let mut rest: Vec<String> = names().iter().map(|name| format!("{name}_s")).collect();
    rest.push("fcfs/funcsched".to_owned());
    rest.push("bound_s".to_owned());
    let title = "Mean completion; in every second row as published";
    let mut table = table(title, &["trace", "rho", ""], &rest);
    for row in rows {
        let line = |means: Vec<f64>, bound: f64| {
            let ratio = means[FCFS] / means[FUNCSCHED];
            means
                .into_iter()
                .chain([ratio, bound])
                .map(|value| Cell::Number(value, 2))
                .collect::<Vec<_>>()
        };
        let measured = (0..POLICIES.len()).map(|at| row.mean(at)).collect();
        let name = row.published.setting.name();
        let head = [
            name.into(),
            Cell::Number(row.runs[0].rho, 2),
            "measured".into(),
        ];
        table.row(head.into_iter().chain(line(measured, row.bound_s)));
        let published = line(row.published.mean_s.to_vec(), row.published.bound_s);
        let head = ["".into(), "".into(), "published".into()];
        table.row(head.into_iter().chain(published));
    }
    table
}

fn ranges(rows: &[Row]) -> Table {
    let rest: Vec<String> = names().iter().map(|name| format!("{name}_s")).collect();
    let title = "Least and largest mean completion with arrivals moved";
    let mut table = table(title, &["trace"], &rest);
    for row in rows {
        let range = |&(low, high): &(f64, f64)| Cell::from(format!("{low:.2}..{high:.2}"));
        let name = Cell::from(row.published.setting.name());
        table.row(std::iter::once(name).chain(row.ranges_s.iter().map(range)));
    }
    table
}

fn tails(rows: &[Row]) -> Table {
    let columns = [
        "trace",
        "fcfs_s",
        "published",
        "funcsched_s",
        "published",
        "queue-or-cold_s",
        "published",
    ];
    let mut table = Table::new("99th percentile of the completion", &columns);
    for row in rows {
        let figures = [FCFS, FUNCSCHED, QUEUE_OR_COLD]
            .into_iter()
            .zip(row.published.p99_s)
            .flat_map(|(policy, published)| [row.runs[policy].p99_s(), published]);
        let name = Cell::from(row.published.setting.name());
        table.row(std::iter::once(name).chain(figures.map(|value| Cell::Number(value, 0))));
    }
    table
}

/// What FuncSched saves against FCFS, as the article has it: queueing -84 to -92 %, cold starts -12.5 %.
fn savings(rows: &[Row]) -> Table {
    let columns = [
        "trace",
        "queueing_fcfs_s",
        "queueing_funcsched_s",
        "change_%",
        "loading_fcfs_s",
        "loading_funcsched_s",
        "change_%",
        "cold_share_fcfs",
        "cold_share_funcsched",
        "cold_share_queue-or-cold",
    ];
    let title = "Queueing and loading of FuncSched against FCFS (article: -84 to -92 %, -12.5 %)";
    let mut table = Table::new(title, &columns);
    for row in rows {
        let [fcfs, ours, waiting] = [FCFS, FUNCSCHED, QUEUE_OR_COLD].map(|at| &row.runs[at]);
        let change = |from: f64, to: f64| {
            if from < 1.0 {
                return Cell::Empty;
            }
            Cell::Number((to / from - 1.0) * 100.0, 1)
        };
        let seconds = |ms: f64| Cell::Number(ms / 1e3, 2);
        table.row([
            row.published.setting.name().into(),
            seconds(fcfs.queueing_ms.mean),
            seconds(ours.queueing_ms.mean),
            change(fcfs.queueing_ms.mean, ours.queueing_ms.mean),
            seconds(fcfs.loading_mean_ms),
            seconds(ours.loading_mean_ms),
            change(fcfs.loading_mean_ms, ours.loading_mean_ms),
            Cell::Number(fcfs.cold_share, 3),
            Cell::Number(ours.cold_share, 3),
            Cell::Number(waiting.cold_share, 3),
        ]);
    }
    table
}

fn interrupting_table(interrupting: &[(PolicyName, f64, Run)]) -> Table {
    let columns = [
        "policy",
        "mean_s",
        "published",
        "cold starts",
        "interrupted",
    ];
    let mut table = Table::new("Orders that interrupt, rare 0.7", &columns);
    for (name, published, run) in interrupting {
        table.row([
            name.as_str().into(),
            Cell::Number(run.mean_s(), 1),
            Cell::Number(*published, 1),
            Cell::Number(run.cold_starts as f64, 0),
            Cell::Number(run.interrupted as f64, 0),
        ]);
    }
    table
}

/// The largest of some figures; nothing where there are none.
fn largest(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.max_by(f64::total_cmp)
}

fn gates(rows: &[Row]) -> Vec<Gate> {
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

fn interrupting_gates(rows: &[Row], interrupting: &[(PolicyName, f64, Run)]) -> Vec<Gate> {
    let Some(row) = rows.iter().find(|row| row.is("rare", 0.7..=0.7)) else {
        return Vec::new();
    };
    let gate = |(name, _, run): &(PolicyName, f64, Run)| {
        let what = format!("{}/fcfs, rare 0.7", name.as_str());
        Gate::new(what, run.mean_s() / row.mean(FCFS), Bound::AtLeast(1.0))
    };
    interrupting.iter().map(gate).collect()
}

/// Mean completion over load.
fn plot(rows: &[Row], trace: &str) -> Option<Plot> {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.published.setting.trace == trace)
        .collect();
    if rows.is_empty() {
        return None;
    }
    let line = |name: &str, value: &dyn Fn(&Row) -> f64| Series {
        name: name.to_owned(),
        points: rows
            .iter()
            .map(|row| (row.runs[0].rho, value(row)))
            .collect(),
        shape: Shape::Line,
    };
    let mut series: Vec<Series> = names()
        .iter()
        .enumerate()
        .map(|(at, name)| line(name, &|row| row.mean(at)))
        .collect();
    series.push(line("lower bound", &|row| row.bound_s));
    Some(Plot {
        name: format!("e2-{trace}"),
        title: format!("Mean completion over load, {trace} functions"),
        x: Axis::linear("load rho"),
        y: Axis::log("mean completion, s"),
        series,
    })
}
