//! `fdn sim place`: one workflow on one network.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fdn_core::Millis;
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::policy::{Budget, Policy};
use serde::Serialize;

use super::{Format, print, print_json};
use crate::Error;
use crate::place::{NetworkModel, Run, Workflow, run as place};
use crate::report::{Cell, Table};

/// Arguments of `fdn sim place`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The workflow: a file in WfFormat 1.5, plain or gzip
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    workflow: PathBuf,
    /// The network: a file, or a model that is built in: edge5, edge3u
    #[arg(long, value_name = "FILE|NAME", value_hint = ValueHint::FilePath)]
    network: String,
    /// The scheduler
    #[arg(long, value_parser = policies())]
    policy: Policy,
    /// The client who waits for the answer; without one, no cluster is far
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Steps that a scheduler that searches may take
    #[arg(long, value_name = "STEPS", default_value_t = Budget::default().steps)]
    budget: u64,
    /// Seed of a scheduler that draws
    #[arg(long, value_name = "N", default_value_t = Budget::default().seed)]
    seed: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    let names = Policy::ALL.map(Policy::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Policy>())
}

#[derive(Debug, Serialize)]
struct Placed<'a> {
    policy: &'a str,
    makespan_s: f64,
    lower_bound_s: f64,
    algorithm_us: f64,
    tasks: Vec<PlacedTask<'a>>,
}

#[derive(Debug, Serialize)]
struct PlacedTask<'a> {
    id: &'a str,
    cluster: &'a str,
    start_s: f64,
    finish_s: f64,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let workflow = Workflow::read(&args.workflow)?;
    let network = NetworkModel::load(&args.network)?;
    let budget = Budget {
        steps: args.budget,
        seed: args.seed,
        ..Budget::default()
    };
    let placed = place(
        &workflow,
        &network,
        args.client.as_deref(),
        args.policy,
        budget,
    )?;
    let placed = Placed {
        policy: args.policy.name(),
        makespan_s: seconds(placed.plan.latency()),
        lower_bound_s: seconds(placed.lower_bound),
        algorithm_us: placed.algorithm.as_secs_f64() * 1e6,
        tasks: tasks(&workflow, &network, &placed),
    };
    match args.output {
        Format::Json => print_json(out, &placed),
        Format::Table => print(out, &text(&placed)),
    }
}

/// The tasks by their start, without the virtual entry.
fn tasks<'a>(
    workflow: &'a Workflow,
    network: &'a NetworkModel,
    placed: &Run,
) -> Vec<PlacedTask<'a>> {
    let dag = workflow.dag();
    let mut order: Vec<TaskIndex> = dag.indices().take(dag.given()).collect();
    order.sort_by_key(|task| placed.plan.placement(*task).start);
    let task = |task| {
        let placement = placed.plan.placement(task);
        PlacedTask {
            id: &dag.task(task).name,
            cluster: network.clusters()[placement.cluster.get()].id.as_str(),
            start_s: seconds(placement.start),
            finish_s: seconds(placement.finish),
        }
    };
    order.into_iter().map(task).collect()
}

fn seconds(span: Millis) -> f64 {
    span.get() / 1e3
}

fn text(placed: &Placed<'_>) -> String {
    let mut table = Table::new(
        format!(
            "{}: {:.2} s; no plan takes less than {:.2} s; placed in {:.0} us",
            placed.policy, placed.makespan_s, placed.lower_bound_s, placed.algorithm_us
        ),
        &["task", "cluster", "start_s", "finish_s"],
    );
    for task in &placed.tasks {
        table.row([
            Cell::from(task.id),
            Cell::from(task.cluster),
            Cell::Number(task.start_s, 2),
            Cell::Number(task.finish_s, 2),
        ]);
    }
    table.text()
}
