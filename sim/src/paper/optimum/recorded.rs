//! Recorded workflows beside Heu-Orche and a lower bound.

use fdn_core::Millis;
use fdn_scheduling::policy::{Budget, Policy};
use rayon::prelude::*;

use super::super::{Context, Effort};
use crate::Error;
use crate::place::{NetworkModel, REFERENCE, Reference, Workflow, run};
use crate::report::{Bound, Cell, Gate, Table, mean};

/// One recorded workflow on edge5, relative to Heu-Orche.
pub(super) struct Recorded {
    name: &'static str,
    tasks: usize,
    refined: f64,
    bound: f64,
}

pub(super) fn measure(context: &Context<'_>) -> Result<Vec<Recorded>, Error> {
    let instances = match context.effort {
        Effort::Quick => &REFERENCE[..4],
        Effort::Full => &REFERENCE[..],
    };
    let part = context
        .progress
        .begin("optimum: workflows", instances.len() as u64);
    let network = NetworkModel::edge5();
    let place = |instance: &'static Reference| {
        let path = context.data(&format!("workflows/{}.json.gz", instance.name))?;
        let workflow = Workflow::read(&path)?;
        let place = |policy| run(&workflow, &network, None, policy, Budget::default());
        let (base, refined) = (place(Policy::HeuOrche)?, place(Policy::Best)?);
        part.advance(1);
        let relative = |time: Millis| time.get() / base.plan.latency().get();
        Ok(Recorded {
            name: instance.name,
            tasks: workflow.dag().given(),
            refined: relative(refined.plan.latency()),
            bound: relative(refined.lower_bound),
        })
    };
    instances.par_iter().map(place).collect()
}

fn geometric(rows: &[Recorded], value: impl Fn(&Recorded) -> f64) -> f64 {
    let logarithms: Vec<f64> = rows.iter().map(|row| value(row).ln()).collect();
    mean(&logarithms).exp()
}

pub(super) fn table(rows: &[Recorded]) -> Table {
    let mut table = Table::new(
        "Recorded workflows on edge5: makespan relative to Heu-Orche",
        &["workflow", "tasks", "refined", "lower_bound"],
    );
    for row in rows {
        table.row([
            Cell::from(row.name),
            Cell::from(row.tasks),
            Cell::Number(row.refined, 3),
            Cell::Number(row.bound, 3),
        ]);
    }
    table.row([
        Cell::from("geometric mean"),
        Cell::Empty,
        Cell::Number(geometric(rows, |row| row.refined), 3),
        Cell::Number(geometric(rows, |row| row.bound), 3),
    ]);
    table.row([
        Cell::from("published"),
        Cell::Empty,
        Cell::Number(0.988, 3),
        Cell::Number(0.90, 3),
    ]);
    table
}

pub(super) fn gates(rows: &[Recorded]) -> Vec<Gate> {
    vec![
        Gate::new(
            "edge5: refined / Heu-Orche, geometric mean",
            geometric(rows, |row| row.refined),
            Bound::Within {
                of: 0.988,
                by: 0.01,
            },
        ),
        Gate::new(
            "edge5: lower bound / Heu-Orche, geometric mean",
            geometric(rows, |row| row.bound),
            Bound::Within { of: 0.90, by: 0.05 },
        ),
    ]
}
