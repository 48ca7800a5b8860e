//! Builds the tables of `fdn top` from the controller's answers. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fdn_core::Timestamp;
use fdn_core::api::{AppSummary, NodeInfo};
use fdn_core::figures::{FigurePoint, Figures};
use fdn_core::fleet::ClusterDetail;
use fdn_core::resources::Resources;
use serde::Serialize;

use crate::args::SortBy;
use crate::output::{Report, table, time};

/// The number of complete steps that count as "now": one quiet step must not look like standstill, and the current one is incomplete.
const STEPS: u64 = 3;

/// The current activity of the network.
#[derive(Clone, Debug, Serialize)]
pub struct Top {
    /// The time of the request.
    pub at: Timestamp,
    /// Its clusters; empty if the caller may not see machines.
    pub clusters: Vec<ClusterRow>,
    /// Its nodes; empty if the caller may not see machines.
    pub nodes: Vec<NodeRow>,
    /// The caller's apps.
    pub apps: Vec<AppRow>,
}

/// What callers observed in the last half minute with complete data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CallStats {
    /// Calls per second.
    pub calls_per_s: f64,
    /// Answers with status 5xx per second.
    pub errors_per_s: f64,
    /// The median duration in the busiest step, in ms; `None` without calls.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the duration in the slowest step, in ms; `None` without calls.
    pub p99_ms: Option<f64>,
}

/// The load of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// The number of running calls.
    pub busy: u32,
    /// The number of calls that can run at once.
    pub slots: u32,
    /// The number of waiting calls.
    pub queue: u32,
    /// The number of instances, of functions that run in instances.
    pub instances: u32,
    /// The share of processor time in use, from 0 to 1.
    pub cpu: f64,
    /// The share of memory in use, from 0 to 1.
    pub memory: f64,
}

/// A cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterRow {
    /// Its name.
    pub cluster: String,
    /// The number of its live nodes.
    pub nodes_alive: u32,
    /// The number of all its nodes.
    pub nodes_total: u32,
    /// What its callers observed.
    #[serde(flatten)]
    pub stats: CallStats,
    /// Its load.
    #[serde(flatten)]
    pub load: Load,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// Its cluster.
    pub cluster: String,
    /// Its state.
    pub state: String,
    /// Its load.
    #[serde(flatten)]
    pub load: Load,
}

/// An app.
#[derive(Clone, Debug, Serialize)]
pub struct AppRow {
    /// Its name.
    pub app: String,
    /// Its current version.
    pub version: String,
    /// The number of live nodes that serve it.
    pub nodes_ready: u32,
    /// The number of live nodes.
    pub nodes_total: u32,
    /// The number of its instances; `None` if the caller may not see machines.
    pub instances: Option<u32>,
    /// What its callers observed.
    #[serde(flatten)]
    pub stats: CallStats,
}

/// The controller's answers.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// All clusters with their details.
    pub clusters: Vec<ClusterDetail>,
    /// Metrics by cluster.
    pub by_cluster: Option<Figures>,
    /// The caller's apps.
    pub apps: Vec<AppSummary>,
    /// Metrics by app.
    pub by_app: Option<Figures>,
}

impl Top {
    /// The tables, sorted.
    #[must_use]
    pub fn new(responses: &Responses, at: Timestamp, sort: SortBy) -> Self {
        let by_cluster = recent(responses.by_cluster.as_ref());
        let by_app = recent(responses.by_app.as_ref());
        let machines = !responses.clusters.is_empty();
        let mut instances: BTreeMap<String, u32> = BTreeMap::new();
        let (mut clusters, mut nodes) = (Vec::new(), Vec::new());
        for detail in &responses.clusters {
            let rows: Vec<NodeRow> = detail
                .nodes
                .iter()
                .map(|node| node_row(detail, node))
                .collect();
            let info = &detail.info;
            let name = info.cluster.to_string();
            clusters.push(ClusterRow {
                nodes_alive: info.nodes_alive,
                nodes_total: info.nodes_total,
                stats: by_cluster.get(&name).copied().unwrap_or_default(),
                load: Load {
                    busy: info.busy,
                    slots: info.slots,
                    queue: detail.waiting,
                    instances: rows.iter().map(|row| row.load.instances).sum(),
                    cpu: taken(info.capacity, info.free, |r| r.cpu_milli.0),
                    memory: taken(info.capacity, info.free, |r| r.memory_mib.0),
                },
                cluster: name,
            });
            for app in detail.nodes.iter().flat_map(|node| &node.apps) {
                *instances.entry(app.app.to_string()).or_default() += app.instances;
            }
            nodes.extend(rows);
        }
        let mut apps: Vec<AppRow> = responses
            .apps
            .iter()
            .map(|app| {
                let name = app.app.to_string();
                AppRow {
                    version: app.version.to_string(),
                    nodes_ready: app.nodes_ready,
                    nodes_total: app.nodes_total,
                    instances: machines.then(|| instances.get(&name).copied().unwrap_or_default()),
                    stats: by_app.get(&name).copied().unwrap_or_default(),
                    app: name,
                }
            })
            .collect();
        clusters.sort_by(|a, b| order(sort, a, b));
        nodes.sort_by(|a, b| order(sort, a, b));
        apps.sort_by(|a, b| order(sort, a, b));
        Self {
            at,
            clusters,
            nodes,
            apps,
        }
    }
}

fn node_row(detail: &ClusterDetail, node: &NodeInfo) -> NodeRow {
    let status = detail.statuses.iter().find(|said| said.node == node.node);
    NodeRow {
        node: node.node.to_string(),
        cluster: node.cluster.to_string(),
        state: crate::commands::node::state(node),
        load: Load {
            busy: node.busy,
            slots: node.slots,
            queue: status.map_or(0, |said| said.waiting),
            instances: node.apps.iter().map(|app| app.instances).sum(),
            cpu: taken(node.capacity, node.free, |r| r.cpu_milli.0),
            memory: taken(node.capacity, node.free, |r| r.memory_mib.0),
        },
    }
}

/// The share of a resource in use; 0 if there is none of it.
fn taken(capacity: Resources, free: Resources, of: impl Fn(Resources) -> u64) -> f64 {
    let (capacity, free) = (of(capacity), of(free));
    if capacity == 0 {
        return 0.0;
    }
    rounded(capacity.saturating_sub(free) as f64 / capacity as f64)
}

/// Rounds to three decimals, so that output for programs does not suggest more precision than there is.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The last steps of each series, by its name.
fn recent(figures: Option<&Figures>) -> BTreeMap<String, CallStats> {
    let Some(figures) = figures else {
        return BTreeMap::new();
    };
    let step_ms = figures.step_ms.max(1);
    let span_ms = step_ms.saturating_mul(STEPS);
    let end = Timestamp(figures.to.0 - figures.to.0 % step_ms);
    let since = Timestamp(end.0.saturating_sub(span_ms));
    let seconds = span_ms as f64 / 1e3;
    let series = figures.series.iter().map(|series| {
        let points = series.points.iter();
        let points: Vec<&FigurePoint> = points.filter(|p| since <= p.at && p.at < end).collect();
        let sum = |of: fn(&FigurePoint) -> u64| points.iter().map(|p| of(p)).sum::<u64>() as f64;
        let busiest = points.iter().max_by_key(|point| point.calls);
        let p99 = points.iter().filter_map(|point| Some(point.p99_ms?.get()));
        let stats = CallStats {
            calls_per_s: rounded(sum(|point| point.calls) / seconds),
            errors_per_s: rounded(sum(|point| point.errors) / seconds),
            p50_ms: busiest.and_then(|point| Some(rounded(point.p50_ms?.get()))),
            p99_ms: p99.max_by(f64::total_cmp).map(rounded),
        };
        (series.key.clone(), stats)
    });
    series.collect()
}

/// The sort keys of rows.
trait SortKeys {
    fn name(&self) -> &str;
    fn stats(&self) -> CallStats {
        CallStats::default()
    }
    fn load(&self) -> Load {
        Load::default()
    }
}

impl SortKeys for ClusterRow {
    fn name(&self) -> &str {
        &self.cluster
    }
    fn stats(&self) -> CallStats {
        self.stats
    }
    fn load(&self) -> Load {
        self.load
    }
}

impl SortKeys for NodeRow {
    fn name(&self) -> &str {
        &self.node
    }
    fn load(&self) -> Load {
        self.load
    }
}

impl SortKeys for AppRow {
    fn name(&self) -> &str {
        &self.app
    }
    fn stats(&self) -> CallStats {
        self.stats
    }
    fn load(&self) -> Load {
        Load {
            instances: self.instances.unwrap_or_default(),
            ..Load::default()
        }
    }
}

/// Highest first; equal values, and values that a table does not have, by name.
fn order<T: SortKeys>(sort: SortBy, a: &T, b: &T) -> Ordering {
    let key = |row: &T| match sort {
        SortBy::Name => 0.0,
        SortBy::Calls => row.stats().calls_per_s,
        SortBy::Errors => row.stats().errors_per_s,
        SortBy::P50 => row.stats().p50_ms.unwrap_or_default(),
        SortBy::P99 => row.stats().p99_ms.unwrap_or_default(),
        SortBy::Busy => f64::from(row.load().busy),
        SortBy::Queue => f64::from(row.load().queue),
        SortBy::Instances => f64::from(row.load().instances),
        SortBy::Cpu => row.load().cpu,
        SortBy::Memory => row.load().memory,
    };
    key(b)
        .total_cmp(&key(a))
        .then_with(|| a.name().cmp(b.name()))
}

impl CallStats {
    fn cells(&self) -> [String; 4] {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let errors = if self.calls_per_s > 0.0 {
            format!("{:.1}%", 100.0 * self.errors_per_s / self.calls_per_s)
        } else {
            "-".to_owned()
        };
        [
            format!("{:.1}", self.calls_per_s),
            errors,
            ms(self.p50_ms),
            ms(self.p99_ms),
        ]
    }
}

impl Load {
    fn cells(&self) -> [String; 5] {
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        [
            format!("{}/{}", self.busy, self.slots),
            self.queue.to_string(),
            self.instances.to_string(),
            percent(self.cpu),
            percent(self.memory),
        ]
    }
}

fn row(first: Vec<String>, cells: &[&[String]]) -> Vec<String> {
    first
        .into_iter()
        .chain(cells.iter().flat_map(|cells| cells.iter().cloned()))
        .collect()
}

impl Top {
    /// The tables to show, each with its header.
    fn tables(&self) -> Vec<String> {
        const SEEN: [&str; 4] = ["CALLS/S", "ERRORS", "P50 MS", "P99 MS"];
        const LOAD: [&str; 5] = ["BUSY", "QUEUE", "INSTANCES", "CPU", "MEMORY"];
        let mut tables = Vec::new();
        let mut add = |first: &[&'static str], rest: &[&[&'static str]], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                let columns = [first, &rest.concat()].concat();
                tables.push(table(&columns, rows));
            }
        };
        let clusters = self.clusters.iter().map(|c| {
            let nodes = format!("{}/{}", c.nodes_alive, c.nodes_total);
            row(
                vec![c.cluster.clone(), nodes],
                &[&c.stats.cells(), &c.load.cells()],
            )
        });
        add(&["CLUSTER", "NODES"], &[&SEEN, &LOAD], clusters.collect());
        let nodes = self.nodes.iter().map(|n| {
            let first = vec![n.node.clone(), n.cluster.clone(), n.state.clone()];
            row(first, &[&n.load.cells()])
        });
        add(&["NODE", "CLUSTER", "STATE"], &[&LOAD], nodes.collect());
        let apps = self.apps.iter().map(|a| {
            let nodes = format!("{}/{}", a.nodes_ready, a.nodes_total);
            let instances = a
                .instances
                .map_or_else(|| "-".to_owned(), |n| n.to_string());
            row(
                vec![a.app.clone(), a.version.clone(), nodes],
                &[&a.stats.cells(), &[instances]],
            )
        });
        add(
            &["APP", "VERSION", "NODES"],
            &[&SEEN, &["INSTANCES"]],
            apps.collect(),
        );
        tables
    }

    /// The tables in at most `lines` lines: they share the lines equally, and lines that one table does not need go to the others.
    #[must_use]
    pub fn fit_lines(&self, lines: usize) -> String {
        let tables = self.tables();
        let needs: Vec<usize> = tables.iter().map(|table| table.lines().count()).collect();
        // Minus the line with the time, and an empty line before each table.
        let room = lines.saturating_sub(1 + tables.len());
        let mut text = format!("{}\n", time(self.at));
        for ((table, need), share) in tables.iter().zip(&needs).zip(shares(&needs, room)) {
            text.push('\n');
            if *need <= share {
                text.push_str(table);
                continue;
            }
            let shown = share.saturating_sub(1);
            for line in table.lines().take(shown) {
                text.push_str(&format!("{line}\n"));
            }
            if share > 0 {
                // One of the lines is the header.
                text.push_str(&format!("… {} more\n", need - shown.max(1)));
            }
        }
        text
    }
}

/// Distributes lines: equal shares, but none more than it needs.
fn shares(needs: &[usize], lines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|place| needs[*place]);
    let (mut left, mut shares) = (lines, vec![0; needs.len()]);
    for (done, place) in order.iter().enumerate() {
        let share = (left / (needs.len() - done)).min(needs[*place]);
        shares[*place] = share;
        left -= share;
    }
    shares
}

impl Report for Top {
    fn text(&self, _: bool) -> String {
        let mut text = format!("{}\n", time(self.at));
        for table in self.tables() {
            text.push_str(&format!("\n{table}"));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.apps.iter().map(|app| app.app.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Millis;
    use fdn_core::figures::{FigureSeries, Window};

    use super::*;

    fn app(name: &str) -> AppRow {
        AppRow {
            app: name.into(),
            version: "v1".into(),
            nodes_ready: 1,
            nodes_total: 1,
            instances: None,
            stats: CallStats::default(),
        }
    }

    fn node(name: &str) -> NodeRow {
        NodeRow {
            node: name.into(),
            cluster: "eu".into(),
            state: "alive".into(),
            load: Load::default(),
        }
    }

    #[test]
    fn only_whole_steps_count() {
        let point = |at: u64, calls: u64| FigurePoint {
            at: Timestamp(at),
            calls,
            errors: 0,
            cold_starts: 0,
            p50_ms: Some(Millis::new(1.0)),
            p99_ms: Some(Millis::new(calls as f64)),
        };
        let points = vec![
            point(60_000, 9_000),
            point(70_000, 30),
            point(80_000, 30),
            point(90_000, 30),
            point(100_000, 500),
        ];
        let mut figures = Figures {
            window: Window::Quarter,
            step_ms: 10_000,
            from: Timestamp(0),
            to: Timestamp(104_000),
            series: vec![FigureSeries {
                key: "hello".into(),
                sum: points[0].clone(),
                points,
            }],
            more: false,
        };
        let stats = recent(Some(&figures))["hello"];
        assert_eq!((stats.calls_per_s, stats.p99_ms), (3.0, Some(30.0)));
        figures.step_ms = 0;
        assert_eq!(recent(Some(&figures))["hello"], CallStats::default());
    }

    #[test]
    fn tables_share_a_screen() {
        assert_eq!(shares(&[10, 2, 10], 12), [5, 2, 5]);
        assert_eq!(shares(&[3, 3], 100), [3, 3]);
        assert_eq!(shares(&[5, 5], 3), [1, 2]);
        assert_eq!(shares(&[], 3), [0; 0]);
        let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
        let top = Top {
            at: Timestamp(0),
            clusters: Vec::new(),
            nodes: names.iter().map(|name| node(name)).collect(),
            apps: vec![app("hello"), app("quiet")],
        };
        for lines in 3..80 {
            let text = top.fit_lines(lines);
            assert!(text.lines().count() <= lines, "{lines}: {text}");
        }
        let text = top.fit_lines(12);
        assert!(text.contains("quiet"), "the last table is there: {text}");
        let shown = text.lines().filter(|line| line.starts_with('n')).count();
        assert_eq!(shown, 4, "{text}");
        assert!(text.contains("… 46 more\n"), "{text}");
        assert_eq!(top.fit_lines(80), top.text(false));
    }
}
