//! List scheduling: tasks in topological order, each on the cluster that a rule rates best.
//!
//! The common part of the list schedulers in this folder. They differ in the order, in the rule, and in whether gaps are filled; each
//! module says so and names its source. All of them treat the rest as Heu-Orche does: resources, slots already taken, the user's distance
//! to the entry, the way back from exits where the options ask for it, and clusters that take no part.

mod braun;
mod cpop;
mod heft;
mod lookahead;
mod peft;
mod ready;

use fdn_core::Millis;

use super::Detail;
use super::calendar::Calendar;
use super::engine::Engine;
use super::explain::{Report, TaskReport};
use super::infeasible::Infeasible;
use super::plan::{Plan, Planned};
use super::problem::{Problem, Score};
use super::rank::{Order, fill_scores};
use super::timeline::Timeline;
use crate::dag::TaskIndex;

pub use braun::{Mct, Olb};
pub use cpop::Cpop;
pub use heft::Heft;
pub use lookahead::Lookahead;
pub use peft::{Peft, PeftOrder};
pub use ready::{Ready, ReadyRule};

/// The rating of a cluster for a task, less is better: the criterion, then the tie-break.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::place) struct Key(pub(in crate::place) f64, pub(in crate::place) f64);

impl Key {
    /// The key of a cluster that cannot take the task: larger than every other.
    const NEVER: Self = Self(f64::INFINITY, f64::INFINITY);
}

/// A list scheduler's state, with its buffers.
#[derive(Debug, Default)]
pub(in crate::place) struct List<C> {
    pub(in crate::place) engine: Engine<C>,
    /// By task: its priority.
    pub(in crate::place) scores: Vec<Millis>,
    pub(in crate::place) order: Order,
    /// Of the current task: the key of each cluster.
    keys: Vec<Key>,
}

impl<C: Calendar> List<C> {
    /// Starts with the clusters in the state that the problem gives.
    pub(in crate::place) fn begin(&mut self, problem: &Problem<'_>) {
        self.engine.begin(problem);
    }

    /// Orders the tasks by the upward rank of formula (6).
    pub(in crate::place) fn order_by_rank(&mut self, problem: &Problem<'_>, score: Score) {
        fill_scores(problem, |p| self.engine.is_usable(p), &mut self.scores);
        self.order.fill(problem.dag(), &self.scores, score);
    }

    /// Places the tasks in their order, each on the cluster with the least key among those that can take it, ties by the smaller
    /// index. `rate` sets the key of each of these, except of those that it knows to lose; it must leave the engine as it was.
    pub(in crate::place) fn place(
        &mut self,
        problem: &Problem<'_>,
        detail: Detail,
        rate: impl FnMut(&mut Engine<C>, TaskIndex, &mut [Key]),
    ) -> Result<Planned, Infeasible> {
        let mut report = Report::default();
        self.run(
            problem,
            (detail == Detail::Full).then_some(&mut report),
            rate,
        )?;
        Ok(Planned {
            plan: self.plan(problem),
            report,
        })
    }

    /// [`List::place`] without a report, into the buffers of an existing plan.
    pub(in crate::place) fn place_into(
        &mut self,
        problem: &Problem<'_>,
        plan: &mut Plan,
        rate: impl FnMut(&mut Engine<C>, TaskIndex, &mut [Key]),
    ) -> Result<(), Infeasible> {
        self.run(problem, None, rate)?;
        plan.fill(problem, self.engine.placements(), &self.order.tasks);
        Ok(())
    }

    fn run(
        &mut self,
        problem: &Problem<'_>,
        mut report: Option<&mut Report>,
        mut rate: impl FnMut(&mut Engine<C>, TaskIndex, &mut [Key]),
    ) -> Result<(), Infeasible> {
        for at in 0..self.order.tasks.len() {
            let task = self.order.tasks[at];
            self.engine.take_up(problem, task);
            let chosen = self
                .choose(task, &mut rate)
                .ok_or_else(|| self.engine.refuse(problem, task))?;
            if let Some(report) = &mut report {
                let score = self.scores[task.get()];
                let explained = TaskReport::new(problem, &self.engine, task, score, chosen);
                report.tasks.push(explained);
            }
            self.engine.put(problem, task, chosen);
        }
        Ok(())
    }

    /// The cluster with the least key for the current task; `None` if no cluster can take it.
    pub(in crate::place) fn choose(
        &mut self,
        task: TaskIndex,
        mut rate: impl FnMut(&mut Engine<C>, TaskIndex, &mut [Key]),
    ) -> Option<usize> {
        self.keys.clear();
        self.keys.resize(self.engine.clusters(), Key::NEVER);
        rate(&mut self.engine, task, &mut self.keys);
        let (mut least, mut chosen) = (Key::NEVER, None);
        for (cluster, &key) in self.keys.iter().enumerate() {
            if key < least {
                (least, chosen) = (key, Some(cluster));
            }
        }
        chosen
    }

    /// The placements made so far, as a plan.
    pub(in crate::place) fn plan(&self, problem: &Problem<'_>) -> Plan {
        let placements = self.engine.placements().to_vec();
        Plan::new(problem, placements, self.order.tasks.clone())
    }
}

impl List<Timeline> {
    /// Undoes the placements of a job that cannot be placed completely.
    pub(in crate::place) fn take_back(&mut self, problem: &Problem<'_>) {
        for at in (0..self.order.tasks.len()).rev() {
            let task = self.order.tasks[at];
            if self.engine.is_placed(task) {
                self.engine.undo(problem, task);
            }
        }
    }
}

/// The earliest-finish rule, with the way back for exits if the options say so: formulas (4) and (7). Clusters that could not win even
/// without waiting for resources are skipped.
pub(in crate::place) fn earliest_finish<C: Calendar>(
    problem: &Problem<'_>,
) -> impl FnMut(&mut Engine<C>, TaskIndex, &mut [Key]) {
    move |engine, _, keys| {
        let mut least = f64::INFINITY;
        for (cluster, key) in keys.iter_mut().enumerate() {
            if engine.least_key(problem, cluster) >= least {
                continue;
            }
            let candidate = engine.candidate(problem, cluster);
            if candidate.excluded.is_none() {
                *key = Key(candidate.key, 0.0);
                least = least.min(candidate.key);
            }
        }
    }
}
