//! How far from the best the heuristics are: small jobs beside the proven optimum, larger ones beside Heu-Orche and a lower bound.

mod large;
mod recorded;
mod small;

use fdn_core::Millis;
use fdn_scheduling::checker::check;
use fdn_scheduling::place::{Detail, Placer, Plan, Problem};

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::generate::Sites;
use crate::report::Outcome;

/// Jobs of each setting.
const SEEDS: u64 = 30;
const QUICK_SEEDS: u64 = 2;

/// Steps of a refinement.
const STEPS: u64 = 3_000;

/// How dear transfers are beside work.
const CCRS: [f64; 2] = [1.0, 5.0];

/// The experiment.
#[derive(Debug)]
pub(super) struct Optimum;

impl Experiment for Optimum {
    fn name(&self) -> &'static str {
        "optimum"
    }

    fn title(&self) -> &'static str {
        "heuristics and refinement beside the proven optimum, and beside Heu-Orche on larger jobs"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let small = small::measure(context)?;
        let large = large::measure(context)?;
        let mut outcome = Outcome {
            conditions: format!(
                "Random jobs of the experiments' family on three clusters with speeds of 1 to 5, {} of each setting. Up to 12 tasks: \
                 one slot each; larger: four. The user is as near to all. Refinement: {STEPS} steps. The optimum is proven by \
                 branch and bound. Nothing here depends on the machine.",
                seeds(context)
            ),
            ..Outcome::default()
        };
        outcome.tables.push(small::table(&small));
        outcome.tables.push(large::table(&large));
        outcome.gates = small::gates(&small);
        outcome.gates.extend(large::gates(&large));
        outcome.plots = vec![small::plot(&small), large::way(context)?];
        if context.data.is_some() {
            let rows = recorded::measure(context)?;
            outcome.tables.push(recorded::table(&rows));
            outcome.gates.extend(recorded::gates(&rows));
        } else {
            let note = "Recorded workflows are left out: there are no recorded traces.";
            outcome.notes.push(note.to_owned());
        }
        Ok(outcome)
    }
}

fn seeds(context: &Context<'_>) -> u64 {
    match context.effort {
        Effort::Quick => QUICK_SEEDS,
        Effort::Full => SEEDS,
    }
}

/// Clusters that are all at the user's side.
fn near(slots: usize) -> Sites {
    Sites {
        slots,
        distance: Millis::ZERO,
        ..Sites::default()
    }
}

/// A plan's latency in ms, if it keeps every rule.
fn checked(problem: &Problem<'_>, plan: &Plan) -> Result<f64, Error> {
    match check(problem, plan) {
        Ok(()) => Ok(plan.latency().get()),
        Err(broken) => Err(Error::Broken(broken[0].to_string())),
    }
}

fn latency(problem: &Problem<'_>, placer: &mut dyn Placer) -> Result<f64, Error> {
    let planned = placer
        .place(problem, Detail::Nothing)
        .map_err(|refused| Error::Infeasible(refused.to_string()))?;
    checked(problem, &planned.plan)
}
