//! One placement, checked and timed.

use std::time::{Duration, Instant};

use fdn_core::Millis;
use fdn_scheduling::checker::check;
use fdn_scheduling::place::{Detail, Options, Plan, Problem, lower_bound};
use fdn_scheduling::policy::{Budget, Policy};

use super::{NetworkModel, Workflow};
use crate::Error;

/// A plan, and what is said about it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan.
    pub plan: Plan,
    /// No plan has a lower latency.
    pub lower_bound: Millis,
    /// How long the policy took.
    pub algorithm: Duration,
}

/// Places a workflow for a client; without one, no cluster is far.
///
/// # Errors
/// When there is no such client, or some task fits nowhere.
pub fn run(
    workflow: &Workflow,
    network: &NetworkModel,
    client: Option<&str>,
    policy: Policy,
    budget: Budget,
) -> Result<Run, Error> {
    let distance = network.distance(client)?;
    let problem = Problem::new(
        workflow.dag(),
        network.clusters(),
        network.network(),
        &distance,
    )
    .map_err(|error| Error::Broken(error.to_string()))?
    .with_options(Options::default());
    let mut placer = policy.placer(budget);
    let begin = Instant::now();
    let planned = placer.place(&problem, Detail::Nothing);
    let algorithm = begin.elapsed();
    let plan = planned
        .map_err(|refused| Error::Infeasible(refused.to_string()))?
        .plan;
    check(&problem, &plan).map_err(|found| {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        Error::Broken(format!("{policy}: {}", found.join("; ")))
    })?;
    Ok(Run {
        lower_bound: lower_bound(&problem),
        plan,
        algorithm,
    })
}
