//! Evaluates a given placement of client groups with the very model that plans are made by, whoever made the placement.
//!
//! It compares alternative placements of the same demand, of which only one was put into effect. The present load of the clusters is a
//! consequence of that one and is therefore ignored: nodes count as empty, and waits are those of the steady state that the evaluated
//! placement would cause.

use fdn_core::Millis;

use super::{Competition, GroupDemand, Load, Pass};
use crate::Error;
use crate::place::{Cluster, ClusterIndex, Memory, Plan, Problem, Slots};

/// The evaluation of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Appraisal {
    /// By demand: the latency of a call from the client and back; `None` where its clusters cannot serve it.
    pub latencies: Vec<Option<Millis>>,
    /// By cluster: the offered load.
    pub loads: Vec<Load>,
    /// By cluster: the memory needed for the instances.
    pub needed: Vec<Memory>,
}

/// Evaluates `demands` with the given tasks of each on these clusters. A split demand appears once per part, each with that part's rate.
/// Memory is counted but excludes nobody.
///
/// # Errors
/// When a demand's tables do not match its tasks or the clusters.
pub fn appraise(
    pass: &Pass<'_>,
    demands: &[(GroupDemand<'_>, &[ClusterIndex])],
) -> Result<Appraisal, Error> {
    let clusters: Vec<Cluster> = pass.clusters.iter().map(emptied).collect();
    let mut competition = Competition::new(&clusters, pass.network, pass.terms);
    let longest = demands.iter().map(|(demand, _)| demand.dag.len()).max();
    competition.limit_slots(longest.unwrap_or(0));
    for (demand, places) in demands {
        competition.add_load(demand, places);
    }
    let loads = competition.loads.clone();
    let needed = competition.all.needed().to_vec();
    let latencies = demands
        .iter()
        .map(|(demand, places)| competition.appraise(demand, places))
        .collect::<Result<_, Error>>()?;
    Ok(Appraisal {
        latencies,
        loads,
        needed,
    })
}

/// The cluster with nothing running or reserved on its nodes.
fn emptied(cluster: &Cluster) -> Cluster {
    Cluster {
        slots: Slots::idle(cluster.slots.len()),
        free: cluster.capacity,
        largest: cluster.roomiest,
        ..cluster.clone()
    }
}

impl Competition<'_> {
    /// The latency of a call of a demand that is part of the load, with all others present; `None` if it cannot be served.
    fn appraise(
        &mut self,
        demand: &GroupDemand<'_>,
        places: &[ClusterIndex],
    ) -> Result<Option<Millis>, Error> {
        if places.len() < demand.dag.given() {
            return Ok(None);
        }
        self.each_task(demand, places, Load::take);
        self.fill_costs(demand);
        self.each_task(demand, places, Load::add);
        let problem = Problem::new(demand.dag, &self.clusters, self.network, demand.distance)?
            .with_costs(&self.times)?
            .with_options(self.terms.options);
        let problem = match demand.constraints {
            Some(constraints) => problem.with_constraints(constraints)?,
            None => problem,
        };
        let mut plan = Plan::default();
        let assigned = |task: crate::dag::TaskIndex| places.get(task.get()).copied();
        let served = self.placer.evaluate_into(&problem, assigned, &mut plan);
        Ok(served
            .is_ok()
            .then(|| plan.latency())
            .filter(|latency| latency.is_finite()))
    }
}
