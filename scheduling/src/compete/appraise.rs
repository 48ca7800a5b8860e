//! What calls take if client groups are placed so, by the very model that plans are made by, whoever placed them.
//!
//! What is compared are ways to place the same demand, of which only one was taken. So the clusters count as they are without what runs and waits
//! there at the moment, which that one has brought about: their nodes are empty, and waits are those of the steady state that the placement makes.

use fdn_core::Millis;

use super::{Competition, Load, Offer, Pass};
use crate::Error;
use crate::place::{Cluster, ClusterIndex, Memory, Plan, Problem, Slots};

/// What a placement comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Appraisal {
    /// What a call of each offer takes, from the client and back; nothing where its clusters cannot serve it.
    pub latencies: Vec<Option<Millis>>,
    /// What is asked of each cluster.
    pub loads: Vec<Load>,
    /// What is needed of each cluster's memory.
    pub needed: Vec<Memory>,
}

/// What becomes of `offers` if the given tasks of each run in these clusters. Offers that are split have their parts here, each with its rate. Memory
/// is counted and keeps nobody out.
///
/// # Errors
/// When an offer's parts do not fit the clusters.
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

/// A cluster whose nodes hold and do nothing.
fn emptied(cluster: &Cluster) -> Cluster {
    Cluster {
        slots: Slots::idle(cluster.slots.len()),
        free: cluster.capacity,
        largest: cluster.roomiest,
        ..cluster.clone()
    }
}

impl Competition<'_> {
    /// What a call takes of one that is there, beside all others.
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
