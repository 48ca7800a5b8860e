//! Placement of a job's tasks on clusters.
//!
//! A [`Problem`] holds the job, the clusters it may use and the user who waits for the answer. A [`Placer`] turns it into [`Planned`], an
//! immutable [`Plan`] with a [`Report`] that rates every cluster for every task and says why it lost, or into [`Infeasible`], which names
//! the task that fits nowhere and what excludes it from each cluster. A job is never placed in part.
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
//! [`Policy`](crate::policy::Policy) selects them by name. [`lower_bound`] gives a latency that no plan can beat.
//!
//! Plans are pure data. [`Plan::apply`] charges the clusters with a plan before the next job is placed; [`Plan::release`] returns the
//! resources when the job has ended.
//!
//! # Which clusters take part
//! A cluster that cannot be used at all is left out of the whole computation, the mean costs included, so that adding one changes
//! nothing: one that is down, draining or without slots, that the client cannot reach, or that is more than a million times slower than
//! the fastest ([`SLOWEST_RATIO`]; as a speed tends to zero, its mean costs would dominate all others).

mod best;
mod bound;
mod calendar;
mod constraints;
mod engine;
mod exact;
mod explain;
mod heu_orche;
mod infeasible;
mod list;
mod memory_limits;
mod model;
mod network;
mod plan;
mod portfolio;
mod problem;
mod rank;
mod replay;
mod single;
mod slots;
mod timeline;

pub use best::Best;
pub use bound::lower_bound;
pub use constraints::Constraints;
pub use exact::{Exact, ExactError, Optimum};
pub use explain::{CandidateReport, Report, TaskReport, Terms, Verdict};
pub use heu_orche::{HeuOrche, Rejection};
pub use infeasible::{Exclusion, Infeasible};
pub use list::{Cpop, Heft, Lookahead, Mct, Olb, Peft, PeftOrder, Ready, ReadyRule};
pub use memory_limits::{Memory, MemoryLimits};
pub use model::{Availability, Cluster, ClusterIndex, Speed};
pub use network::{Bandwidth, Link, Network};
pub use plan::{Placement, Plan, Planned, Run};
pub use portfolio::Portfolio;
pub use problem::{Costs, Hold, Options, Problem, ProblemError, SLOWEST_RATIO, Score};
pub(crate) use rank::fill_upward;
pub use rank::scores;
pub use slots::Slots;

/// How much a placer reports about its choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// No report: the fast path, without an allocation per candidate.
    Nothing,
    /// All candidates of all tasks.
    #[default]
    Full,
}

/// A way to place jobs. A placer is a function of the problem alone: the same problem gives the same plan, and what is kept between calls
/// is buffers only.
pub trait Placer {
    /// The name by which users and experiments select it.
    fn name(&self) -> &'static str;

    /// Places all tasks of a job.
    ///
    /// # Errors
    /// The first task that no cluster can take, with what keeps it out of each.
    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible>;

    /// As [`Placer::place`] without a report, into the buffers of a plan that is no longer needed. Placers that are used for many
    /// jobs allocate nothing here once their buffers have grown.
    ///
    /// # Errors
    /// As [`Placer::place`]; `plan` is then unchanged.
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
