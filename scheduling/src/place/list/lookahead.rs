//! HEFT with a lookahead of one step.
//!
//! **Problem.** As PEFT's: choose a cluster that is also good for the tasks that follow, here by trying.
//!
//! **Source.** Bittencourt, Sakellariou, Madeira, "DAG Scheduling Using a Lookahead Variant of the Heterogeneous Earliest Finish
//! Time Algorithm", Euromicro PDP 2010.
//!
//! 1. Order the tasks by upward rank, as HEFT.
//! 2. For each in order and each cluster: put the task there, then its children, highest rank first, each where it finishes first. Choose
//!    the cluster on which the last of the children finishes first; undo everything else.
//!
//! **Readings.** A child's parents that are not placed yet are ignored. Exits have no children: they go where they finish first. Ties:
//! the cluster on which the task itself finishes first, then the smaller index. A cluster after which no cluster could take some child is
//! worse than every other.
//!
//! **Complexity.** Each edge `(c,s)` costs O(n) times what HEFT spends on `s`: O(n^2 |E| k log m + n |E| deg) for in-degrees up to
//! `deg`.
//!
//! **Invariants.** Those of Heu-Orche; what is tried leaves no trace.

use super::super::engine::{Candidate, Engine};
use super::super::timeline::Timeline;
use super::super::{Detail, Infeasible, Placer, Planned, Problem, Score};
use super::{Key, List};
use crate::dag::TaskIndex;

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug, Default)]
pub struct Lookahead {
    list: List<Timeline>,
    trial: Trial,
}

impl Placer for Lookahead {
    fn name(&self) -> &'static str {
        "lookahead"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        let Self { list, trial } = self;
        list.begin(problem);
        list.order_by_rank(problem, Score::Normal);
        trial.begin(&list.order.tasks);
        list.place(problem, detail, |engine, task, keys| {
            trial.rate(problem, engine, task, keys);
        })
    }
}

/// Buffers for a trial.
#[derive(Debug, Default)]
struct Trial {
    /// By task: its position in the order.
    position: Vec<usize>,
    candidates: Vec<Candidate>,
    children: Vec<TaskIndex>,
    placed: Vec<TaskIndex>,
}

impl Trial {
    fn begin(&mut self, order: &[TaskIndex]) {
        self.position.clear();
        self.position.resize(order.len(), 0);
        for (at, task) in order.iter().enumerate() {
            self.position[task.get()] = at;
        }
    }

    fn rate(
        &mut self,
        problem: &Problem<'_>,
        engine: &mut Engine<Timeline>,
        task: TaskIndex,
        keys: &mut [Key],
    ) {
        let clusters = 0..keys.len();
        self.candidates.clear();
        self.candidates
            .extend(clusters.map(|p| engine.candidate(problem, p)));
        self.children.clear();
        let children = problem.dag().children(task).map(|(child, _)| child);
        self.children.extend(children);
        self.children
            .sort_unstable_by_key(|child| self.position[child.get()]);
        for (p, key) in keys.iter_mut().enumerate() {
            let candidate = self.candidates[p];
            if candidate.excluded.is_some() {
                continue;
            }
            let last = if self.children.is_empty() {
                candidate.key
            } else {
                engine.commit(problem, task, p, &candidate);
                let last = self.last_child(problem, engine);
                engine.undo(problem, task);
                last
            };
            *key = Key(last, candidate.key);
        }
        engine.take_up(problem, task);
    }

    /// When the last of the children finishes, each put where it finishes first. Undoes all its placements.
    fn last_child(&mut self, problem: &Problem<'_>, engine: &mut Engine<Timeline>) -> f64 {
        let mut last: f64 = 0.0;
        self.placed.clear();
        for &child in &self.children {
            engine.take_up(problem, child);
            let mut best: Option<(usize, Candidate)> = None;
            for p in 0..engine.clusters() {
                let candidate = engine.candidate(problem, p);
                let least = best.map_or(f64::INFINITY, |(_, best)| best.key);
                if candidate.excluded.is_none() && candidate.key < least {
                    best = Some((p, candidate));
                }
            }
            let Some((p, candidate)) = best else {
                last = f64::MAX;
                break;
            };
            engine.commit(problem, child, p, &candidate);
            self.placed.push(child);
            last = last.max(candidate.key);
        }
        for &child in self.placed.iter().rev() {
            engine.undo(problem, child);
        }
        last
    }
}
