//! HEFT: heterogeneous earliest finish time, with insertion.
//!
//! **Problem.** As [`super::super::HeuOrche`]'s, which only appends: here a container may also start in any idle gap of a slot that is
//! long enough, so that a task placed early but ready late does not block the slot for those placed after it.
//!
//! **Source.** Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE
//! TPDS 13(3), 2002, section 5.1.
//!
//! 1. Order the tasks by upward rank (formula 6), highest first, parents first, ties by the smaller index.
//! 2. For each in order: the cluster with the earliest finish over all gaps, ties by the smaller cluster.
//!
//! **Readings.** Those of Heu-Orche (slots, user, resources) and of [`super::super::timeline`] (gaps).
//!
//! **Complexity.** O(n(m k log m + |E|)) for n clusters of k slots and m tasks, plus the gaps passed over because they are too short.
//!
//! **Invariants.** Those of Heu-Orche. A task never starts later than it would if appended, but the whole schedule can still take longer
//! than without insertion: an earlier start is not always a better schedule.

use super::super::timeline::Timeline;
use super::super::{Detail, Infeasible, Placer, Plan, Planned, Problem};
use super::{List, earliest_finish};

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Heft {
    list: List<Timeline>,
}

impl Placer for Heft {
    fn name(&self) -> &'static str {
        "heft"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        self.begin(problem);
        self.list.place(problem, detail, earliest_finish(problem))
    }

    fn place_into(&mut self, problem: &Problem<'_>, plan: &mut Plan) -> Result<(), Infeasible> {
        self.begin(problem);
        self.list
            .place_into(problem, plan, earliest_finish(problem))
    }
}

impl Heft {
    fn begin(&mut self, problem: &Problem<'_>) {
        self.list.begin(problem);
        self.list.order_by_rank(problem, problem.options().score);
    }
}

impl Heft {
    /// Places a further job on the same clusters, into the gaps between the jobs placed this way before; the first job starts from
    /// the slots as the problem gives them. Jobs come in order of arrival; what has ended by then is forgotten.
    ///
    /// # Errors
    /// The first task that no cluster can take; nothing of the job is kept then.
    pub fn place_next(
        &mut self,
        problem: &Problem<'_>,
        detail: Detail,
    ) -> Result<Planned, Infeasible> {
        if self.list.engine.clusters() == problem.clusters().len() {
            self.list.engine.begin_next(problem);
        } else {
            self.list.begin(problem);
        }
        self.list.order_by_rank(problem, problem.options().score);
        let placed = self.list.place(problem, detail, earliest_finish(problem));
        if placed.is_err() {
            self.list.take_back(problem);
        }
        placed
    }
}
