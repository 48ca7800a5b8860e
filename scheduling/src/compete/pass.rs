//! A pass of the planner as a function of what it reads, so that it can be made again elsewhere, to the last bit ([`crate::record`]).

use super::{Competition, Moves, Offer, Outcome, Terms};
use crate::Error;
use crate::place::{Cluster, Network, Problem};

/// All that decides where client groups go. There is no randomness, and time is in it only by what it has changed: how full the bucket of moves is,
/// who moved lately, how fast each function was.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The clusters.
    pub clusters: &'a [Cluster],
    /// What joins them.
    pub network: &'a Network,
    /// By what is decided.
    pub terms: Terms,
    /// Groups that stay where they were and have no turn.
    pub settled: &'a [Offer<'a>],
    /// Groups that have their turn.
    pub offers: &'a [Offer<'a>],
}

impl<'a> Pass<'a> {
    /// Makes it. `decided` hears of each offer with the problem as it was decided, in the order of the turns; the competition as it ended says
    /// what is asked of each cluster.
    ///
    /// # Errors
    /// When an offer's parts do not fit the clusters.
    pub fn run(
        &self,
        moves: &mut Moves,
        decided: impl FnMut(usize, &Problem<'_>, &Outcome),
    ) -> Result<Competition<'a>, Error> {
        let mut competition = Competition::new(self.clusters, self.network, self.terms);
        for offer in self.settled {
            competition.settle(offer, offer.before.unwrap_or_default());
        }
        competition.run(self.offers, moves, decided)?;
        Ok(competition)
    }
}
