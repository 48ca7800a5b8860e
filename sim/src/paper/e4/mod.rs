//! Parallel pre-scheduling with one committer: conflicts, throughput, placement quality.

mod filling;
mod further;

use fdn_core::Millis;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::optimistic::{Setup, Start, Way, run, run_serially};
use crate::report::{Cell, Outcome, Table};
use filling::Measured;
use further::{further, steady};

/// The experiment.
#[derive(Debug)]
pub(super) struct E4;

/// The way that is advised, and for which the gates are.
const ADVISED: Way = Way::SampleRandom;

impl Experiment for E4 {
    fn name(&self) -> &'static str {
        "e4"
    }

    fn title(&self) -> &'static str {
        "Parallel pre-scheduling with one committer: conflicts, throughput, spread"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let measured = Measured::new(context)?;
        let mut outcome = Outcome {
            conditions: conditions(context.effort, &measured),
            tables: vec![
                measured.conflicts(),
                measured.throughput(),
                measured.quality(),
                cost_model()?,
            ],
            gates: measured.gates(),
            notes: notes(),
            plots: measured.plots(),
        };
        outcome.tables.push(steady(context)?);
        outcome.tables.push(further(context)?);
        Ok(outcome)
    }
}

fn conditions(effort: Effort, measured: &Measured) -> String {
    let setup = base(effort);
    format!(
        "{} nodes of {} slots, filled from empty to {:.0} %; containers of 1 to {} slots; least-requested; lists of {}; \
         t = {} ms, r = {} us + {} us per changed entry; means of {} seeds. Spread: standard deviation of used slots over nodes.",
        setup.nodes,
        setup.slots,
        setup.utilization * 100.0,
        setup.demand_max,
        setup.choice.length,
        setup.scoring.get(),
        setup.list_cost.get() * 1e3,
        setup.changed_cost.get() * 1e3,
        measured.seeds,
    )
}

fn notes() -> Vec<String> {
    vec![
        "The published runs do not say how large containers are nor how long they stay. Always-best = 1.00 at every K means \
         that nothing ends while the nodes fill; containers of 1 to 10 % of a node give the published shares. Their sample of \
         50 breaks ties by node number."
            .to_owned(),
        "Gates without a published figure are for a sample of 50 with random ties: fewest conflicts and least spread. Scoring \
         all nodes with random ties keeps the conflict gate but not the one on the spread."
            .to_owned(),
        "Further: beyond t/r lists in flight the changed entries limit the committer. A small sample has fewer of them, and at \
         some number in flight no more is gained; hands dealt out have fewer still and go on scaling, for more spread; parts \
         of their own have none, and by far the most spread. Under a steady load a sample misses the few best nodes, with one \
         pre-scheduler already; looking at all nodes costs more spread from K = 16 on."
            .to_owned(),
        "t and r are the model's. What this project's own committer takes is measured by `cargo bench -p fdn-scheduling --bench \
         commit`."
            .to_owned(),
    ]
}

/// What all runs have in common.
fn base(effort: Effort) -> Setup {
    let setup = Setup::default();
    match effort {
        Effort::Quick => Setup {
            utilization: 0.2,
            ..setup
        },
        Effort::Full => setup,
    }
}

/// A way of choosing with so many pre-schedulers.
fn setup(effort: Effort, way: Way, pre_schedulers: u32, back_pressure: bool) -> Setup {
    let setup = Setup {
        pre_schedulers,
        ..base(effort)
    };
    let setup = Setup {
        choice: way.choice(setup.choice.length),
        ..setup
    };
    if back_pressure {
        setup.with_back_pressure()
    } else {
        setup
    }
}

/// 100 containers of 200 ms each, with as many pre-schedulers.
fn cost_model() -> Result<Table, Error> {
    let mut table = Table::new(
        "Cost model: 100 containers, t = 200 ms",
        &["scheduler", "r_ms", "measured_ms", "published_ms"],
    );
    let setup = |r: f64| Setup {
        pre_schedulers: 100,
        demand_max: 1,
        utilization: 0.002,
        scoring: Millis::new(200.0),
        list_cost: Millis::new(r),
        changed_cost: Millis::ZERO,
        start: Start::Together,
        ..Setup::default()
    };
    let serial = Setup {
        pre_schedulers: 1,
        ..setup(1.0)
    };
    table.row([
        "serial".into(),
        Cell::Empty,
        Cell::Number(run_serially(&serial)?.time_ms, 0),
        Cell::Number(20_000.0, 0),
    ]);
    for (r, published) in [(50.0, 5200.0), (5.0, 700.0)] {
        table.row([
            "100 pre-schedulers".into(),
            Cell::Number(r, 0),
            Cell::Number(run(&setup(r))?.time_ms, 0),
            Cell::Number(published, 0),
        ]);
    }
    Ok(table)
}
