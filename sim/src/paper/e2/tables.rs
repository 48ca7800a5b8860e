//! The figures of E2 as tables and plots.

use super::rows::{FCFS, FUNCSCHED, POLICIES, QUEUE_OR_COLD, Row, USE_OR_EVICT};
use crate::invocations::{
    KeepAliveName::{self, Lru},
    PolicyName, Run,
};
use crate::report::{Axis, Cell, Plot, Series, Shape, Table};

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
pub(super) fn means(rows: &[Row]) -> Table {
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

pub(super) fn ranges(rows: &[Row]) -> Table {
    let rest: Vec<String> = names().iter().map(|name| format!("{name}_s")).collect();
    let title = "Least and largest mean completion with arrivals moved";
    let mut table = table(title, &["trace"], &rest);
    for row in rows {
        let range = |&(low, high): &(f64, f64)| Cell::from(format!("{low:.2}..{high:.2}"));
        let name = Cell::from(row.published.setting.name());
        let ranges = row.ranges_s.iter().take(POLICIES.len());
        table.row(std::iter::once(name).chain(ranges.map(range)));
    }
    table
}

pub(super) fn tails(rows: &[Row]) -> Table {
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
pub(super) fn savings(rows: &[Row]) -> Table {
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

pub(super) fn interrupting_table(interrupting: &[(PolicyName, f64, Run)]) -> Table {
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

/// What goes beyond the article, beside queue or cold.
pub(super) fn beyond(rows: &[Row]) -> Table {
    let columns = [
        "trace",
        "queue-or-cold_s",
        "queue-or-cold gdsf_s",
        "use-or-evict_s",
        "range_s",
        "use-or-evict gdsf_s",
        "bound_s",
        "p99 queue-or-cold_s",
        "p99 use-or-evict_s",
        "max queue-or-cold_s",
        "max use-or-evict_s",
    ];
    let mut table = Table::new(
        "Use before evicting, on top of queue or cold: mean completion",
        &columns,
    );
    for row in rows {
        let mean = |at: usize| Cell::Number(row.mean(at), 2);
        let (low, high) = row.ranges_s[USE_OR_EVICT];
        let tail = |at: usize| Cell::Number(row.runs[at].p99_s(), 0);
        let max = |at: usize| Cell::Number(row.runs[at].completion_ms.max / 1e3, 0);
        table.row([
            row.published.setting.name().into(),
            mean(QUEUE_OR_COLD),
            mean(QUEUE_OR_COLD + 1),
            mean(USE_OR_EVICT),
            format!("{low:.2}..{high:.2}").into(),
            mean(USE_OR_EVICT + 1),
            Cell::Number(row.bound_s, 2),
            tail(QUEUE_OR_COLD),
            tail(USE_OR_EVICT),
            max(QUEUE_OR_COLD),
            max(USE_OR_EVICT),
        ]);
    }
    table
}

/// Mean completion over load.
pub(super) fn plot(rows: &[Row], trace: &str) -> Option<Plot> {
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
    series.push(line("use-or-evict", &|row| row.mean(USE_OR_EVICT)));
    series.push(line("lower bound", &|row| row.bound_s));
    Some(Plot {
        name: format!("e2-{trace}"),
        title: format!("Mean completion over load, {trace} functions"),
        x: Axis::linear("load rho"),
        y: Axis::log("mean completion, s"),
        series,
    })
}
