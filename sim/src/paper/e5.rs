//! E5: how much of the devices can be handed out before a pod finds no room, by rule.
//!
//! Figures beside: of an independent reference simulation of the same setting.

use fdn_scheduling::resource::DeviceChoice;
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::devices::{Rule, Run, Settings, nodes, pods, run};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table, mean};
use crate::seed::Seed;

const REQUESTED: f64 = 1.15;
const TOLERANCE: f64 = 0.04;

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct E5;

/// What the reference found: allocated share at the first refusal, and between what and what at the end.
const fn published(rule: Rule) -> (f64, (f64, f64)) {
    match rule {
        Rule::LeastRequested => (0.08, (0.944, 0.946)),
        Rule::MostBalanced => (0.29, (0.949, 0.949)),
        Rule::Random => (0.55, (0.91, 0.93)),
        Rule::Packing => (0.93, (0.935, 0.938)),
        Rule::SmallestLeftover => (0.93, (0.94, 0.94)),
        Rule::Fragmentation => (0.94, (0.947, 0.947)),
    }
}

/// How many runs: the earlier the first refusal, the more it depends on which pods come first.
const fn seeds(rule: Rule) -> u64 {
    match rule {
        Rule::Random => 400,
        Rule::LeastRequested | Rule::MostBalanced => 100,
        Rule::Packing | Rule::SmallestLeftover | Rule::Fragmentation => 20,
    }
}

/// The rules that spread also spread over devices; those that pack also pack there.
const fn device_choice(rule: Rule) -> DeviceChoice {
    match rule {
        Rule::LeastRequested | Rule::MostBalanced => DeviceChoice::LeastUsed,
        Rule::Random | Rule::Packing | Rule::SmallestLeftover | Rule::Fragmentation => {
            DeviceChoice::MostUsed
        }
    }
}

impl Experiment for E5 {
    fn name(&self) -> &'static str {
        "e5"
    }

    fn title(&self) -> &'static str {
        "fine-grained resources: devices handed out until the first pod finds no room"
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let nodes = nodes(&context.data("gpu/nodes.csv.gz")?)?;
        let pods = pods(&context.data("gpu/pods.csv.gz")?)?;
        let seeds = |rule| match context.effort {
            Effort::Quick => 1,
            Effort::Full => seeds(rule),
        };
        let steps = Rule::ALL.into_iter().map(seeds).sum();
        let part = context.progress.begin("e5", steps);
        let runs_of = |rule: Rule| -> Result<Vec<Run>, Error> {
            let one = |n| {
                let settings = Settings {
                    rule,
                    devices: device_choice(rule),
                    requested: REQUESTED,
                    seed: Seed(5).nth(n),
                };
                let found = run(&nodes, &pods, &settings);
                part.advance(1);
                found
            };
            (0..seeds(rule)).into_par_iter().map(one).collect()
        };
        let runs = Rule::ALL
            .into_par_iter()
            .map(|rule| Ok((rule, runs_of(rule)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        drop(part);
        let capacity = runs.first().and_then(|(_, runs)| runs.first());
        let conditions = format!(
            "{} nodes with {} devices; {} recorded pods that want devices, drawn with replacement until {REQUESTED} of the \
             capacity is asked for; means over the runs of different seeds; slices in thousandths of a device; device of the node: least used for \
             least-requested and most-balanced, else the most used that fits.",
            nodes.len(),
            capacity.map_or(0, |run| run.capacity.get() / 1000),
            pods.len(),
        );
        Ok(Outcome {
            conditions,
            tables: vec![table(&runs)],
            gates: gates(&runs),
            notes: notes(),
            plots: vec![plot(&runs)],
        })
    }
}

fn average(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    mean(&runs.iter().map(figure).collect::<Vec<_>>())
}

/// What was handed out when the first pod was refused; all of it if none was.
fn at_first(run: &Run) -> f64 {
    run.first_refusal.unwrap_or(run.end).allocated
}

fn table(runs: &[(Rule, Vec<Run>)]) -> Table {
    let columns = [
        "rule",
        "runs",
        "first refusal: allocated share",
        "published",
        "end: allocated share",
        "published",
        "refused pods",
        "end: of no use",
    ];
    let mut table = Table::new("Share of the devices' capacity", &columns);
    for (rule, runs) in runs {
        let (first, (low, high)) = published(*rule);
        let end = if low == high {
            format!("{low}")
        } else {
            format!("{low}-{high}")
        };
        table.row([
            Cell::from(rule.name()),
            Cell::from(runs.len()),
            Cell::Number(average(runs, at_first), 3),
            Cell::Number(first, 2),
            Cell::Number(average(runs, |run| run.end.allocated), 3),
            Cell::from(end),
            Cell::Number(average(runs, |run| run.all.refused as f64), 1),
            Cell::Number(average(runs, |run| run.end.fragmented), 3),
        ]);
    }
    table
}

fn gates(runs: &[(Rule, Vec<Run>)]) -> Vec<Gate> {
    let gate = |(rule, runs): &(Rule, Vec<Run>)| {
        let (first, (low, high)) = published(*rule);
        let within = |of| Bound::Within { of, by: TOLERANCE };
        [
            Gate::new(
                format!("{}: allocated at the first refusal", rule.name()),
                average(runs, at_first),
                within(first),
            ),
            Gate::new(
                format!("{}: allocated at the end", rule.name()),
                average(runs, |run| run.end.allocated),
                within((low + high) / 2.0),
            ),
        ]
    };
    runs.iter().flat_map(gate).collect()
}

fn notes() -> Vec<String> {
    vec![
        "The two rules of the source spread pods over nodes, so that a pod that wants the 8 devices of a node soon finds none: \
         packing and the fragmentation gradient put that off until the cluster is nearly full."
            .to_owned(),
    ]
}

fn plot(runs: &[(Rule, Vec<Run>)]) -> Plot {
    let series = |(rule, runs): &(Rule, Vec<Run>)| Series {
        name: rule.name().to_owned(),
        // One run says it all: the others lie on the same line.
        points: runs.first().map_or_else(Vec::new, |run| run.curve.clone()),
        shape: Shape::Line,
    };
    Plot {
        name: "e5-allocated".to_owned(),
        title: "Devices handed out".to_owned(),
        x: Axis::linear("asked for, share of the capacity"),
        y: Axis::linear("handed out, share of the capacity"),
        series: runs.iter().map(series).collect(),
    }
}
