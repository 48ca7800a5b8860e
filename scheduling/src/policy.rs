//! The ways to place a job, by name: those of [`crate::place`], which plan the whole job, and those of [`crate::online`], which decide
//! about ready tasks only.

use std::fmt;
use std::str::FromStr;

use crate::online::EventDriven;
use crate::place::{
    Best, Cpop, Detail, Exact, Heft, HeuOrche, Infeasible, Lookahead, Mct, Olb, Peft, PeftOrder,
    Placer, Planned, Portfolio, Problem, Ready, ReadyRule, Score,
};

/// A way to place a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// [`HeuOrche`]: upward rank, earliest finish, appending.
    HeuOrche,
    /// [`HeuOrche`] with [`Score::Inverse`].
    HeuOrcheInverse,
    /// [`Heft`]: upward rank, earliest finish, with insertion.
    Heft,
    /// [`Peft`]: optimistic cost table.
    Peft,
    /// [`Lookahead`]: HEFT that tries out where the children would go.
    Lookahead,
    /// [`Portfolio`]: the best plan of several list schedulers.
    Portfolio,
    /// [`Cpop`]: the critical path on one cluster.
    Cpop,
    /// [`ReadyRule::MinMin`].
    MinMin,
    /// [`ReadyRule::MaxMin`].
    MaxMin,
    /// [`Mct`]: minimum completion time.
    Mct,
    /// [`ReadyRule::EarliestStart`]: earliest task first.
    Etf,
    /// [`Olb`]: opportunistic load balancing.
    Olb,
    /// [`EventDriven::fcfs`]: first come, first served; clusters in turn.
    Fcfs,
    /// [`EventDriven::priority`]: the largest task first, on the cluster with the least queued work.
    Priority,
    /// [`EventDriven::distance`]: the nearest cluster with resources.
    Distance,
    /// [`EventDriven::lrtf`]: longest remaining time first.
    Lrtf,
    /// [`Best`]: simulated annealing from the best plan of [`Portfolio`] and [`HeuOrche`].
    Best,
    /// [`Exact`]: branch and bound, for jobs of at most [`Exact::TASKS_MAX`] tasks.
    Exact,
}

/// The effort allowed to policies that search; others ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The number of steps of [`Best`].
    pub steps: u64,
    /// The seed of its random choices.
    pub seed: u64,
    /// The limit on nodes visited by [`Exact`].
    pub nodes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: 3_000,
            seed: 1,
            nodes: Exact::NODES_MAX,
        }
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {name}; there are {}", names())]
pub struct UnknownPolicy {
    name: String,
}

fn names() -> String {
    Policy::ALL.map(Policy::name).join(", ")
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 18] = [
        Self::HeuOrche,
        Self::HeuOrcheInverse,
        Self::Heft,
        Self::Peft,
        Self::Lookahead,
        Self::Portfolio,
        Self::Cpop,
        Self::MinMin,
        Self::MaxMin,
        Self::Mct,
        Self::Etf,
        Self::Olb,
        Self::Fcfs,
        Self::Priority,
        Self::Distance,
        Self::Lrtf,
        Self::Best,
        Self::Exact,
    ];

    /// The name by which users and experiments select it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeuOrche => "heu-orche",
            Self::HeuOrcheInverse => "heu-orche-inverse",
            Self::Heft => "heft",
            Self::Peft => "peft",
            Self::Lookahead => "lookahead",
            Self::Portfolio => "portfolio",
            Self::Cpop => "cpop",
            Self::MinMin => "minmin",
            Self::MaxMin => "maxmin",
            Self::Mct => "mct",
            Self::Etf => "etf",
            Self::Olb => "olb",
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
            Self::Distance => "distance",
            Self::Lrtf => "lrtf",
            Self::Best => "best",
            Self::Exact => "exact",
        }
    }

    /// A placer for this policy, with `budget` for each job if it searches.
    #[must_use]
    pub fn placer(self, budget: Budget) -> Box<dyn Placer> {
        match self {
            Self::HeuOrche => Box::new(HeuOrche::default()),
            Self::HeuOrcheInverse => Box::new(Inverse::default()),
            Self::Heft => Box::new(Heft::default()),
            Self::Peft => Box::new(Peft::new(PeftOrder::Optimistic)),
            Self::Lookahead => Box::new(Lookahead::default()),
            Self::Portfolio => Box::new(Portfolio::default()),
            Self::Cpop => Box::new(Cpop::default()),
            Self::MinMin => Box::new(Ready::new(ReadyRule::MinMin)),
            Self::MaxMin => Box::new(Ready::new(ReadyRule::MaxMin)),
            Self::Mct => Box::new(Mct::default()),
            Self::Etf => Box::new(Ready::new(ReadyRule::EarliestStart)),
            Self::Olb => Box::new(Olb::default()),
            Self::Fcfs => Box::new(EventDriven::fcfs()),
            Self::Priority => Box::new(EventDriven::priority()),
            Self::Distance => Box::new(EventDriven::distance()),
            Self::Lrtf => Box::new(EventDriven::lrtf()),
            Self::Best => Box::new(Best::new(budget.steps, budget.seed)),
            Self::Exact => Box::new(Exact::with_limits(Exact::TASKS_MAX, budget.nodes)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
        })
    }
}

/// Heu-Orche with the inverse score, whatever the problem's options say.
#[derive(Debug, Default)]
struct Inverse {
    inner: HeuOrche,
}

impl Placer for Inverse {
    fn name(&self) -> &'static str {
        Policy::HeuOrcheInverse.name()
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        let mut options = problem.options();
        options.score = Score::Inverse;
        self.inner.place(&problem.with_options(options), detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name_and_makes_the_placer_of_that_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(policy.placer(Budget::default()).name(), policy.name());
        }
        let error = "heft2".parse::<Policy>().expect_err("no such policy");
        let text = error.to_string();
        assert!(text.starts_with(
            "no policy is called heft2; there are heu-orche, heu-orche-inverse, heft,"
        ));
    }
}
