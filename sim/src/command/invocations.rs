//! `fdn sim invocations`: one workload under one policy.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueHint;
use fdn_core::{ByteSize, DurationMs, Millis};
use fdn_scheduling::invocation::Guard;
use serde::Serialize;

use super::{Format, print, print_json};
use crate::Error;
use crate::invocations::{
    KeepAliveName, Machines, Policy, PolicyName, Run, Scale, Workload, lower_bound, simulate,
};
use crate::progress::Progress;
use crate::report::{Cell, Summary, Table};

/// Arguments of `fdn sim invocations`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV file of functions, plain or gzip: profiles and distributions of execution times
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    functions: PathBuf,
    /// CSV file of invocations, plain or gzip
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// How many nodes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Memory of each node
    #[arg(long, default_value_t = ByteSize::from_mib(16 * 1024))]
    node_memory: ByteSize,
    /// Share of the invocations that is kept, from above 0 to 1
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// In which order invocations start
    #[arg(long, value_enum, default_value_t = PolicyName::Funcsched)]
    policy: PolicyName,
    /// How idle containers are kept
    #[arg(long, value_enum, default_value_t = KeepAliveName::Lru)]
    keepalive: KeepAliveName,
    /// How long idle containers are kept by fixed, and by hist while little is known
    #[arg(long, default_value_t = DurationMs::from_millis(6250))]
    keep: DurationMs,
    /// Width of a bin of hist
    #[arg(long, default_value_t = DurationMs::from_secs(1))]
    bin: DurationMs,
    /// Time over which the load rho is measured
    #[arg(long, default_value_t = DurationMs::from_secs(300))]
    span: DurationMs,
    /// Invocations that waited this long go first
    #[arg(long, value_name = "TIME")]
    starve_after: Option<DurationMs>,
    /// Share of the memory-time at most that goes to them
    #[arg(
        long,
        value_name = "SHARE",
        requires = "starve_after",
        default_value_t = 1.0
    )]
    starve_share: f64,
    /// Seed; a recorded trace leaves nothing to chance, so it changes nothing here
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Figures of every function too
    #[arg(long)]
    detail: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    policy: &'static str,
    keepalive: &'static str,
    nodes: u32,
    node_memory_mib: u64,
    scale: f64,
    seed: u64,
    invocations: usize,
    rho: f64,
    completion_ms: Summary,
    queueing_ms: Summary,
    loading_mean_ms: f64,
    lower_bound_ms: f64,
    cold_share: f64,
    cold_starts: u64,
    warm_starts: u64,
    prewarmed: u64,
    evicted: u64,
    expired: u64,
    interrupted: u64,
    waiting_max: usize,
    end_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<&'a [crate::invocations::FunctionFigures]>,
}

impl Args {
    fn machines(&self) -> Machines {
        Machines {
            nodes: self.nodes as usize,
            memory: self.node_memory.to_mebibytes(),
        }
    }

    fn policy(&self) -> Result<Policy, Error> {
        let ms = |time: DurationMs| Millis::from(time.as_duration());
        let guard = |after| {
            Guard::new(ms(after), self.starve_share)
                .map_err(|error| Error::Usage(error.to_string()))
        };
        let mut policy = Policy::new(self.policy, self.keepalive);
        policy.keep = ms(self.keep);
        policy.histogram.default = ms(self.keep);
        policy.histogram.bin = ms(self.bin);
        policy.starvation = self.starve_after.map(guard).transpose()?;
        Ok(policy)
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write, progress: &dyn Progress) -> Result<(), Error> {
    let span = Millis::from(args.span.as_duration());
    if span <= Millis::ZERO {
        return Err(Error::Usage("the span must be above 0".to_owned()));
    }
    let policy = args.policy()?;
    let scale = Scale::new(args.scale)?;
    let part = progress.begin("invocations", 1);
    let workload = Workload::read(&args.functions, &args.trace, scale)?;
    let run = simulate(&workload, args.machines(), span, &policy)?;
    let bound = lower_bound(&workload, args.machines());
    part.advance(1);
    match args.output {
        Format::Json => print_json(out, &printed(args, &run, bound)),
        Format::Table => print(out, &text(args, &run, bound)),
    }
}

fn printed<'a>(args: &Args, run: &'a Run, bound: Millis) -> Printed<'a> {
    Printed {
        policy: args.policy.as_str(),
        keepalive: args.keepalive.as_str(),
        nodes: args.nodes,
        node_memory_mib: args.machines().memory.get(),
        scale: args.scale,
        seed: args.seed,
        invocations: run.invocations,
        rho: run.rho,
        completion_ms: run.completion_ms,
        queueing_ms: run.queueing_ms,
        loading_mean_ms: run.loading_mean_ms,
        lower_bound_ms: bound.get(),
        cold_share: run.cold_share,
        cold_starts: run.cold_starts,
        warm_starts: run.warm_starts,
        prewarmed: run.prewarmed,
        evicted: run.evicted,
        expired: run.expired,
        interrupted: run.interrupted,
        waiting_max: run.waiting_max,
        end_ms: run.end_ms,
        functions: args.detail.then_some(run.functions.as_slice()),
    }
}

fn text(args: &Args, run: &Run, bound: Millis) -> String {
    let title = format!(
        "{} invocations of {} functions, {} nodes of {}, load {:.2}: {} with {}",
        run.invocations,
        run.functions.len(),
        args.nodes,
        args.node_memory,
        run.rho,
        args.policy.as_str(),
        args.keepalive.as_str()
    );
    let mut table = Table::new(title, &["", "mean_s", "p50_s", "p99_s", "max_s"]);
    let seconds = |ms: f64| Cell::Number(ms / 1e3, 3);
    for (name, summary) in [
        ("completion", &run.completion_ms),
        ("queueing", &run.queueing_ms),
    ] {
        table.row([
            name.into(),
            seconds(summary.mean),
            seconds(summary.p50),
            seconds(summary.p99),
            seconds(summary.max),
        ]);
    }
    table.row(["loading".into(), seconds(run.loading_mean_ms)]);
    table.row(["lower bound".into(), seconds(bound.get())]);
    let mut counts = Table::new("Counts", &["", "number"]);
    for (name, number) in [
        ("cold starts", run.cold_starts),
        ("warm starts", run.warm_starts),
        ("loaded ahead", run.prewarmed),
        ("evicted", run.evicted),
        ("no longer kept", run.expired),
        ("interrupted", run.interrupted),
        ("most waiting at once", run.waiting_max as u64),
    ] {
        counts.row([name.into(), Cell::Number(number as f64, 0)]);
    }
    let mut text = format!("{}\n{}", table.text(), counts.text());
    if args.detail {
        text += &format!("\n{}", detail(run).text());
    }
    text
}

fn detail(run: &Run) -> Table {
    let columns = [
        "function",
        "invocations",
        "cold",
        "mean_s",
        "p99_s",
        "queueing_mean_s",
    ];
    let mut table = Table::new("Functions", &columns);
    for row in &run.functions {
        table.row([
            row.function.as_str().into(),
            row.invocations.into(),
            row.cold.into(),
            Cell::Number(row.completion_ms.mean / 1e3, 3),
            Cell::Number(row.completion_ms.p99 / 1e3, 3),
            Cell::Number(row.queueing_mean_ms / 1e3, 3),
        ]);
    }
    table
}
