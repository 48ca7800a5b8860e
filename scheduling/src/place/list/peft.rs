//! PEFT: predict earliest finish time, with an optimistic cost table.
//!
//! **Problem.** As HEFT's, whose choice sees one task only: a cluster on which the task ends early may be bad for all that follows.
//!
//! **Source.** Arabnejad, Barbosa, "List Scheduling Algorithm for Heterogeneous Systems by an Optimistic Cost Table", IEEE TPDS
//! 25(3), 2014.
//!
//! - `OCT(c,p) = max over s in succ(c) of min over q of ( OCT(s,q) + w(s,q) + omega(c,s)*[p != q] )`, exits 0: the shortest time
//!   that the tasks behind `c` can take if `c` runs on `p` and clusters are never busy; omega is the mean, as in the upward rank.
//! - Order: `rank(c) = (1/n) sum over p of OCT(c,p)`, highest first among the tasks whose parents are placed, ties by the smaller
//!   index. Or HEFT's upward rank ([`PeftOrder::UpwardRank`]), as one part of the portfolio.
//! - Choice: `argmin over p of EFT(c,p) + OCT(c,p)`, with insertion, ties by the smaller cluster.
//!
//! **Readings.** Slots, user, resources and gaps as in HEFT. Where the way back counts, the table has it for exits instead of 0. Only
//! clusters that take part enter the table.
//!
//! **Complexity.** O(n|E|) for the table, as HEFT for the rest.
//!
//! **Invariants.** Those of Heu-Orche. If all transfers take their mean time, no schedule takes less than `OCT(c,p)` after `c` has finished on `p`.

use fdn_core::Millis;

use super::super::rank::mean_transfer;
use super::super::timeline::Timeline;
use super::super::{ClusterIndex, Detail, Infeasible, Placer, Planned, Problem, Score};
use super::{Key, List};
use crate::dag::TaskIndex;

/// The order in which PEFT places tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeftOrder {
    /// By the means of the optimistic cost table: PEFT as published.
    #[default]
    Optimistic,
    /// By HEFT's upward rank.
    UpwardRank,
}

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Peft {
    list: List<Timeline>,
    table: OptimisticCosts,
    order: PeftOrder,
}

impl Peft {
    /// PEFT with the given order.
    #[must_use]
    pub fn new(order: PeftOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }
}

impl Placer for Peft {
    fn name(&self) -> &'static str {
        match self.order {
            PeftOrder::Optimistic => "peft",
            PeftOrder::UpwardRank => "heft-oct",
        }
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        let Self { list, table, order } = self;
        list.begin(problem);
        table.fill(problem, |p| list.engine.is_usable(p));
        match order {
            PeftOrder::UpwardRank => list.order_by_rank(problem, Score::Normal),
            PeftOrder::Optimistic => {
                list.scores.clear();
                let means = problem.dag().indices().map(|task| table.mean(task));
                list.scores.extend(means);
                list.order.fill(problem.dag(), &list.scores, Score::Normal);
            }
        }
        list.place(problem, detail, |engine, task, keys| {
            for ((cluster, key), rest) in keys.iter_mut().enumerate().zip(table.row(task)) {
                let candidate = engine.candidate(problem, cluster);
                if candidate.excluded.is_none() {
                    // No cluster may be able to take what follows; the task itself can still go there.
                    *key = Key((candidate.finish + rest).min(f64::MAX), 0.0);
                }
            }
        })
    }
}

/// The optimistic cost table.
#[derive(Debug, Default)]
struct OptimisticCosts {
    clusters: usize,
    /// By task, then by cluster; infinity for clusters that take no part.
    costs: Vec<f64>,
    /// Scratch for one child: by cluster, its run time and what follows it.
    child: Vec<f64>,
}

impl OptimisticCosts {
    fn fill(&mut self, problem: &Problem<'_>, usable: impl Fn(usize) -> bool) {
        let dag = problem.dag();
        let omega = mean_transfer(problem, &usable);
        self.clusters = problem.clusters().len();
        self.costs.clear();
        self.costs.resize(dag.len() * self.clusters, f64::INFINITY);
        for &task in dag.topological().iter().rev() {
            let at = task.get() * self.clusters;
            for p in (0..self.clusters).filter(|&p| usable(p)) {
                let back = problem.options().exit_leg && dag.is_exit(task);
                self.costs[at + p] = if back {
                    problem.distance()[p].get()
                } else {
                    0.0
                };
            }
            for (child, transfer) in dag.children(task) {
                self.fill_child(problem, child);
                let least = self.child.iter().copied().fold(f64::INFINITY, f64::min);
                // The least over all clusters but p is not needed: where the least is p's own, staying is cheaper still.
                let moved = least + omega(transfer);
                for p in (0..self.clusters).filter(|&p| usable(p)) {
                    let cost = &mut self.costs[at + p];
                    *cost = cost.max(self.child[p].min(moved));
                }
            }
        }
    }

    fn fill_child(&mut self, problem: &Problem<'_>, child: TaskIndex) {
        let row = child.get() * self.clusters..(child.get() + 1) * self.clusters;
        let costs = self.costs[row].iter().enumerate();
        let work = |p| problem.work(child, ClusterIndex::new(p)).get();
        self.child.clear();
        self.child.extend(costs.map(|(p, cost)| cost + work(p)));
    }

    fn row(&self, task: TaskIndex) -> &[f64] {
        &self.costs[task.get() * self.clusters..(task.get() + 1) * self.clusters]
    }

    /// `rank(c)`: the mean over the clusters that take part.
    fn mean(&self, task: TaskIndex) -> Millis {
        let finite = self.row(task).iter().filter(|cost| cost.is_finite());
        let (sum, count) = finite.fold((0.0, 0.0), |(sum, count), cost| (sum + cost, count + 1.0));
        Millis::new(if count == 0.0 { 0.0 } else { sum / count })
    }
}

#[cfg(test)]
mod tests;
