//! Placement of a job's tasks on clusters.
//!
//! A [`Problem`] is what is to be placed, where it may go and who waits for it; a [`Placer`] turns it into [`Planned`], an
//! immutable [`Plan`] with a [`Report`] that says for every task what each cluster would have meant and why it lost, or into
//! [`Infeasible`], which names the task that fits nowhere and what keeps it out of each cluster. A job is never placed partly.
//!
//! | placer | order | choice | gaps |
//! | --- | --- | --- | --- |
//! | [`HeuOrche`] | upward rank | earliest finish | no |
//! | [`Heft`] | upward rank | earliest finish | yes |
//! | [`Peft`] | optimistic costs, or upward rank | earliest finish and optimistic costs | yes |
//! | [`Lookahead`] | upward rank | earliest finish of the children | yes |
//! | [`Cpop`] | upward and downward rank | the critical path's cluster, or earliest finish | yes |
//! | [`Ready`] | min-min, max-min, earliest start | with the order | no |
//! | [`Mct`], [`Olb`] | as they come | earliest finish, first free slot | no |
//! | [`Portfolio`] | the best of [`Heft`], both forms of [`Peft`] and [`Lookahead`] | | yes |
//! | [`Best`] | simulated annealing from the better of [`Portfolio`] and [`HeuOrche`] | | yes |
//! | [`Exact`] | branch and bound: proven, for a few tasks | | yes |
//!
//! [`Policy`](crate::policy::Policy) has them by name. [`lower_bound`] says what no plan can beat.
//!
//! Plans are pure data. What a plan occupies is carried over to the next job by [`Plan::apply`], and given back by
//! [`Plan::release`] when the job has ended.
//!
//! # Which clusters count
//! A cluster that cannot be used at all is left out of everything, the mean costs included, so that adding one changes
//! nothing: one that is down, draining or without slots, that the client cannot reach, or that is more than a million times
//! slower than the fastest ([`SLOWEST_RATIO`]; as a speed tends to zero, its mean costs drown all others).

mod bars;
mod best;
mod bound;
mod calendar;
mod engine;
mod exact;
mod explain;
mod heu_orche;
mod infeasible;
mod list;
mod model;
mod network;
mod plan;
mod portfolio;
mod problem;
mod rank;
mod replay;
mod rooms;
mod slots;
mod timeline;

pub use bars::Bars;
pub use best::Best;
pub use bound::lower_bound;
pub use exact::{Exact, ExactError, Optimum};
pub use explain::{CandidateReport, Report, TaskReport, Terms, Verdict};
pub use heu_orche::{HeuOrche, Misfit};
pub use infeasible::{Exclusion, Infeasible};
pub use list::{Cpop, Heft, Lookahead, Mct, Olb, Peft, PeftOrder, Ready, ReadyRule};
pub use model::{Availability, Cluster, ClusterIndex, Speed};
pub use network::{Bandwidth, Link, Network};
pub use plan::{Placement, Plan, Planned, Run};
pub use portfolio::Portfolio;
pub use problem::{Costs, Hold, Options, Problem, ProblemError, SLOWEST_RATIO, Score};
pub(crate) use rank::fill_upward;
pub use rank::scores;
pub use rooms::{Memory, Rooms};
pub use slots::Slots;

/// How much a placer says about its choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing: the fast way, no allocation per candidate.
    Nothing,
    /// Every candidate of every task.
    #[default]
    Full,
}

/// A way to place jobs. The same problem gives the same plan, whatever was placed before: a placer keeps buffers, not memory.
pub trait Placer {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// Places all tasks of a job.
    ///
    /// # Errors
    /// The first task that no cluster can take, with what keeps it out of each.
    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible>;

    /// The same without a report, into the memory of a plan that is no longer needed. Placers that serve job after job allocate
    /// nothing for it once their buffers are warm.
    ///
    /// # Errors
    /// As [`Placer::place`]; the plan is then as it was.
    fn place_into(&mut self, problem: &Problem<'_>, plan: &mut Plan) -> Result<(), Infeasible> {
        *plan = self.place(problem, Detail::Nothing)?.plan;
        Ok(())
    }
}

/// Places a job with [`HeuOrche`] and reports every candidate.
///
/// # Errors
/// The first task that no cluster can take, with what keeps it out of each.
pub fn heu_orche(problem: &Problem<'_>) -> Result<Planned, Infeasible> {
    HeuOrche::default().place(problem, Detail::Full)
}
