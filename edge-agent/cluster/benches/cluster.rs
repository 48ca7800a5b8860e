//! Measures placements per second and the time from request to start, of a cluster of processes on loopback, for every scheduling mode.
//!
//! `cargo bench -p fdn-cluster -- --nodes 8 --slots 100 --delay 1.0 --seconds 0.8` prints figures; nothing passes or fails. Instances are
//! synthetic: what is measured is submission, scheduling, the wire and the reservation. All nodes and the load share the machine's cores.
//! `--part rates`, `--part roomy`, `--part overload`, `--part stage` and `--part burst` print one part.

#![allow(
    clippy::print_stdout,
    reason = "printing figures is what this program is for"
)]

#[path = "../tests/it/process.rs"]
#[expect(dead_code, reason = "a benchmark kills nobody and reads no journal")]
mod process;

use std::time::Instant;

use serde_json::{Value, json};

use process::{Node, are_together, start_all, wait};

const MODES: [&str; 6] = [
    "local-probe-global",
    "hints",
    "central",
    "re-probing",
    "late-binding",
    "bottom-up",
];
/// A search ends when the highest good rate and the lowest bad one are within this factor, or after this many runs.
const NEAR: f64 = 1.15;
const RUNS: usize = 6;
/// If instances live longer than this, in milliseconds, their ends are not awaited: another cluster is started.
const LONG: f64 = 150.0;
/// The time that a known platform's central scheduler takes for each decision, in milliseconds.
const SLOW_CENTRE: f64 = 10.0;

struct Options {
    nodes: usize,
    /// Unit slots of each node.
    slots: u64,
    /// One-way delay for the second comparison of modes, in milliseconds.
    delay: f64,
    seconds: f64,
    utilisation: f64,
    part: Option<String>,
}

struct Cluster {
    nodes: Vec<Node>,
    slots: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
struct Row {
    offered: f64,
    placed: f64,
    refused: u64,
    /// The time from request to start at the 50th, 99th and 99.9th percentile, in milliseconds.
    latency: [f64; 3],
    /// Processor time of all nodes per placement, in microseconds, including that of the load.
    cpu_micros: f64,
}

impl Cluster {
    fn start(options: &Options, mode: &str, slots: u64, delay: f64, decision: f64) -> Self {
        Self::start_with(options, mode, slots, (delay, decision), 0)
    }

    /// Like `start`, with this many pre-schedulers on the head.
    fn start_with(
        options: &Options,
        mode: &str,
        slots: u64,
        (delay, decision): (f64, f64),
        pre_schedulers: usize,
    ) -> Self {
        // Long enough for a slow scheduler to reach the last task; otherwise short, so that tables are as full as they get before measuring begins.
        let wanted = if decision > 0.0 { "60s" } else { "3s" };
        let settings = json!({
            "mode": mode,
            "timing": {
                "round_trip_ms": delay * 2.0 + 10.0, "wanted": wanted, "memory": "500ms", "ping_every": "500ms",
                "lease": "5s", "suspect_after": "3s", "dead_after": "8s",
            },
            "global": { "pre_schedulers": pre_schedulers },
            "emulate": { "one_way_delay_ms": delay, "decision_ms": decision },
        });
        let nodes = start_all(
            "bench",
            &vec![(slots, slots); options.nodes],
            &settings,
            |_| None,
        );
        let mut cluster = Self { nodes, slots };
        wait("the nodes are one cluster", || {
            let statuses = cluster.ask_all(|_| json!("status"), "status");
            are_together(&statuses, options.nodes)
        });
        cluster
    }

    fn ask_all(&mut self, order: impl Fn(usize) -> Value, kind: &str) -> Vec<Value> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.order(&order(at));
        }
        let answer = |node: &mut Node| node.answer(kind);
        self.nodes.iter_mut().map(answer).collect()
    }

    /// Times from request to start, over all nodes, since the last such call.
    fn latencies(&mut self) -> [f64; 3] {
        let mut buckets: Vec<u64> = Vec::new();
        for answer in self.ask_all(|_| json!("measured"), "measured") {
            for (at, count) in answer["buckets"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                buckets.resize(buckets.len().max(at + 1), 0);
                buckets[at] += count.as_u64().unwrap_or(0);
            }
        }
        let total: u64 = buckets.iter().sum();
        [0.5, 0.99, 0.999].map(|share| {
            let wanted = (total as f64 * share).ceil() as u64;
            let mut seen = 0;
            let at = buckets.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            at.map_or(f64::NAN, |at| 2f64.powf((at as f64 + 0.5) / 35.0) / 1000.0)
        })
    }

    /// The mean lifetime of an instance at a rate, in milliseconds, for the wanted share of slots to be in use.
    fn life(&self, options: &Options, rate: f64) -> f64 {
        let slots = self.nodes.len() as f64 * self.slots as f64;
        options.utilisation * slots / rate * 1000.0
    }

    /// Waits until no instance runs.
    fn idle(&mut self) {
        wait("all instances have ended", || {
            let statuses = self.ask_all(|_| json!("status"), "status");
            statuses.iter().all(|status| status["running"] == 0)
        });
    }

    /// Submits tasks at a rate: first until the number of running instances has reached its mean, then measured.
    fn load(&mut self, options: &Options, rate: f64) -> Row {
        let (nodes, life) = (self.nodes.len() as f64, self.life(options, rate));
        let run = |cluster: &mut Self, seconds: f64| {
            let order = json!({ "load": {
                "per_second": rate / nodes, "seconds": seconds, "sizes": [[1, 1]], "life_ms": life,
            }});
            cluster.ask_all(|_| order.clone(), "settled")
        };
        run(self, (life * 3.0 / 1000.0).clamp(0.2, 1.0));
        self.latencies();
        let (cpu, started) = (self.cpu_seconds(), Instant::now());
        let settled = run(self, options.seconds);
        let seconds = started.elapsed().as_secs_f64().max(options.seconds);
        let latency = self.latencies();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let sum = |key: &str| settled.iter().map(|one| number(&one[key])).sum::<u64>();
        let refused = settled
            .iter()
            .flat_map(|one| one["refused"].as_object().into_iter().flatten());
        Row {
            offered: sum("asked") as f64 / options.seconds,
            placed: sum("started") as f64 / seconds,
            refused: refused.map(|(_, count)| number(count)).sum::<u64>() + sum("unresolved"),
            latency,
            cpu_micros: (self.cpu_seconds() - cpu) * 1e6 / sum("started").max(1) as f64,
        }
    }

    /// The user and system time used by all nodes: fields 14 and 15 of `/proc/<pid>/stat`, in hundredths of a second.
    fn cpu_seconds(&self) -> f64 {
        let of = |node: &Node| {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", node.child.id())).ok()?;
            let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
            let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
            Some((ticks(11)? + ticks(12)?) / 100.0)
        };
        self.nodes.iter().filter_map(of).sum()
    }

    fn burst(&mut self, tasks: u64) -> [f64; 3] {
        let nodes = self.nodes.len() as u64;
        self.latencies();
        let order = |at: usize| {
            json!({ "burst": {
                "tasks": tasks / nodes, "first": at as u64 * tasks, "sizes": [[1, 1]], "life_ms": 50.0,
            }})
        };
        self.ask_all(order, "settled");
        let latency = self.latencies();
        self.idle();
        latency
    }
}

fn head() {
    println!(
        "  {:<20} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "mode", "asked/s", "placed/s", "refused", "p50 ms", "p99 ms", "p99.9 ms", "us CPU"
    );
}

fn print(mode: &str, row: &Row) {
    let [p50, p99, p999] = row.latency;
    println!(
        "  {mode:<20} {:>9.0} {:>9.0} {:>8} {p50:>8.2} {p99:>8.2} {p999:>8.2} {:>8.1}",
        row.offered, row.placed, row.refused, row.cpu_micros
    );
}

/// The highest sustained rate: everything is started within the limit. The rate is doubled or halved to bracket it, then bisected.
fn sustained(options: &Options, mode: &str, from: f64, delay: f64, limit: f64) -> Row {
    let mut cluster = Cluster::start(options, mode, options.slots, delay, 0.0);
    let holds =
        |row: &Row| row.latency[1] <= limit && row.placed >= row.offered * 0.97 && row.refused == 0;
    let mut best = Row::default();
    let (mut rate, mut failed) = (from, f64::INFINITY);
    for _ in 0..RUNS {
        let row = cluster.load(options, rate);
        if holds(&row) {
            best = row;
        } else {
            failed = rate;
        }
        let life = cluster.life(options, rate);
        if failed / best.offered < NEAR {
            break;
        }
        rate = match (best.offered > 0.0, failed.is_finite()) {
            (true, true) => (best.offered * failed).sqrt(),
            (true, false) => rate * 2.0,
            (false, _) => rate / 2.0,
        };
        if life > LONG {
            cluster = Cluster::start(options, mode, options.slots, delay, 0.0);
        } else {
            cluster.idle();
        }
    }
    print(mode, &best);
    best
}

fn rates(options: &Options, delay: f64, limit: f64) -> Vec<Row> {
    println!("\n{delay} ms added one way; the highest rate whose p99 is within {limit} ms:");
    head();
    MODES
        .iter()
        .map(|mode| sustained(options, mode, 16_000.0, delay, limit))
        .collect()
}

fn compare(options: &Options) -> f64 {
    let near = rates(options, 0.0, 10.0);
    let far = rates(options, options.delay, 10.0 + 5.0 * options.delay);
    let ratio = |rows: &[Row], of: usize, to: usize| rows[of].placed / rows[to].placed;
    println!(
        "\nratios of rates (aim)     no delay    {} ms one way",
        options.delay
    );
    for (of, mode) in [(0, "local-probe-global"), (1, "hints")] {
        for (to, other, aim) in [(5, "bottom-up", "2.0"), (3, "re-probing", "2.6 at 1 ms")] {
            println!(
                "  {mode} / {other} ({aim}): {:.2}    {:.2}",
                ratio(&near, of, to),
                ratio(&far, of, to)
            );
        }
    }
    println!(
        "  placements per second at 95 %: local-probe-global {:.0}, hints {:.0}",
        near[0].placed, near[1].placed
    );
    near[0].placed
}

/// A few large nodes with room on each: the cost of messages and ledgers, with hardly any search for room.
fn roomy() {
    let options = Options {
        nodes: 4,
        slots: 10_000,
        delay: 0.0,
        seconds: 1.0,
        utilisation: 0.8,
        part: None,
    };
    println!(
        "\n4 nodes of 10000 slots, 80 % in use; the highest rate whose p99 is within 10 ms (aim 100000 on 2 cores):"
    );
    head();
    sustained(&options, MODES[0], 64_000.0, 0.0, 10.0);
}

/// The behaviour of a cluster that is asked for more than it can do.
fn overload(options: &Options, sustained: f64) {
    println!("\nasked for more than that, local-probe-global, no delay added:");
    head();
    let mut cluster = Cluster::start(options, MODES[0], options.slots, 0.0, 0.0);
    for times in [1.0, 2.0, 4.0] {
        let row = cluster.load(options, sustained * times);
        print(&format!("{times} times"), &row);
        cluster.idle();
    }
}

/// The global stage alone: every task goes through it.
fn stage(options: &Options) {
    println!(
        "\nevery task through the global stage (central), no delay added, by pre-schedulers of the head:"
    );
    head();
    for pre_schedulers in [0, 1, 2] {
        let setup = (0.0, 0.0);
        let mut cluster =
            Cluster::start_with(options, "central", options.slots, setup, pre_schedulers);
        for rate in [10_000.0, 30_000.0] {
            let row = cluster.load(options, rate);
            print(&format!("{pre_schedulers} at {rate}"), &row);
        }
        let statuses = cluster.ask_all(|_| json!("status"), "status");
        if let Some(global) = statuses.iter().find(|status| status["global"].is_object()) {
            let global = &global["global"];
            println!(
                "    lists {} conflicts {}",
                global["lists"], global["conflicts"]
            );
        }
    }
}

fn bursts(options: &Options) {
    println!(
        "\na burst of 2000 on an empty cluster, no delay added; the first, and the median and worst p99 of five more; central takes\n\
         {SLOW_CENTRE} ms for each decision, as a known platform does:"
    );
    let slots = (4000 / options.nodes as u64).max(options.slots);
    let mut p99 = Vec::new();
    for (mode, decision, more) in [
        (MODES[0], 0.0, 5),
        (MODES[1], 0.0, 5),
        (MODES[2], 0.0, 5),
        (MODES[2], SLOW_CENTRE, 0),
    ] {
        let mut cluster = Cluster::start(options, mode, slots, 0.0, decision);
        let [p50, first, p999] = cluster.burst(2000);
        let name = if decision > 0.0 { "slow central" } else { mode };
        print!("  {name:<20} p50 {p50:>8.2} ms  p99 {first:>8.2} ms  p99.9 {p999:>8.2} ms");
        let mut others: Vec<[f64; 3]> = (0..more).map(|_| cluster.burst(2000)).collect();
        others.sort_by(|a, b| a[1].total_cmp(&b[1]));
        match (others.get(others.len() / 2), others.last()) {
            (Some([p50, median, p999]), Some([_, worst, _])) => {
                println!(
                    "   then p50 {p50:.2}, p99 {median:.2} (worst {worst:.2}), p99.9 {p999:.2} ms"
                );
                p99.push((name, first, *median));
            }
            _ => {
                println!();
                p99.push((name, first, first));
            }
        }
    }
    let slow = p99.last().map_or(f64::NAN, |last| last.1);
    for (name, first, median) in &p99[..p99.len() - 1] {
        println!(
            "  p99 below the slow centre (aim 45): {name} {:.0} times, the first burst {:.0} times",
            slow / median,
            slow / first
        );
    }
}

fn option(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).cloned()
}

fn number(name: &str, default: f64) -> f64 {
    option(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn main() {
    let options = Options {
        nodes: number("--nodes", 8.0) as usize,
        slots: number("--slots", 100.0) as u64,
        delay: number("--delay", 1.0),
        seconds: number("--seconds", 0.8),
        utilisation: number("--utilisation", 0.95),
        part: option("--part"),
    };
    println!(
        "cluster: {} processes of {} slots on loopback, {} cores for them and the load, {:.0} % of the slots in use in the mean.\n\
         Latency is from asking to starting, over all nodes. A rate is offered evenly for {} s, whatever becomes of what was offered before,\n\
         after a time in which the slots fill; it holds if 97 % of what was asked for was started in that time and none refused, with p99\n\
         within the limit; the highest is searched by halving to within {:.0} %, in at most {RUNS} runs.",
        options.nodes,
        options.slots,
        std::thread::available_parallelism().map_or(1, Into::into),
        options.utilisation * 100.0,
        options.seconds,
        (NEAR - 1.0) * 100.0,
    );
    let is_wanted = |part: &str| options.part.as_deref().is_none_or(|wanted| wanted == part);
    let mut best = number("--rate", 50_000.0);
    if is_wanted("rates") {
        best = compare(&options);
    }
    if is_wanted("roomy") {
        roomy();
    }
    if is_wanted("overload") {
        overload(&options, best);
    }
    if is_wanted("stage") {
        stage(&options);
    }
    if is_wanted("burst") {
        bursts(&options);
    }
}
