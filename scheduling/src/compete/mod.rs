//! Client groups of all apps compete for the capacity of the clusters.
//!
//! **Problem.** Each group would choose the cluster that is best for it alone; together they fill the best one and wait there. What a group
//! takes away from others is its offered load: its call rate times the run time. So every group is planned against the load that all others
//! put on each cluster.
//!
//! **Method.** The loads of all groups where they are now are added up ([`Load`]). Then each group has its turn, in descending order of load, since
//! capacity for the largest is hardest to find. Its own load is taken out, and Heu-Orche places its workflow; run times contain the mean wait that
//! it would meet in each cluster if all of it came there, and the congestion toll, which is the wait it would add for the others ([`Load::toll`]).
//! It stays where it was unless the gain exceeds the margin ([`crate::steer`]), the old cluster can no longer serve it, or it has none
//! yet. How many users may be moved at once for a gain is bounded ([`Moves`]), unless they leave a cluster that is asked for more than it can do. Its load is then added where it is now. This is a best response of each
//! group to all others, repeated in every pass. With the toll, each move for a gain shortens the total time of all calls, by the model, so
//! the process converges, and leaving everything in place is never better; without it groups crowd the cluster that is best for each alone.
//!
//! **Typical and mean.** The latency of a call is judged by typical run times; what a group takes away from others is determined by the mean. Where
//! one call in a hundred takes long, the two differ widely, and a cluster that looks half empty by typical run times is full. So load is
//! counted with means ([`crate::dag::Task::mean`]), and latency with typical times plus the mean wait that the load causes.
//!
//! **Memory.** Calls need instances, and instances need memory ([`containers`]). The plans use at most the memory that a cluster's nodes have.
//! A newcomer displaces nobody: a group that moves to a cluster must fit beside all groups that are there, or were there and have
//! not had their turn; one that stays must fit only beside those that had theirs. So where demand has outgrown the memory, the groups with the
//! least load move, and no more of them than necessary. A move for a gain must also leave the margin free, lest a group move back and
//! forth with each change of its rate. A group that fits nowhere stays where it was and is reported as [`Verdict::Unplaced`]. A group that
//! stays is not excluded by its own instances: what the plans have its app hold there counts as free for it.
//!
//! **Source.** Heu-Orche (see [`crate::place`]); congestion games: Rosenthal, International Journal of Game Theory 2, 1973.
//!
//! **Complexity.** One Heu-Orche and one evaluation for each group: O(n(m + |E|)) with n clusters and m stages; no memory is taken for a group
//! that stays, once buffers have grown.
//!
//! **Invariants.** Every group has a cluster if some cluster can take it; the placed groups need at most the memory that a cluster has;
//! where memory is ample it has no influence; a group moves for a gain above the margin or because it must;
//! moves for a gain never cost more than the bucket allows, but for those out of overfull clusters; the same input gives the same output.

mod appraise;
mod demand;
mod load;
mod memory;
mod moves;
mod outcome;
mod pass;

use fdn_core::{Millis, Resources};

pub use appraise::{Appraisal, appraise};
pub use demand::GroupDemand;
pub use load::{FULL, Load, Rate, RunTime};
pub use memory::containers;
pub use moves::{Cost, Moves};
pub use outcome::{Outcome, Verdict};
pub use pass::Pass;

use crate::Error;
use crate::dag::TaskIndex;
use crate::place::{
    Cluster, ClusterIndex, Costs, HeuOrche, Memory, MemoryLimits, Network, Options, Placement,
    Placer, Plan, Problem, Rejection, Slots,
};
use crate::steer::{Margin, justifies};
use demand::work;
use memory::{Ledger, MemoryDemand};

/// The parameters of the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The relative gain that a move must exceed.
    pub margin: Margin,
    /// The options of Heu-Orche.
    pub options: Options,
    /// How long an overload is assumed to last.
    pub horizon: Millis,
}

/// The state of a pass: the clusters, and the load and memory need of each.
#[derive(Debug)]
pub struct Competition<'a> {
    clusters: Vec<Cluster>,
    network: &'a Network,
    terms: Terms,
    loads: Vec<Load>,
    /// The present mean wait of each cluster, by `loads`.
    waits: Vec<Millis>,
    /// The part of `loads` from tasks that can use only a share of a cluster's slots. All these shares are assumed to be the same nodes.
    narrow: Vec<Load>,
    /// The memory needed by all demands that are placed somewhere.
    all: Ledger,
    /// The part of `all` needed by demands that had their turn or get none.
    decided: Ledger,
    placer: HeuOrche,
    /// The placement costs of the current demand: run times, expected waits and tolls.
    costs: Costs,
    /// The run times and expected waits, without tolls.
    times: Costs,
    /// The tolls of the current demand, by task and then by cluster.
    tolls: Vec<Millis>,
    /// The run times of the current demand's tasks on each cluster.
    means: Vec<RunTime>,
    memory_limits: MemoryLimits,
    best: Plan,
    old: Plan,
}

impl<'a> Competition<'a> {
    /// A competition for `clusters`, joined by `network`, without any load.
    #[must_use]
    pub fn new(clusters: &[Cluster], network: &'a Network, terms: Terms) -> Self {
        Self {
            loads: clusters.iter().map(Load::of).collect(),
            waits: vec![Millis::ZERO; clusters.len()],
            narrow: clusters.iter().map(Load::of).collect(),
            all: Ledger::new(clusters.len()),
            decided: Ledger::new(clusters.len()),
            clusters: clusters.to_vec(),
            network,
            terms,
            placer: HeuOrche::default(),
            costs: Costs::default(),
            times: Costs::default(),
            tolls: Vec::new(),
            means: Vec::new(),
            memory_limits: MemoryLimits::default(),
            best: Plan::default(),
            old: Plan::default(),
        }
    }

    /// The offered load of each cluster.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// The memory needed of each cluster.
    #[must_use]
    pub fn needed(&self) -> &[Memory] {
        self.all.needed()
    }

    /// Adds the load of a demand that stays on these clusters and gets no turn.
    pub fn settle(&mut self, demand: &GroupDemand<'_>, clusters: &[ClusterIndex]) {
        self.add_load(demand, clusters);
        self.decided.put(demand, clusters, &self.clusters);
    }

    /// Reverts [`Competition::settle`].
    pub fn leave(&mut self, demand: &GroupDemand<'_>, clusters: &[ClusterIndex]) {
        self.remove_load(demand, clusters);
        self.decided.take(demand, clusters, &self.clusters);
    }

    fn add_load(&mut self, demand: &GroupDemand<'_>, clusters: &[ClusterIndex]) {
        self.each_task(demand, clusters, Load::add);
        self.all.put(demand, clusters, &self.clusters);
    }

    fn remove_load(&mut self, demand: &GroupDemand<'_>, clusters: &[ClusterIndex]) {
        self.each_task(demand, clusters, Load::take);
        self.all.take(demand, clusters, &self.clusters);
    }

    fn each_task(
        &mut self,
        demand: &GroupDemand<'_>,
        clusters: &[ClusterIndex],
        change: impl Fn(&mut Load, Rate, Millis),
    ) {
        for (task, cluster) in (0..demand.dag.given()).zip(clusters) {
            let at = cluster.get();
            if let (Some(load), Some(narrow)) = (self.loads.get_mut(at), self.narrow.get_mut(at)) {
                let mean = demand.dag.task(TaskIndex::new(task)).mean();
                let factor = demand.factor(task, at, self.clusters.len());
                let time = self.clusters[at].speed.time(mean) * factor;
                // A cluster that runs nothing gets no load: an infinite load could never be subtracted again.
                if time.is_finite() {
                    change(load, demand.rate, time);
                    self.waits[at] = load.present_wait(self.terms.horizon);
                    if demand.share(task, at) < 1.0 {
                        change(narrow, demand.rate, time);
                    }
                }
            }
        }
    }

    /// Gives each demand its turn, in descending order of load at speed 1, ties by position. `decided` is called in the order of the
    /// turns, with the demand's position, the problem that was solved and the outcome.
    ///
    /// # Errors
    /// When a demand's tables do not match its tasks or the clusters.
    pub fn run(
        &mut self,
        demands: &[GroupDemand<'_>],
        moves: &mut Moves,
        mut decided: impl FnMut(usize, &Problem<'_>, &Outcome),
    ) -> Result<(), Error> {
        let longest = demands.iter().map(|demand| demand.dag.len()).max();
        self.limit_slots(longest.unwrap_or(0));
        for demand in demands {
            self.add_load(demand, demand.before.unwrap_or_default());
        }
        let work: Vec<f64> = demands.iter().map(work).collect();
        let total: f64 = work.iter().sum();
        let mut turns: Vec<usize> = (0..demands.len()).collect();
        turns.sort_by(|a, b| work[*b].total_cmp(&work[*a]).then(a.cmp(b)));
        for at in turns {
            let part = if total > 0.0 { work[at] / total } else { 0.0 };
            let cost = Cost(f64::midpoint(part, 1.0 / demands.len() as f64));
            self.plan_group(&demands[at], cost, moves, |problem, outcome| {
                decided(at, problem, outcome);
            })?;
        }
        Ok(())
    }

    /// Limits each cluster to `tasks` slots, those that are free first: a job of that many tasks uses no more.
    fn limit_slots(&mut self, tasks: usize) {
        for cluster in &mut self.clusters {
            if cluster.slots.len() > tasks {
                let mut free = cluster.slots.available();
                free.sort_unstable();
                cluster.slots = free.into_iter().take(tasks).collect::<Slots>();
            }
        }
    }

    fn plan_group(
        &mut self,
        demand: &GroupDemand<'_>,
        cost: Cost,
        moves: &mut Moves,
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<(), Error> {
        let before = demand.before.unwrap_or_default();
        let held = self.all.held(demand, before);
        self.remove_load(demand, before);
        self.fill_costs(demand);
        self.fill_memory_limits(demand, before);
        let mut clusters = std::mem::take(&mut self.clusters);
        let outcome = with_own_holdings_free(&mut clusters, &held, |clusters| {
            self.decide(clusters, demand, cost, moves, decided)
        });
        self.clusters = clusters;
        let outcome = outcome?;
        // A demand that no cluster can take stays where it was and keeps its load there.
        let there = if outcome.verdict == Verdict::Unplaced {
            before
        } else {
            &outcome.clusters
        };
        self.add_load(demand, there);
        self.decided.put(demand, there, &self.clusters);
        Ok(())
    }

    /// The memory that the demand's tasks need of each cluster, and what is left there: beside the demands that had their turn on its
    /// present clusters, beside all demands elsewhere.
    fn fill_memory_limits(&mut self, demand: &GroupDemand<'_>, before: &[ClusterIndex]) {
        let Self {
            clusters,
            all,
            decided,
            memory_limits,
            ..
        } = self;
        let more = |ledger: &Ledger, task: usize, at: usize| {
            let need = MemoryDemand::of(demand, task, at, clusters);
            need.map_or_else(Memory::default, |need| {
                ledger.more((demand.app, task), at, &need)
            })
        };
        let stays = |task: usize, at: usize| before.get(task).is_some_and(|p| p.get() == at);
        memory_limits.refill(
            (demand.dag.given(), clusters.len()),
            |task, at| {
                let alone = more(decided, task, at);
                if stays(task, at) {
                    return alone;
                }
                // Another group with which it would share an instance may have to leave, so its need alone must fit as well.
                let need = alone.max(more(all, task, at));
                if !is_in(before, at) {
                    return need;
                }
                // Where another of its tasks was, what is left is counted beside the decided demands only, which is more than for a newcomer;
                // and that other task may need more beside all demands than it does alone. Both differences are added to the need.
                let others = (0..demand.dag.given()).filter(|other| stays(*other, at));
                let rest = all.needed()[at] - decided.needed()[at];
                need.beside(others.fold(rest, |rest, other| {
                    let alone = more(decided, other, at);
                    rest + (alone.max(more(all, other, at)) - alone)
                }))
            },
            |at| {
                let ledger = if is_in(before, at) { &*decided } else { &*all };
                Memory::of(&clusters[at].capacity) - ledger.needed()[at]
            },
        );
    }

    /// Run times plus the waits that the demand would meet if all of it came there, without and with tolls.
    fn fill_costs(&mut self, demand: &GroupDemand<'_>) {
        let Self {
            clusters,
            loads,
            waits,
            narrow,
            costs,
            times,
            tolls,
            means,
            terms,
            ..
        } = self;
        let tasks = demand.dag.given();
        let task_of = |task: usize| demand.dag.task(TaskIndex::new(task));
        let count = clusters.len();
        means.clear();
        // What it would be if all of its tasks ran there.
        means.extend(clusters.iter().enumerate().map(|(at, cluster)| {
            RunTime::of((0..tasks).map(|task| {
                cluster.speed.time(task_of(task).mean()) * demand.factor(task, at, count)
            }))
        }));
        let calls = Rate::per_second(demand.rate.get() * tasks as f64);
        tolls.clear();
        times.refill(tasks, count, |task, at| {
            let time = means[at];
            if !time.mean.is_finite() {
                tolls.push(Millis::ZERO);
                return Millis::INFINITY;
            }
            let share = demand.share(task, at);
            let (load, present) = if share >= 1.0 {
                (loads[at], waits[at])
            } else {
                let part = loads[at].part(share, &narrow[at]);
                (part, part.present_wait(terms.horizon))
            };
            let (wait, toll) = load.wait_and_toll((calls, time), present, terms.horizon);
            tolls.push(toll);
            clusters[at].speed.time(task_of(task).work) * demand.factor(task, at, count) + wait
        });
        costs.refill(tasks, count, |task, at| {
            times.get(task, at) + tolls[task * count + at]
        });
    }

    fn decide(
        &mut self,
        clusters: &[Cluster],
        demand: &GroupDemand<'_>,
        cost: Cost,
        moves: &mut Moves,
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<Outcome, Error> {
        let costs = std::mem::take(&mut self.costs);
        let times = std::mem::take(&mut self.times);
        let mut memory_limits = std::mem::take(&mut self.memory_limits);
        let outcome = self.outcome(
            clusters,
            ((&costs, &times), &mut memory_limits),
            demand,
            (cost, moves),
            decided,
        );
        (self.costs, self.times, self.memory_limits) = (costs, times, memory_limits);
        outcome
    }

    fn outcome(
        &mut self,
        clusters: &[Cluster],
        (costs, memory_limits): ((&Costs, &Costs), &mut MemoryLimits),
        demand: &GroupDemand<'_>,
        (cost, moves): (Cost, &mut Moves),
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<Outcome, Error> {
        let stays = match demand.before {
            None => None,
            Some(before) => {
                let problem = self.problem(clusters, demand, (costs, memory_limits))?;
                let assigned = |task: TaskIndex| before.get(task.get()).copied();
                let stays = self.placer.evaluate_into(&problem, assigned, &mut self.old);
                if stays.is_ok() {
                    let share = self.terms.margin.get();
                    memory_limits.withhold(|at| {
                        let part = if is_in(before, at) { 0.0 } else { share };
                        Memory::of(&clusters[at].capacity).times(part)
                    });
                }
                Some(stays)
            }
        };
        let problem = self.problem(clusters, demand, (costs, memory_limits))?;
        let placed = self.placer.place_into(&problem, &mut self.best).is_ok();
        let mut outcome = self.choose_outcome(demand, stays, placed, (cost, moves));
        if outcome.verdict != Verdict::Unplaced {
            outcome.latency =
                self.latency_without_tolls(&problem.with_costs(costs.1)?, &outcome.clusters);
        }
        decided(&problem, &outcome);
        Ok(outcome)
    }

    fn problem<'b>(
        &self,
        clusters: &'b [Cluster],
        demand: &GroupDemand<'b>,
        (costs, memory_limits): ((&'b Costs, &'b Costs), &'b MemoryLimits),
    ) -> Result<Problem<'b>, Error>
    where
        'a: 'b,
    {
        let problem = Problem::new(demand.dag, clusters, self.network, demand.distance)?;
        let problem = problem
            .with_tolls(costs.0, costs.1)?
            .with_memory_limits(memory_limits)?;
        let problem = match demand.constraints {
            Some(constraints) => problem.with_constraints(constraints)?,
            None => problem,
        };
        Ok(problem.with_options(self.terms.options))
    }

    /// The latency of a call on these clusters, without tolls.
    fn latency_without_tolls(
        &mut self,
        problem: &Problem<'_>,
        clusters: &[ClusterIndex],
    ) -> Millis {
        let assigned = |task: TaskIndex| clusters.get(task.get()).copied();
        let served = self.placer.evaluate_into(problem, assigned, &mut self.old);
        served.map_or(Millis::INFINITY, |()| self.old.latency())
    }

    /// Decides about a demand: `stays` says whether it can remain where it is (`None` if it is nowhere), `placed` whether the placer
    /// found clusters.
    fn choose_outcome(
        &self,
        demand: &GroupDemand<'_>,
        stays: Option<Result<(), Rejection>>,
        placed: bool,
        (cost, moves): (Cost, &mut Moves),
    ) -> Outcome {
        let verdict = match (stays, placed) {
            (None | Some(Err(_)), false) => {
                return Outcome {
                    verdict: Verdict::Unplaced,
                    clusters: Vec::new(),
                    latency: Millis::INFINITY,
                };
            }
            (None, true) => Verdict::First,
            (Some(Err(rejection)), true) => Verdict::Failed(rejection.exclusion),
            (Some(Ok(())), true) => self.decide_move(demand, cost, moves),
            (Some(Ok(())), false) => Verdict::StillBest,
        };
        let plan = if verdict.moves() {
            &self.best
        } else {
            &self.old
        };
        let placements = &plan.placements()[..demand.dag.given()];
        Outcome {
            verdict,
            clusters: placements
                .iter()
                .map(|placement| placement.cluster)
                .collect(),
            latency: plan.latency(),
        }
    }

    fn decide_move(&self, demand: &GroupDemand<'_>, cost: Cost, moves: &mut Moves) -> Verdict {
        let (old, new) = (self.old.latency(), self.best.latency());
        if old <= new {
            Verdict::StillBest
        } else if !justifies(old, new, self.terms.margin) {
            Verdict::WithinMargin
        } else if !demand.dwells && (self.relieves(demand) || moves.pay(cost)) {
            Verdict::Better
        } else {
            Verdict::Deferred
        }
    }

    /// Whether the demand leaves a cluster that is asked for more than it can do, for clusters that can do what they are asked for then. What waits
    /// in such a cluster grows for as long as nobody leaves, so these moves are not bounded.
    fn relieves(&self, demand: &GroupDemand<'_>) -> bool {
        let places = |plan: &Plan| plan.placements()[..demand.dag.given()].to_vec();
        let (old, best) = (places(&self.old), places(&self.best));
        let busy = |places: &[Placement], at: ClusterIndex| {
            let mut load = self.loads[at.get()];
            for _ in places.iter().filter(|place| place.cluster == at) {
                load.add(demand.rate, self.means[at.get()]);
            }
            load.utilization()
        };
        let is_overfull = |place: &Placement| busy(&old, place.cluster) > 1.0;
        old.iter().any(is_overfull) && best.iter().all(|place| busy(&best, place.cluster) <= FULL)
    }
}

/// Whether `clusters` contains the cluster `at`.
fn is_in(clusters: &[ClusterIndex], at: usize) -> bool {
    clusters.iter().any(|cluster| cluster.get() == at)
}

/// Calls `act` with the app's own holdings counted as free, so that no group is excluded by the instances of its own app; restores the
/// clusters after.
fn with_own_holdings_free<T>(
    clusters: &mut [Cluster],
    held: &[(usize, Resources)],
    act: impl FnOnce(&[Cluster]) -> T,
) -> T {
    let mut kept = Vec::with_capacity(held.len());
    for (at, held) in held {
        let cluster = &mut clusters[*at];
        kept.push((*at, cluster.free, cluster.largest));
        cluster.give_back(held);
    }
    let result = act(clusters);
    // In reverse, so that a cluster that occurs twice ends with its original values.
    for (at, free, largest) in kept.into_iter().rev() {
        (clusters[at].free, clusters[at].largest) = (free, largest);
    }
    result
}
