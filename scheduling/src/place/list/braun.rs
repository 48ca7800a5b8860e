//! MCT and OLB: the tasks in the order in which they become ready, each decided by itself.
//!
//! **Problem.** As Heu-Orche's, without any look at the job as a whole: baselines for the other heuristics.
//!
//! **Source.** Braun et al., "A Comparison of Eleven Static Heuristics for Mapping a Class of Independent Tasks onto Heterogeneous
//! Distributed Computing Systems", JPDC 61(6), 2001.
//!
//! - [`Mct`], minimum completion time: the cluster on which the task finishes first.
//! - [`Olb`], opportunistic load balancing: the cluster on which a slot is free first, whatever the task's run time there.
//!
//! **Readings.** The source's tasks are independent; here a task is ready when its parents are placed, and ready tasks go by index. Both
//! only append. Ties: the smaller cluster index.
//!
//! **Complexity.** O(n(m + |E|)) for n clusters and m tasks, plus O(m log m).
//!
//! **Invariants.** Those of Heu-Orche.

use fdn_core::Millis;

use super::super::calendar::Append;
use super::super::{Detail, Infeasible, Placer, Planned, Problem, Score};
use super::{Key, List, earliest_finish};

/// Minimum completion time, with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Mct {
    list: List<Append>,
}

impl Placer for Mct {
    fn name(&self) -> &'static str {
        "mct"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        begin(&mut self.list, problem);
        self.list.place(problem, detail, earliest_finish(problem))
    }
}

/// Opportunistic load balancing, with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Olb {
    list: List<Append>,
}

impl Placer for Olb {
    fn name(&self) -> &'static str {
        "olb"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        begin(&mut self.list, problem);
        self.list.place(problem, detail, |engine, _, keys| {
            for (cluster, key) in keys.iter_mut().enumerate() {
                let candidate = engine.candidate(problem, cluster);
                if candidate.excluded.is_none() {
                    *key = Key(engine.available(cluster).get(), 0.0);
                }
            }
        })
    }
}

/// Gives all tasks the same score, so that only precedence and the index order them.
fn begin(list: &mut List<Append>, problem: &Problem<'_>) {
    list.begin(problem);
    list.scores.clear();
    list.scores.resize(problem.dag().len(), Millis::ZERO);
    list.order.fill(problem.dag(), &list.scores, Score::Normal);
}
