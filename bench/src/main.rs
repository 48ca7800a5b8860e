//! Benchmarks that print figures with the conditions they were taken under.
//!
//! Nothing here passes or fails: every figure stands beside a named alternative taken in the same run, server pinned to one core and
//! load to the other, rounds interleaved, medians printed. `make bench` runs all; `fdn-bench NAME` runs one.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing figures is what this program is for"
)]

mod billing;
mod calls;
mod cold;
mod compare;
mod containers;
mod deploys;
mod dns;
mod facts;
mod gateway;
mod images;
mod instances;
mod loops;
mod machines;
mod network;
mod peers;
mod plan;
mod predictions;
mod response;
mod rig;
mod tail;
mod workflow_cold;
mod wrk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Requests per second and latency through the gateway, beside `wasmtime serve` and workerd.
    Gateway,
    /// What gateway and scheduler add to a call of an instance.
    Calls,
    /// The first call on a node whose disk cache holds the compiled function.
    Cold,
    /// From a deploy until it is ready, of a first version, the next ones and another function; and compiling with and without the compile cache.
    Deploys,
    /// Containers: create, start and first answer; unpause and answer.
    Containers,
    /// Containers through the agent: none runs, it is paused, it is warm.
    Images,
    /// Calls of an instance on this node and on another one.
    Peers,
    /// A workflow of five stages over two clusters whose containers do not run, with and without starting them before their calls.
    WorkflowCold,
    /// A light function beside two that loop for ever.
    Loops,
    /// The slowest calls of a mix at 70 % of the core, bursts, idle connections, HTTP/2 and TLS 1.3, and bodies of 1 GiB.
    Tail,
    /// Cold starts per second of a cluster of four nodes, each call one of a function that runs nowhere.
    Starts,
    /// How many live instances 1 GiB of memory holds, in one process.
    Instances,
    /// Ten thousand machines at the edge on one controller; and on two, of which one is killed.
    Machines,
    /// DNS queries per second with client subnets.
    Dns,
    /// One pass of the planner over 1,000 apps, 50 client groups of each and 50 clusters.
    Plan,
    /// How far predicted times are off after a thousand calls, and after a function became five times slower.
    Predictions,
    /// Sums of calls into PostgreSQL, bills of them, and the API over it.
    Billing,
    /// What users wait for, on processes with emulated distances, beside other ways to choose a cluster (half an hour; only if named).
    Response,
    /// How long it takes until clients of a cluster that fails or is slow are elsewhere (a quarter of an hour; only if named).
    Reaction,
    /// Ten thousand questions a second of made-up client subnets, beside real clients (some minutes; only if named).
    Flood,
}

/// What to run, and where the peers are.
#[derive(Debug, Parser)]
struct Options {
    /// Benchmarks to run; all if none is named.
    benches: Vec<Bench>,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Rounds; the median is printed.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Calls of the month that is billed.
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Machines at the edge that are connected.
    #[arg(long, default_value_t = 9_000)]
    machines: usize,
    /// The folder of fdn's binaries.
    #[arg(long, default_value = "target/release")]
    binaries: PathBuf,
    /// Another folder of fdn's binaries, which gateway, cold and dns are compared with.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Where the comparison, `instances`, `flood`, `machines`, `predictions`, `response`, `reaction`, `starts`, `tail` or `workflow-cold` is written as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The program `wasmtime`; left out if absent.
    #[arg(long)]
    wasmtime: Option<PathBuf>,
    /// The program `workerd`; left out if absent.
    #[arg(long)]
    workerd: Option<PathBuf>,
    /// The folder of the ready-made functions.
    #[arg(long, default_value = "functions")]
    functions: PathBuf,
    /// A folder with next versions and other functions for `deploys`, built from other sources: rust-next.wasm, javascript-other.wasm and so on. Without
    /// one, the next version is the first one with another custom section.
    #[arg(long)]
    versions: Option<PathBuf>,
    #[command(flatten)]
    response: response::ResponseOptions,
    #[command(flatten)]
    tail: tail::TailOptions,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, child, component, count] = args.as_slice()
        && child == instances::CHILD
    {
        return instances::child(component.as_ref(), count.parse()?);
    }
    if let [_, child, list, edge] = args.as_slice()
        && child == machines::CHILD
    {
        return machines::child(list.as_ref(), edge);
    }
    if let [_, child, settings] = args.as_slice()
        && child == machines::moved::CONTROLLER
    {
        return machines::moved::controller(settings.as_ref());
    }
    if let [_, child, port] = args.as_slice()
        && child == tail::bytes::CHILD
    {
        return tail::bytes::child(port.parse()?);
    }
    let options = Options::parse();
    facts::print();
    if let Some(other) = &options.against {
        return compare::run(&options, other);
    }
    ensure!(
        options.json.is_none() || options.benches.len() == 1,
        "--json takes the figures of one benchmark: name it"
    );
    let all = [
        Bench::Instances,
        Bench::Cold,
        Bench::Deploys,
        Bench::Containers,
        Bench::Images,
        Bench::Gateway,
        Bench::Calls,
        Bench::Peers,
        Bench::WorkflowCold,
        Bench::Loops,
        Bench::Tail,
        Bench::Starts,
        Bench::Dns,
        Bench::Machines,
        Bench::Plan,
        Bench::Predictions,
        Bench::Billing,
    ];
    let wanted = if options.benches.is_empty() {
        all.to_vec()
    } else {
        options.benches.clone()
    };
    for bench in wanted {
        println!();
        match bench {
            Bench::Gateway => gateway::run(&options)?,
            Bench::Calls => calls::run(&options)?,
            Bench::Peers => peers::run(&options)?,
            Bench::Cold => cold::run(&options)?,
            Bench::Deploys => deploys::run(&options)?,
            Bench::Containers => containers::run()?,
            Bench::Images => images::run(&options)?,
            Bench::WorkflowCold => workflow_cold::run(&options)?,
            Bench::Loops => loops::run(&options)?,
            Bench::Tail => tail::run(&options)?,
            Bench::Starts => tail::starts::run(&options)?,
            Bench::Instances => instances::run(&options)?,
            Bench::Dns => dns::run(&options)?,
            Bench::Machines => machines::run(&options)?,
            Bench::Plan => plan::run(&options)?,
            Bench::Predictions => predictions::run(&options)?,
            Bench::Billing => billing::run(&options)?,
            Bench::Response => response::run(&options)?,
            Bench::Reaction => response::reaction::run(&options)?,
            Bench::Flood => response::flood::run(&options)?,
        }
    }
    Ok(())
}

impl Options {
    /// Writes figures with the conditions as JSON, if that was asked for.
    fn write_json(&self, mut figures: serde_json::Value) -> Result<()> {
        let Some(file) = &self.json else {
            return Ok(());
        };
        figures["conditions"] = serde_json::json!(BTreeMap::from(facts::all()));
        std::fs::write(file, serde_json::to_vec_pretty(&figures)?)
            .with_context(|| format!("writing {}", file.display()))
    }
}

/// The middle of some figures (the lower one of two).
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures
        .get(figures.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}
