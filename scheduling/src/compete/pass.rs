//! A planning pass as a function of its inputs, so that it can be replayed elsewhere, exact to the last bit ([`crate::record`]).

use super::{Competition, GroupDemand, Moves, Outcome, Terms};
use crate::Error;
use crate::place::{Cluster, Network, Problem};

/// All inputs of the placement of client groups, beside the state of [`Moves`]. There is no randomness, and time enters only through its
/// effects: the tokens of the bucket, who moved recently, how fast each function was.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The clusters, in the order of [`crate::place::ClusterIndex`].
    pub clusters: &'a [Cluster],
    /// The links between the clusters.
    pub network: &'a Network,
    /// The parameters of the decision.
    pub terms: Terms,
    /// Groups that stay where they were and have no turn; their load counts.
    pub settled: &'a [GroupDemand<'a>],
    /// Groups that are decided about.
    pub demands: &'a [GroupDemand<'a>],
}

impl<'a> Pass<'a> {
    /// Runs the pass. `decided` is called in the order of the turns, with the demand's position, the problem that was solved and the
    /// outcome; the returned competition holds the resulting load of each cluster.
    ///
    /// # Errors
    /// When a demand's tables do not match its tasks or the clusters.
    pub fn run(
        &self,
        moves: &mut Moves,
        decided: impl FnMut(usize, &Problem<'_>, &Outcome),
    ) -> Result<Competition<'a>, Error> {
        let mut competition = Competition::new(self.clusters, self.network, self.terms);
        for demand in self.settled {
            competition.settle(demand, demand.before.unwrap_or_default());
        }
        competition.run(self.demands, moves, decided)?;
        Ok(competition)
    }
}
