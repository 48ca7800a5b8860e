//! The order in which a job's tasks are placed: formula (6).
//!
//! `score(c) = wbar(c) + max over s in succ(c) of (omega(c,s) + score(s))`, for exits `wbar(c)`: the mean length of the longest
//! path from the task to the end, known as HEFT's upward rank (Topcuoglu, Hariri and Wu, "Performance-Effective and Low-Complexity
//! Task Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002, section 4.1). Means are taken over the clusters that take part
//! (see the parent module); with transfer times that differ by pair, omega is the mean over ordered pairs of different clusters.
//!
//! Highest score first, ties by the smaller index, but never a child before its parent (with zero work they can tie): a task enters the
//! queue only when its parents have left it. Scores that differ by rounding alone must tie, so that the index decides and not the noise
//! of a sum: they are compared to 40 binary digits. O(n log n + |E|).

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::Millis;

use super::problem::{Problem, Score};
use crate::dag::{Dag, TaskIndex, Transfer};

/// The score of each task by formula (6), in ms, indexed by task.
#[must_use]
pub fn scores(problem: &Problem<'_>) -> Vec<Millis> {
    let barred = problem.cluster_exclusions();
    let mut scores = Vec::new();
    fill_scores(problem, |p| barred[p].is_none(), &mut scores);
    scores
}

pub(super) fn fill_scores(
    problem: &Problem<'_>,
    usable: impl Fn(usize) -> bool,
    scores: &mut Vec<Millis>,
) {
    let dag = problem.dag();
    let omega = mean_transfer(problem, &usable);
    let work = problem.mean_work(&usable);
    fill_upward(dag, work, omega, scores);
}

/// Formula (6) from the mean costs of tasks and transfers.
pub(crate) fn fill_upward(
    dag: &Dag,
    work: impl Fn(TaskIndex) -> f64,
    omega: impl Fn(Transfer) -> f64,
    scores: &mut Vec<Millis>,
) {
    scores.clear();
    scores.resize(dag.len(), Millis::ZERO);
    for &task in dag.topological().iter().rev() {
        let tail = dag
            .children(task)
            .map(|(child, transfer)| omega(transfer) + scores[child.get()].get())
            .fold(0.0, f64::max);
        scores[task.get()] = Millis::new(work(task) + tail);
    }
}

/// The mean `omega` of an edge over the ordered pairs of different clusters. It looks at every pair, but only if some transfer
/// depends on them.
pub(super) fn mean_transfer(
    problem: &Problem<'_>,
    usable: impl Fn(usize) -> bool,
) -> impl Fn(Transfer) -> f64 {
    let link = OnceCell::new();
    move |transfer| match transfer {
        Transfer::Fixed(time) => time.get(),
        Transfer::Data(size) => {
            let (latency, per_byte) = link.get_or_init(|| problem.network().mean(&usable));
            latency + size.as_bytes() as f64 * per_byte
        }
    }
}

/// A score rounded to 40 binary digits, which removes the rounding error of its sum.
pub(super) fn without_noise(score: Millis) -> Millis {
    const NOISE: u64 = (1 << 12) - 1;
    let score = score.get();
    if !score.is_finite() {
        return Millis::new(score);
    }
    // The carry of rounding up runs into the exponent, as it should.
    Millis::new(f64::from_bits((score.to_bits() + NOISE / 2 + 1) & !NOISE))
}

/// Buffers for computing the order, kept from job to job.
#[derive(Debug, Default)]
pub(super) struct Order {
    waiting: Vec<u32>,
    ready: BinaryHeap<(Rank, Reverse<TaskIndex>)>,
    /// The tasks, in the order of placement.
    pub(super) tasks: Vec<TaskIndex>,
}

/// A score as a sort key: the largest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Normal(Millis),
    Inverse(Reverse<Millis>),
}

impl Order {
    /// Orders a job's tasks by score.
    pub(super) fn fill(&mut self, dag: &Dag, scores: &[Millis], first: Score) {
        let rank = |task: TaskIndex| {
            let score = without_noise(scores[task.get()]);
            let rank = match first {
                Score::Normal => Rank::Normal(score),
                Score::Inverse => Rank::Inverse(Reverse(score)),
            };
            (rank, Reverse(task))
        };
        self.tasks.clear();
        self.ready.clear();
        self.waiting.clear();
        self.waiting.resize(dag.len(), 0);
        for task in dag.indices() {
            for (child, _) in dag.children(task) {
                self.waiting[child.get()] += 1;
            }
        }
        self.ready.push(rank(dag.entry()));
        while let Some((_, Reverse(task))) = self.ready.pop() {
            self.tasks.push(task);
            for (child, _) in dag.children(task) {
                let waiting = &mut self.waiting[child.get()];
                *waiting -= 1;
                if *waiting == 0 {
                    self.ready.push(rank(child));
                }
            }
        }
    }
}
