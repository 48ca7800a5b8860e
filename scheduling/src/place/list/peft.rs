//! PEFT: predict earliest finish time, by a table of optimistic costs.
//!
//! **Problem.** As HEFT's, whose choice sees one task only: a cluster on which the task ends early may be bad for all that follows.
//!
//! **Source.** Arabnejad, Barbosa, "List Scheduling Algorithm for Heterogeneous Systems by an Optimistic Cost Table", IEEE TPDS
//! 25(3), 2014.
//!
//! - `OCT(c,p) = max over s in succ(c) of min over q of ( OCT(s,q) + w(s,q) + omega(c,s)*[p != q] )`, exits 0: the shortest that
//!   the rest can take behind `c` on `p`, if clusters are never busy; omega is the mean, as in the upward rank.
//! - Order: `rank(c) = (1/n) sum over p of OCT(c,p)`, highest first among the tasks whose parents are placed, ties by the smaller
//!   index. Or HEFT's upward rank ([`PeftOrder::UpwardRank`]), as one part of the portfolio.
//! - Choice: `argmin over p of EFT(c,p) + OCT(c,p)`, with insertion, ties by the smaller cluster.
//!
//! **Readings.** Slots, user, resources and gaps as HEFT. Where the way back counts, it stands in the table of the exits instead of
//! 0. Only clusters that count enter the table.
//!
//! **Complexity.** O(n|E|) for the table, as HEFT for the rest.
//!
//! **Invariants.** Those of Heu-Orche. `OCT(c,p)` is no more than what any schedule takes behind `c` on `p` if all transfers take
//! their means.

use fdn_core::Millis;

use super::super::rank::mean_transfer;
use super::super::timeline::Timeline;
use super::super::{ClusterIndex, Detail, Infeasible, Placer, Planned, Problem, Score};
use super::{Key, List};
use crate::dag::TaskIndex;

/// The order in which PEFT places tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeftOrder {
    /// By the means of the table: PEFT as published.
    #[default]
    Optimistic,
    /// By HEFT's upward rank.
    UpwardRank,
}

/// The placer with its buffers, which serve job after job.
#[derive(Debug, Default)]
pub struct Peft {
    list: List<Timeline>,
    table: OptimisticCosts,
    order: PeftOrder,
}

impl Peft {
    /// PEFT with this order.
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
                    // What follows may fit nowhere; the task itself can still go there.
                    *key = Key((candidate.finish + rest).min(f64::MAX), 0.0);
                }
            }
        })
    }
}

/// The table of optimistic costs.
#[derive(Debug, Default)]
struct OptimisticCosts {
    clusters: usize,
    /// By task, then by cluster; infinity for clusters that do not count.
    costs: Vec<f64>,
    /// Of one child: its own costs on each cluster and what follows.
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
                // The least over all clusters but p needs no search: where it is p's own, staying is cheaper still.
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

    /// `rank(c)`: the mean over the clusters that count.
    fn mean(&self, task: TaskIndex) -> Millis {
        let finite = self.row(task).iter().filter(|cost| cost.is_finite());
        let (sum, count) = finite.fold((0.0, 0.0), |(sum, count), cost| (sum + cost, count + 1.0));
        Millis::new(if count == 0.0 { 0.0 } else { sum / count })
    }
}

#[cfg(test)]
mod tests;
