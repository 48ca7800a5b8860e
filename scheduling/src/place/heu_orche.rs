//! Heu-Orche: heuristic orchestration of a DAG across clusters.
//!
//! **Problem.** The tasks of one job, with precedence constraints and data transfers between them, are assigned to clusters of different
//! speed, free resources and distance from the user so as to minimize the user's latency (formula 5). The problem is NP-hard, so a list
//! heuristic decides.
//!
//! **Source.** The article on FDN, the function delivery network, section on Heu-Orche. Its ordering is HEFT's upward rank
//! ([`super::scores`]), its choice HEFT's earliest finish (Topcuoglu, Hariri, Wu: IEEE TPDS 13(3), 2002) with three
//! differences: the user's latency to the entry, resources that must fit, and no insertion into gaps.
//!
//! 1. Order the tasks by score, highest first, parents first, ties by the smaller index.
//! 2. For each in order, among the clusters with `r(c) <= I(p)`: `p* = argmin EFT(c,p)`, ties by the smaller cluster (7).
//!    - `EST(c,p) = max(avail[p], max over parents a of AFT(a) + omega(a,c))`, for the entry `max(avail[p], d(u,p))` (3)
//!    - `EFT(c,p) = EST(c,p) + w(c,p)` (4)
//! 3. `AFT(c) = EFT(c,p*)`, `avail[p*]` becomes the earliest free slot, `I(p*) -= r(c)`.
//!
//! **Readings.** Slots `k` per cluster instead of one; the way back can count for exits ([`super::Options::exit_leg`]);
//! resources are held until the job or the task ends ([`super::Hold`]): in the latter case the start moves to when they are free.
//!
//! **One task.** A job of one task needs no state (module `single`); its plan is the same.
//!
//! **Complexity.** O(n(m + |E|)) for n clusters and m tasks, plus O(m log m) for the order and O(m log k) for the slots; holding
//! resources per task adds O(k^3) for each cluster where they are short.
//!
//! **Invariants.** Parents finish, and their data arrives, before a child starts; no slot runs two tasks at once; no cluster's free
//! resources ever fall below zero; all tasks are placed or none.

use super::calendar::Append;
use super::engine::Engine;
use super::infeasible::{Exclusion, Infeasible};
use super::list::{List, earliest_finish};
use super::model::ClusterIndex;
use super::plan::{Plan, Planned};
use super::problem::Problem;
use super::single::Single;
use super::{Detail, Placer};
use crate::dag::TaskIndex;

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct HeuOrche {
    list: List<Append>,
}

/// A task that cannot run where a given assignment puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The task's index in the DAG.
    pub task: TaskIndex,
    /// The assigned cluster; `None` if the assignment left the choice open and no cluster fits.
    pub cluster: Option<ClusterIndex>,
    /// What excludes it. If the choice was left open: what lacks at the first cluster that lacks resources, or
    /// [`Exclusion::NeverFinishes`] if none does.
    pub exclusion: Exclusion,
}

impl Placer for HeuOrche {
    fn name(&self) -> &'static str {
        "heu-orche"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        self.list.begin(problem);
        self.list.order_by_rank(problem, problem.options().score);
        self.list.place(problem, detail, earliest_finish(problem))
    }

    fn place_into(&mut self, problem: &Problem<'_>, plan: &mut Plan) -> Result<(), Infeasible> {
        let single = Single::of(problem);
        if let Some((single, (cluster, candidate))) =
            single.and_then(|one| Some((one, one.best()?)))
        {
            single.fill(plan, cluster, &candidate);
            return Ok(());
        }
        // A job of one task that fits nowhere comes here, too: the engine tells why.
        self.list.begin(problem);
        self.list.order_by_rank(problem, problem.options().score);
        self.list
            .place_into(problem, plan, earliest_finish(problem))
    }
}

impl HeuOrche {
    /// The plan that follows from a given assignment: tasks in descending order of score, each on the cluster that
    /// `assignment` names or, where that is `None`, on the one that Heu-Orche would choose. Used to evaluate an older plan under present
    /// conditions.
    ///
    /// # Errors
    /// The first task that cannot run where it is put.
    pub fn evaluate(
        &mut self,
        problem: &Problem<'_>,
        assignment: impl Fn(TaskIndex) -> Option<ClusterIndex>,
    ) -> Result<Plan, Rejection> {
        self.assign(problem, assignment)?;
        Ok(self.list.plan(problem))
    }

    /// As [`Self::evaluate`], into the buffers of a plan that is no longer needed.
    ///
    /// # Errors
    /// As [`Self::evaluate`]; the plan is then as it was.
    pub fn evaluate_into(
        &mut self,
        problem: &Problem<'_>,
        assignment: impl Fn(TaskIndex) -> Option<ClusterIndex>,
        plan: &mut Plan,
    ) -> Result<(), Rejection> {
        if let Some(single) = Single::of(problem)
            && let Some(at) = assignment(single.task)
        {
            let candidate = if at.get() < problem.clusters().len() {
                Ok(single.on(at.get()))
            } else {
                Err(Exclusion::Gone)
            };
            let candidate = candidate.and_then(|one| one.excluded.map_or(Ok(one), Err));
            let candidate = candidate.map_err(|exclusion| Rejection {
                task: single.task,
                cluster: Some(at),
                exclusion,
            })?;
            single.fill(plan, at.get(), &candidate);
            return Ok(());
        }
        self.assign(problem, assignment)?;
        plan.fill(
            problem,
            self.list.engine.placements(),
            &self.list.order.tasks,
        );
        Ok(())
    }

    fn assign(
        &mut self,
        problem: &Problem<'_>,
        assignment: impl Fn(TaskIndex) -> Option<ClusterIndex>,
    ) -> Result<(), Rejection> {
        self.list.begin(problem);
        self.list.order_by_rank(problem, problem.options().score);
        for at in 0..self.list.order.tasks.len() {
            let task = self.list.order.tasks[at];
            self.list.engine.take_up(problem, task);
            let rejection = |cluster, exclusion| Rejection {
                task,
                cluster,
                exclusion,
            };
            let cluster = match assignment(task) {
                Some(cluster) if cluster.get() >= problem.clusters().len() => {
                    return Err(rejection(Some(cluster), Exclusion::Gone));
                }
                Some(cluster) => cluster.get(),
                None => self
                    .list
                    .choose(task, earliest_finish(problem))
                    .ok_or_else(|| rejection(None, lack(&self.list.engine, problem)))?,
            };
            let candidate = self.list.engine.candidate(problem, cluster);
            if let Some(exclusion) = candidate.excluded {
                return Err(rejection(Some(ClusterIndex::new(cluster)), exclusion));
            }
            self.list.engine.commit(problem, task, cluster, &candidate);
        }
        Ok(())
    }
}

/// Why no cluster can take the current task: that resources lack, if they do anywhere, since that is what can be helped.
fn lack(engine: &Engine<Append>, problem: &Problem<'_>) -> Exclusion {
    (0..problem.clusters().len())
        .filter_map(|cluster| engine.candidate(problem, cluster).excluded)
        .find(|why| {
            matches!(
                why,
                Exclusion::Shortage { .. } | Exclusion::Crowded { .. } | Exclusion::NoSlots
            )
        })
        .unwrap_or(Exclusion::NeverFinishes)
}
