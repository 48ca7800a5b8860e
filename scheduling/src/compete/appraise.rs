//! Evaluates a given placement of client groups with the very model that plans are made by, whoever made the placement.
//!
//! It compares alternative placements of the same demand, of which only one was put into effect. The present load of the clusters is a
//! consequence of that one and is therefore ignored: nodes count as empty, and waits are those of the steady state that the evaluated
//! placement would cause.

use fdn_core::Millis;

use super::{Competition, Load, Offer, Pass};
use crate::Error;
use crate::place::{Cluster, ClusterIndex, Memory, Plan, Problem, Slots};

/// The evaluation of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Appraisal {
    /// By offer: the latency of a call from the client and back; `None` where its clusters cannot serve it.
    pub latencies: Vec<Option<Millis>>,
    /// By cluster: the offered load.
    pub loads: Vec<Load>,
    /// By cluster: the memory needed for the instances.
    pub needed: Vec<Memory>,
}

/// Evaluates `offers` with the given tasks of each on these clusters. A split offer appears once per part, each with that part's rate.
/// Memory is counted but excludes nobody.
///
/// # Errors
/// When an offer's tables do not match its tasks or the clusters.
pub fn appraise(
    pass: &Pass<'_>,
    offers: &[(Offer<'_>, &[ClusterIndex])],
) -> Result<Appraisal, Error> {
    let clusters: Vec<Cluster> = pass.clusters.iter().map(emptied).collect();
    let mut competition = Competition::new(&clusters, pass.network, pass.terms);
    let longest = offers.iter().map(|(offer, _)| offer.dag.len()).max();
    competition.shorten(longest.unwrap_or(0));
    for (offer, places) in offers {
        competition.come(offer, places);
    }
    let loads = competition.loads.clone();
    let needed = competition.all.needed().to_vec();
    let latencies = offers
        .iter()
        .map(|(offer, places)| competition.appraise(offer, places))
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
    /// The latency of a call of an offer that is part of the load, with all others present; `None` if it cannot be served.
    fn appraise(
        &mut self,
        offer: &Offer<'_>,
        places: &[ClusterIndex],
    ) -> Result<Option<Millis>, Error> {
        if places.len() < offer.dag.given() {
            return Ok(None);
        }
        self.each_task(offer, places, Load::take);
        self.fill_costs(offer);
        self.each_task(offer, places, Load::add);
        let problem = Problem::new(offer.dag, &self.clusters, self.network, offer.distance)?
            .with_costs(&self.times)?
            .with_options(self.terms.options);
        let problem = match offer.bars {
            Some(bars) => problem.with_bars(bars)?,
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
