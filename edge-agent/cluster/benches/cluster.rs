//! Placements per second and the time from asking to starting, of a cluster of processes on loopback, for every way of scheduling.
//!
//! `cargo bench -p fdn-cluster -- --nodes 4 --delay 1.0 --seconds 2` prints, and nothing passes or fails. Instances are made up: what is measured is asking,
//! scheduling, the wire and the reservation. All nodes and the load share the machine's cores.

#![allow(
    clippy::print_stdout,
    reason = "printing figures is what this program is for"
)]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop where it stands")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

/// Unit slots of each node.
const SLOTS: u64 = 10_000;

struct Options {
    nodes: usize,
    /// One-way delay for the comparison of modes, in milliseconds.
    delay: f64,
    seconds: f64,
    utilisation: f64,
}

struct Node {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(config: &Value) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fdn-cluster-node"))
            .arg(config.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    fn order(&mut self, order: &Value) {
        writeln!(self.input, "{order}").unwrap();
    }

    fn answer(&mut self, kind: &str) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer.get(kind).is_some(), "{kind}: {answer}");
        answer[kind].clone()
    }
}

struct Cluster {
    nodes: Vec<Node>,
}

/// What a run gave.
#[derive(Debug, Default)]
struct Row {
    offered: f64,
    placed: f64,
    refused: u64,
    p50: f64,
    p99: f64,
    p999: f64,
    /// Processor time of all nodes per placement, the load's included.
    cpu_micros: f64,
}

impl Cluster {
    fn start(options: &Options, mode: &str, delay: f64, decision: f64) -> Self {
        // Long enough for a slow centre to come to the last task; else short, so that tables are as full as they get before it is measured.
        let wanted = if decision > 0.0 { "60s" } else { "3s" };
        let mut nodes: Vec<Node> = Vec::new();
        let mut seeds: Vec<Value> = Vec::new();
        for at in 0..options.nodes {
            let mut node = Node::start(&json!({
                "cluster": "bench", "node": format!("n{at}"),
                "capacity": { "cpu_milli": SLOTS, "memory_mib": SLOTS },
                "settings": {
                    "listen": "127.0.0.1:0", "seeds": seeds, "founder": at == 0, "plaintext": true,
                    "mode": mode,
                    "timing": {
                        "round_trip_ms": delay * 2.0 + 10.0, "wanted": wanted, "memory": "500ms", "ping_every": "500ms",
                        "lease": "5s", "suspect_after": "3s", "dead_after": "8s",
                    },
                    "limits": { "remembered": 1 << 22 },
                    "emulate": { "one_way_delay_ms": delay, "decision_ms": decision },
                },
            }));
            let address = node.answer("listening");
            if at == 0 {
                seeds.push(address);
            }
            nodes.push(node);
        }
        let mut cluster = Self { nodes };
        while !cluster.is_together() {}
        cluster
    }

    fn is_together(&mut self) -> bool {
        let count = self.nodes.len();
        self.nodes.iter_mut().all(|node| {
            node.order(&json!("status"));
            let status = node.answer("status");
            let members = status["members"].as_array().unwrap();
            status["quorum"] == true
                && status["head"].is_string()
                && members.len() == count
                && members.iter().all(|member| member["connected"] == true)
        })
    }

    fn ask_all(&mut self, order: impl Fn(usize) -> Value, kind: &str) -> Vec<Value> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.order(&order(at));
        }
        self.nodes
            .iter_mut()
            .map(|node| node.answer(kind))
            .collect()
    }

    /// From asking to starting, over all nodes, in milliseconds at these shares.
    fn latencies(&mut self, shares: [f64; 3]) -> [f64; 3] {
        let mut buckets: Vec<u64> = Vec::new();
        for answer in self.ask_all(|_| json!("measured"), "measured") {
            for (at, count) in answer["buckets"].as_array().unwrap().iter().enumerate() {
                buckets.resize(buckets.len().max(at + 1), 0);
                buckets[at] += count.as_u64().unwrap();
            }
        }
        let total: u64 = buckets.iter().sum();
        shares.map(|share| {
            let wanted = (total as f64 * share).ceil() as u64;
            let mut seen = 0;
            let at = buckets.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            at.map_or(f64::NAN, |at| 2f64.powf((at as f64 + 0.5) / 35.0) / 1000.0)
        })
    }

    fn idle(&mut self) {
        loop {
            let running = self.ask_all(|_| json!("status"), "status");
            if running.iter().all(|status| status["running"] == 0) {
                return;
            }
        }
    }

    fn load(&mut self, options: &Options, rate: f64) -> Row {
        let nodes = self.nodes.len() as f64;
        let life = options.utilisation * nodes * SLOTS as f64 / rate * 1000.0;
        // Until as many run as shall run in the mean, it is not the load that is meant.
        let run = |cluster: &mut Self, seconds: f64| {
            let order = json!({ "load": {
                "per_second": rate / nodes, "seconds": seconds, "sizes": [[1, 1]], "life_ms": life,
            }});
            cluster.ask_all(|_| order.clone(), "settled")
        };
        run(self, (life * 3.0 / 1000.0).min(options.seconds * 2.0));
        self.latencies([0.5, 0.99, 0.999]);
        let cpu = self.cpu_seconds();
        let started = Instant::now();
        let settled = run(self, options.seconds);
        let seconds = started.elapsed().as_secs_f64().max(options.seconds);
        let [p50, p99, p999] = self.latencies([0.5, 0.99, 0.999]);
        let sum = |key: &str| {
            settled
                .iter()
                .map(|one| one[key].as_u64().unwrap())
                .sum::<u64>()
        };
        let cpu = self.cpu_seconds() - cpu;
        let refused = |one: &Value| {
            one["refused"]
                .as_object()
                .unwrap()
                .values()
                .map(|n| n.as_u64().unwrap())
                .sum::<u64>()
        };
        Row {
            offered: sum("asked") as f64 / options.seconds,
            placed: sum("started") as f64 / seconds,
            refused: settled.iter().map(refused).sum(),
            p50,
            p99,
            p999,
            cpu_micros: cpu * 1e6 / sum("started").max(1) as f64,
        }
    }

    /// User and system time that all nodes have used: fields 14 and 15 of `/proc/<pid>/stat`, in hundredths of a second.
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
        self.latencies([0.5, 0.99, 0.999]);
        let order = |at: usize| {
            json!({ "burst": {
                "tasks": tasks / nodes, "first": at as u64 * tasks, "sizes": [[1, 1]], "life_ms": 1000.0,
            }})
        };
        self.ask_all(order, "settled");
        self.latencies([0.5, 0.99, 0.999])
    }
}

fn print(mode: &str, row: &Row) {
    println!(
        "  {mode:<20} {:>9.0} {:>9.0} {:>8} {:>8.2} {:>8.2} {:>8.2} {:>8.1}",
        row.offered, row.placed, row.refused, row.p50, row.p99, row.p999, row.cpu_micros
    );
}

fn head() {
    println!(
        "  {:<20} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "mode", "asked/s", "placed/s", "refused", "p50 ms", "p99 ms", "p99.9 ms", "us CPU"
    );
}

/// The highest rate that is placed with a 99th percentile within the limit: doubled until it fails, then between.
fn sustained(options: &Options, mode: &str, delay: f64, limit: f64, from: f64) -> Row {
    let mut cluster = Cluster::start(options, mode, delay, 0.0);
    let mut best = Row::default();
    let (mut rate, mut failed) = (from, f64::INFINITY);
    for _ in 0..7 {
        let row = cluster.load(options, rate);
        if row.p99 <= limit && row.placed >= row.offered * 0.97 && row.refused == 0 {
            best = row;
            rate = if failed.is_finite() {
                (rate * failed).sqrt()
            } else {
                rate * 2.0
            };
        } else {
            failed = rate;
            let low = if best.offered > 0.0 {
                best.offered
            } else {
                rate / 4.0
            };
            rate = (low * failed).sqrt();
        }
        if failed / best.offered < 1.15 {
            break;
        }
        cluster.idle();
    }
    print(mode, &best);
    best
}

fn option(name: &str, default: f64) -> f64 {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name);
    at.and_then(|at| args.get(at + 1)?.parse().ok())
        .unwrap_or(default)
}

fn main() {
    let options = Options {
        nodes: option("--nodes", 4.0) as usize,
        delay: option("--delay", 1.0),
        seconds: option("--seconds", 2.0),
        utilisation: option("--utilisation", 0.95),
    };
    println!(
        "cluster: {} processes of {SLOTS} slots on loopback, {} cores, {:.0} % busy; from asking to starting, all nodes together",
        options.nodes,
        std::thread::available_parallelism().map_or(1, Into::into),
        options.utilisation * 100.0
    );
    println!("no delay added; the highest rate whose p99 is within 10 ms:");
    head();
    for mode in [
        "local-probe-global",
        "hints",
        "central",
        "re-probing",
        "late-binding",
        "bottom-up",
    ] {
        sustained(&options, mode, 0.0, 10.0, 20_000.0);
    }
    println!(
        "{} ms added one way; the highest rate whose p99 is within 20 ms:",
        options.delay
    );
    head();
    let rates = [
        "local-probe-global",
        "hints",
        "central",
        "re-probing",
        "late-binding",
        "bottom-up",
    ]
    .map(|mode| sustained(&options, mode, options.delay, 20.0, 10_000.0).offered);
    let [partial, hints, _, re_probing, _, bottom_up] = rates;
    println!(
        "  local-probe-global: {:.2} x bottom-up, {:.2} x re-probing; hints: {:.2} x and {:.2} x",
        partial / bottom_up,
        partial / re_probing,
        hints / bottom_up,
        hints / re_probing
    );
    println!(
        "a burst of 2000, no delay added; central takes 10 ms for each decision, as a known platform does:"
    );
    let mut p99 = Vec::new();
    for (mode, decision) in [
        ("local-probe-global", 0.0),
        ("hints", 0.0),
        ("central", 10.0),
    ] {
        let mut cluster = Cluster::start(&options, mode, 0.0, decision);
        let [p50, last, p999] = cluster.burst(2000);
        println!("  {mode:<20} p50 {p50:>9.2} ms  p99 {last:>9.2} ms  p99.9 {p999:>9.2} ms");
        p99.push(last);
    }
    println!(
        "  p99 below central: local-probe-global {:.0} times, hints {:.0} times",
        p99[2] / p99[0],
        p99[2] / p99[1]
    );
}
