//! CPOP: critical path on a processor.
//!
//! **Problem.** As HEFT's. The longest path through the job bounds its time, so the whole path goes to one cluster, without any
//! transfer on the way.
//!
//! **Source.** Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE
//! TPDS 13(3), 2002, section 5.2.
//!
//! 1. Priority: upward rank plus downward rank, `rank_d(c) = max over parents a of ( rank_d(a) + wbar(a) + omega(a,c) )`, entry 0.
//! 2. The critical path: from the entry, always on to the child of the highest priority. Its cluster is the one on which the path's total
//!    run time is least.
//! 3. Of the tasks whose parents are placed, the one with the highest priority goes next: tasks on the critical path to the path's
//!    cluster, others to the one where they finish first, with insertion.
//!
//! **Readings.** A task of the path that its cluster cannot take goes where it finishes first. Ties: the smaller index, the smaller
//! cluster; priorities that differ by rounding alone are equal.
//!
//! **Complexity.** As HEFT.
//!
//! **Invariants.** Those of Heu-Orche.

use fdn_core::Millis;

use super::super::rank::{mean_transfer, without_noise};
use super::super::timeline::Timeline;
use super::super::{ClusterIndex, Detail, Infeasible, Placer, Planned, Problem, Score};
use super::{Key, List};
use crate::dag::TaskIndex;

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Cpop {
    list: List<Timeline>,
    downward: Vec<f64>,
    on_path: Vec<bool>,
}

impl Placer for Cpop {
    fn name(&self) -> &'static str {
        "cpop"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        self.list.begin(problem);
        self.list.order_by_rank(problem, Score::Normal);
        self.add_downward_ranks(problem);
        self.mark_path(problem);
        let home = self.path_cluster(problem);
        let Self { list, on_path, .. } = self;
        list.order.fill(problem.dag(), &list.scores, Score::Normal);
        list.place(problem, detail, |engine, task, keys| {
            for (cluster, key) in keys.iter_mut().enumerate() {
                let candidate = engine.candidate(problem, cluster);
                if candidate.excluded.is_none() {
                    let away = on_path[task.get()] && Some(cluster) != home;
                    *key = Key(f64::from(u8::from(away)), candidate.key);
                }
            }
        })
    }
}

impl Cpop {
    /// Adds the downward ranks to the upward ranks, which makes them CPOP's priorities.
    fn add_downward_ranks(&mut self, problem: &Problem<'_>) {
        let dag = problem.dag();
        let usable = |p| self.list.engine.is_usable(p);
        let (work, omega) = (problem.mean_work(usable), mean_transfer(problem, usable));
        self.downward.clear();
        self.downward.resize(dag.len(), 0.0);
        for &task in dag.topological() {
            let through = self.downward[task.get()] + work(task);
            for (child, transfer) in dag.children(task) {
                let downward = &mut self.downward[child.get()];
                *downward = downward.max(through + omega(transfer));
            }
        }
        for (score, downward) in self.list.scores.iter_mut().zip(&self.downward) {
            *score += Millis::new(*downward);
        }
    }

    fn mark_path(&mut self, problem: &Problem<'_>) {
        let dag = problem.dag();
        let priority = |task: TaskIndex| without_noise(self.list.scores[task.get()]);
        self.on_path.clear();
        self.on_path.resize(dag.len(), false);
        let mut next = Some(dag.entry());
        while let Some(task) = next {
            self.on_path[task.get()] = true;
            let children = dag.children(task).map(|(child, _)| child);
            next = children.max_by_key(|child| (priority(*child), std::cmp::Reverse(*child)));
        }
    }

    /// The cluster on which the critical path's total run time is least; `None` if no cluster can run all of it.
    fn path_cluster(&self, problem: &Problem<'_>) -> Option<usize> {
        let on_path = |task: &TaskIndex| self.on_path[task.get()];
        let total = |p: usize| {
            let tasks = problem.dag().indices().filter(on_path);
            tasks.fold(Millis::ZERO, |sum, task| {
                sum + problem.work(task, ClusterIndex::new(p))
            })
        };
        let usable = (0..problem.clusters().len()).filter(|&p| self.list.engine.is_usable(p));
        usable.min_by_key(|&p| (total(p), p))
    }
}
