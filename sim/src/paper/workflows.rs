//! Recorded workflows on two networks: HEFT against what a public library's HEFT gives, and every scheduler against Heu-Orche.

use fdn_scheduling::policy::{Budget, Policy};
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::place::{NetworkModel, REFERENCE, Reference, Run, Workflow, run};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table};

/// How many instances a quick run takes: those of up to 104 tasks.
const QUICK: usize = 13;

/// The schedulers, with their published ratio to Heu-Orche on edge5, or else to HEFT on other pairs of workflow and network.
const POLICIES: [(Policy, Option<f64>, Option<f64>); 11] = [
    (Policy::HeuOrche, Some(1.0), None),
    (Policy::Heft, Some(0.993), None),
    (Policy::Peft, None, None),
    (Policy::Lookahead, None, None),
    (Policy::Portfolio, Some(0.992), None),
    (Policy::Cpop, None, Some(1.008)),
    (Policy::Mct, None, Some(1.03)),
    (Policy::MaxMin, None, Some(1.04)),
    (Policy::MinMin, None, Some(1.05)),
    (Policy::Etf, None, Some(1.10)),
    (Policy::Olb, None, Some(1.11)),
];

/// The experiment.
#[derive(Debug)]
pub(super) struct Workflows;

/// What was found for one instance on one network, by policy.
struct Row {
    name: &'static str,
    tasks: usize,
    published_s: f64,
    runs: Vec<Run>,
}

impl Row {
    fn makespan_s(&self, policy: usize) -> f64 {
        self.runs[policy].plan.latency().get() / 1e3
    }

    /// A policy's makespan relative to another's.
    fn ratio(&self, policy: usize, to: usize) -> f64 {
        self.makespan_s(policy) / self.makespan_s(to)
    }

    fn bound_ratio(&self) -> f64 {
        self.runs[0].lower_bound.get() / 1e3 / self.makespan_s(0)
    }
}

impl Experiment for Workflows {
    fn name(&self) -> &'static str {
        "workflows"
    }

    fn title(&self) -> &'static str {
        "recorded workflows on two networks, by every list scheduler"
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let count = match context.effort {
            Effort::Quick => QUICK,
            Effort::Full => REFERENCE.len(),
        };
        let instances = &REFERENCE[..count];
        let edge5 = place_all(context, "edge5", &NetworkModel::edge5(), instances, |i| {
            i.edge5_s
        })?;
        let edge3u = place_all(context, "edge3u", &NetworkModel::edge3u(), instances, |i| {
            i.edge3u_s
        })?;
        let networks = [("edge5", edge5), ("edge3u", edge3u)];
        let mut outcome = Outcome {
            conditions: format!(
                "{count} recorded workflows of 10 to {} tasks; edge5: five clusters of different speeds and links, edge3u: three \
                 with the same links; one slot each, no distance, resources unlimited. Makespans do not depend on the machine.",
                networks[0].1.iter().map(|row| row.tasks).max().unwrap_or(0)
            ),
            ..Outcome::default()
        };
        outcome.tables.push(heft(&networks));
        for (name, rows) in &networks {
            outcome.tables.push(relative(name, rows));
        }
        outcome.tables.push(means(&networks));
        outcome.gates = gates(&networks);
        outcome.notes.push(
            "The published ratios to HEFT were measured on other pairs of workflow and network; they show the size to expect, not \
             the figure."
                .to_owned(),
        );
        outcome.plots = networks
            .iter()
            .map(|(name, rows)| plot(name, rows))
            .collect();
        Ok(outcome)
    }
}

type Networks = [(&'static str, Vec<Row>); 2];

fn place_all(
    context: &Context<'_>,
    what: &str,
    network: &NetworkModel,
    instances: &'static [Reference],
    published: impl Fn(&Reference) -> f64 + Sync,
) -> Result<Vec<Row>, Error> {
    let part = context
        .progress
        .begin(&format!("workflows on {what}"), instances.len() as u64);
    let place = |instance: &'static Reference| {
        let path = context.data(&format!("workflows/{}.json.gz", instance.name))?;
        let workflow = Workflow::read(&path)?;
        let policies = POLICIES.iter().map(|(policy, ..)| *policy);
        let runs = policies.map(|policy| run(&workflow, network, None, policy, Budget::default()));
        let row = Row {
            name: instance.name,
            tasks: workflow.dag().given(),
            published_s: published(instance),
            runs: runs.collect::<Result<_, _>>()?,
        };
        part.advance(1);
        Ok(row)
    };
    instances.par_iter().map(place).collect()
}

/// Where a policy stands in the list.
fn at(policy: Policy) -> usize {
    let found = POLICIES.iter().position(|(listed, ..)| *listed == policy);
    found.expect("the policy is listed")
}

/// HEFT's makespan, as a difference to the published one in per cent.
fn difference(row: &Row) -> f64 {
    (row.makespan_s(at(Policy::Heft)) / row.published_s - 1.0) * 100.0
}

fn heft(networks: &Networks) -> Table {
    let mut table = Table::new(
        "HEFT with insertion",
        &[
            "workflow",
            "tasks",
            "edge5_s",
            "published_s",
            "difference_%",
            "edge3u_s",
            "published_s",
            "difference_%",
        ],
    );
    for (first, second) in networks[0].1.iter().zip(&networks[1].1) {
        let mut cells = vec![Cell::from(first.name), Cell::from(first.tasks)];
        for row in [first, second] {
            cells.push(Cell::Number(row.makespan_s(at(Policy::Heft)), 2));
            cells.push(Cell::Number(row.published_s, 2));
            cells.push(Cell::Number(difference(row), 3));
        }
        table.row(cells);
    }
    table
}

fn relative(network: &str, rows: &[Row]) -> Table {
    let mut columns = vec!["workflow", "heu-orche_s"];
    columns.extend(POLICIES[1..].iter().map(|(policy, ..)| policy.name()));
    columns.push("bound");
    let title = format!("Makespan relative to Heu-Orche on {network}");
    let mut table = Table::new(title, &columns);
    for row in rows {
        let mut cells = vec![Cell::from(row.name), Cell::Number(row.makespan_s(0), 2)];
        cells.extend((1..POLICIES.len()).map(|policy| Cell::Number(row.ratio(policy, 0), 3)));
        cells.push(Cell::Number(row.bound_ratio(), 3));
        table.row(cells);
    }
    table
}

fn geometric(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| {
        (sum + ratio.ln(), count + 1.0)
    });
    if count == 0.0 {
        f64::NAN
    } else {
        f64::exp(sum / count)
    }
}

fn means(networks: &Networks) -> Table {
    let mut table = Table::new(
        "Geometric means over the workflows",
        &[
            "policy",
            "edge5 / Heu-Orche",
            "published",
            "edge3u / Heu-Orche",
            "edge5 / HEFT",
            "edge3u / HEFT",
            "published, other pairs",
        ],
    );
    let number = |number: Option<f64>| number.map_or(Cell::Empty, |number| Cell::Number(number, 3));
    let heft = at(Policy::Heft);
    for (index, (policy, to_heu_orche, to_heft)) in POLICIES.iter().enumerate() {
        let mean = |network: usize, to| {
            let ratios = networks[network].1.iter().map(|row| row.ratio(index, to));
            Cell::Number(geometric(ratios), 3)
        };
        table.row([
            Cell::from(policy.name()),
            mean(0, 0),
            number(*to_heu_orche),
            mean(1, 0),
            mean(0, heft),
            mean(1, heft),
            number(*to_heft),
        ]);
    }
    let bound = |network: usize| {
        let ratios = networks[network].1.iter().map(Row::bound_ratio);
        Cell::Number(geometric(ratios), 3)
    };
    table.row([
        Cell::from("lower bound"),
        bound(0),
        Cell::Number(0.90, 2),
        bound(1),
    ]);
    table
}

fn gates(networks: &Networks) -> Vec<Gate> {
    let mut gates = Vec::new();
    for (name, rows) in networks {
        let largest = rows
            .iter()
            .map(|row| difference(row).abs())
            .fold(0.0, f64::max);
        let what = format!("{name}: HEFT's largest difference to the published makespans, %");
        gates.push(Gate::new(what, largest, Bound::AtMost(1.0)));
    }
    for (index, (policy, published, _)) in POLICIES.iter().enumerate().skip(1) {
        if let Some(of) = *published {
            let mean = geometric(networks[0].1.iter().map(|row| row.ratio(index, 0)));
            let what = format!("edge5: {policy} / Heu-Orche, geometric mean");
            gates.push(Gate::new(what, mean, Bound::Within { of, by: 0.01 }));
        }
    }
    gates
}

fn plot(network: &str, rows: &[Row]) -> Plot {
    let series = |(index, (policy, ..)): (usize, &(Policy, Option<f64>, Option<f64>))| Series {
        name: policy.name().to_owned(),
        points: rows
            .iter()
            .map(|row| (row.tasks as f64, row.ratio(index, 0)))
            .collect(),
        shape: Shape::Points,
    };
    Plot {
        name: format!("workflows-{network}"),
        title: format!("Recorded workflows on {network}"),
        x: Axis::log("tasks"),
        y: Axis::log("makespan / Heu-Orche's"),
        series: POLICIES.iter().enumerate().skip(1).map(series).collect(),
    }
}
