//! The optimal plan, by branch and bound, for jobs of few tasks.
//!
//! **Problem.** As [`super::HeuOrche`]'s, but with proof: no plan answers the user sooner (formula 5). NP-hard; this is the yardstick of
//! the heuristics, and the way to place a small job that runs for long.
//!
//! **Source.** Branch and bound as in Land and Doig, Econometrica 28(3), 1960, over schedules that are built in order of start time.
//!
//! 1. A node is a schedule of some tasks. Its branches are each task whose parents are scheduled, on each cluster that has the resources, at its
//!    earliest start after the tasks already there, provided that is no earlier than the previous start.
//! 2. A branch is cut if its lower bound is no less than the best latency known. The bound is the largest of: the finish of the task plus the
//!    longest path from there; the start of the task plus the longest path from any remaining task, because none of these starts
//!    earlier; and, for every task that could start now, the earliest answer that any cluster could give. Paths are as short as they can be:
//!    each task on the cluster that suits it and the transfer to it best, as if it were alone, and with the way back to the user. A node
//!    is also cut if all slots together, from the last start on, cannot do the remaining work
//!    in time for a better answer. An improvement by less than one part in 10^12 does not count.
//! 3. The branch with the least bound is followed first. The search begins with the best plan of the heuristics.
//!
//! **Why this order is enough.** Take an optimal schedule with the least sum of starts. Schedule its tasks again in order of start, each
//! as early as possible after those before it: by induction no task starts later than it did, because the earlier ones run no longer
//! than they did, so the slots and resources it used are still free. So it is the same schedule, and the search builds it.
//! Of two tasks that start at the same time on different clusters, neither waiting for the other, both orders give the same schedule, so only
//! the one by task index is followed.
//!
//! **Readings.** Whether the way back counts for a choice ([`super::Options::exit_leg`]) or which task comes first
//! ([`super::Score`]) does not matter here: the objective is the latency that the user sees.
//!
//! **Complexity.** Exponential in the tasks; a node costs O(m n (|E|/m + k)) for n clusters of k slots and m tasks. Jobs of more than
//! [`Exact::TASKS_MAX`] tasks are refused unless the bound is set higher, and the search ends after a number of nodes.
//!
//! **Invariants.** The plan passes the checker; it is never worse than that of Heu-Orche or HEFT; if the search was not cut short, no
//! plan is better, and a job is refused only if it cannot be placed at all. The same problem and limits give the same plan.

mod search;
mod site;

use fdn_core::{Coded, ErrorCode};

use super::engine::Engine;
use super::infeasible::{Exclusion, Infeasible};
use super::replay::{by_start, replay};
use super::{Detail, Heft, HeuOrche, Placer, Plan, Planned, Problem, Report};
use search::Search;

/// The search with its limits.
#[derive(Debug)]
pub struct Exact {
    tasks_max: usize,
    nodes_max: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Optimum {
    /// The best plan found.
    pub plan: Plan,
    /// Whether the plan is proven optimal, that is, the search was not cut short.
    pub proven: bool,
    /// How many nodes of the search tree were visited: tasks put on a cluster.
    pub nodes: u64,
}

/// Why the search returned no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExactError {
    /// The job is too large to be searched.
    #[error("the job has {tasks} tasks, an exact search takes {most} at most; use a heuristic")]
    TooManyTasks {
        /// How many tasks the job has, the virtual entry not included.
        tasks: usize,
        /// The limit, see [`Exact::with_limits`].
        most: usize,
    },
    /// The node limit was reached before any plan was found.
    #[error("no plan was found among {nodes} partial ones; allow more, or use a heuristic")]
    CutShort {
        /// How many nodes were visited.
        nodes: u64,
        /// Why the initial heuristic found no plan either.
        #[source]
        refused: Infeasible,
    },
    /// The job cannot be placed at all.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
}

impl Coded for ExactError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooManyTasks { .. } | Self::CutShort { .. } => ErrorCode::BadRequest,
            Self::Infeasible(refused) => refused.code(),
        }
    }
}

impl Default for Exact {
    fn default() -> Self {
        Self {
            tasks_max: Self::TASKS_MAX,
            nodes_max: Self::NODES_MAX,
        }
    }
}

impl Exact {
    /// The default limit on the tasks of a job.
    pub const TASKS_MAX: usize = 12;

    /// The default limit on visited nodes: a few seconds' work.
    pub const NODES_MAX: u64 = 10_000_000;

    /// A search of jobs of at most `tasks_max` tasks that ends after `nodes_max` nodes.
    #[must_use]
    pub const fn with_limits(tasks_max: usize, nodes_max: u64) -> Self {
        Self {
            tasks_max,
            nodes_max,
        }
    }

    /// Searches for the optimal plan.
    ///
    /// # Errors
    /// When the job has too many tasks, cannot be placed, or no plan was found within the limits.
    pub fn solve(&self, problem: &Problem<'_>) -> Result<Optimum, ExactError> {
        self.search(problem, Detail::Nothing)
            .map(|(optimum, _)| optimum)
    }

    fn search(
        &self,
        problem: &Problem<'_>,
        detail: Detail,
    ) -> Result<(Optimum, Report), ExactError> {
        let (tasks, most) = (problem.dag().given(), self.tasks_max);
        if tasks > most {
            return Err(ExactError::TooManyTasks { tasks, most });
        }
        let (start, refused) = start(problem);
        let mut search = Search::new(problem, self.nodes_max);
        if let Some(plan) = &start {
            search.begin_with(plan);
        }
        search.run();
        let (proven, nodes) = (!search.was_cut_short(), search.nodes());
        match (search.into_plan().or(start), refused) {
            (Some(plan), _) => {
                let Planned { plan, report } = tidy(problem, &plan, detail);
                let optimum = Optimum {
                    plan,
                    proven,
                    nodes,
                };
                Ok((optimum, report))
            }
            (None, Some(refused)) if proven => Err(ExactError::Infeasible(refused)),
            (None, Some(refused)) => Err(ExactError::CutShort { nodes, refused }),
            (None, None) => unreachable!("a heuristic gives a plan or a refusal"),
        }
    }
}

/// The same plan without needless waiting: where the latency does not depend on a task, the search may have left it later than necessary.
fn tidy(problem: &Problem<'_>, plan: &Plan, detail: Detail) -> Planned {
    let mut order = Vec::new();
    by_start(plan, &mut order);
    let cluster = |task| plan.placement(task).cluster.get();
    replay(problem, &mut Engine::default(), &order, cluster, detail)
}

/// The best plan of the heuristics to begin with; if there is none, why.
fn start(problem: &Problem<'_>) -> (Option<Plan>, Option<Infeasible>) {
    let placers: [&mut dyn Placer; 2] = [&mut HeuOrche::default(), &mut Heft::default()];
    let (mut best, mut refusal): (Option<Plan>, _) = (None, None);
    for placer in placers {
        match placer.place(problem, Detail::Nothing) {
            Ok(Planned { plan, .. }) => {
                if best
                    .as_ref()
                    .is_none_or(|best| plan.latency() < best.latency())
                {
                    best = Some(plan);
                }
            }
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    (best, refusal)
}

/// As a placer, the search reports a job that is too large as [`Exclusion::NotSearched`] for every cluster.
impl Placer for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        match self.search(problem, detail) {
            Ok((Optimum { plan, .. }, report)) => Ok(Planned { plan, report }),
            Err(ExactError::Infeasible(refused) | ExactError::CutShort { refused, .. }) => {
                Err(refused)
            }
            Err(ExactError::TooManyTasks { tasks, .. }) => {
                let entry = problem.dag().entry();
                let why = |id| (id, Exclusion::NotSearched { tasks });
                let ids = problem.clusters().iter().map(|cluster| cluster.id.clone());
                Err(Infeasible {
                    task: entry,
                    name: problem.dag().task(entry).name.clone(),
                    clusters: ids.map(why).collect(),
                })
            }
        }
    }
}
