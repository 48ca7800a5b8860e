//! The state of the search: the order of the tasks, the cluster of each, and the free resources that this leaves.

use fdn_core::Resources;
use rand::{Rng, RngExt};

use super::super::model::ClusterIndex;
use super::super::plan::Plan;
use super::super::problem::{Hold, Problem};
use super::super::replay::by_start;
use crate::dag::TaskIndex;

/// The probability that a change is drawn for a task of the chain that determines the latency.
const ON_CHAIN: f64 = 0.8;

/// A topological order of the tasks and a cluster for each.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The tasks, first to place first.
    pub(super) order: Vec<TaskIndex>,
    /// By task: its cluster.
    cluster: Vec<usize>,
    /// By task: its position in the order.
    position: Vec<usize>,
    /// By cluster: the free resources beside the tasks assigned to it.
    free: Vec<Resources>,
    /// The clusters that take part; see the module [`crate::place`].
    usable: Vec<usize>,
}

/// A change of the state; swapping `from` and `to` gives the one that undoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// A task goes to another cluster.
    Cluster {
        /// The task.
        task: TaskIndex,
        /// Its current cluster.
        from: usize,
        /// Its new cluster.
        to: usize,
    },
    /// A task goes to another position in the order.
    Order {
        /// Its current position.
        from: usize,
        /// Its new position.
        to: usize,
    },
}

impl State {
    /// The clusters that take part.
    pub(super) fn usable(&self) -> &[usize] {
        &self.usable
    }

    /// The cluster of a task.
    pub(super) fn cluster(&self, task: TaskIndex) -> usize {
        self.cluster[task.get()]
    }

    /// Starts from a plan of the problem.
    pub(super) fn begin(&mut self, problem: &Problem<'_>, plan: &Plan) {
        let barred = problem.cluster_exclusion();
        self.usable.clear();
        let open = |p: &usize| barred(*p).is_none();
        self.usable
            .extend((0..problem.clusters().len()).filter(open));
        by_start(plan, &mut self.order);
        self.position.clear();
        self.position.resize(self.order.len(), 0);
        for (at, task) in self.order.iter().enumerate() {
            self.position[task.get()] = at;
        }
        self.cluster.clear();
        let placements = plan.placements().iter();
        self.cluster
            .extend(placements.map(|placement| placement.cluster.get()));
        self.free.clear();
        self.free
            .extend(problem.clusters().iter().map(|cluster| cluster.free));
        if problem.options().hold == Hold::Job {
            for (at, &cluster) in self.cluster.iter().enumerate() {
                let demand = &problem.dag().task(TaskIndex::new(at)).demand;
                let left = self.free[cluster].checked_sub(demand);
                self.free[cluster] = left.expect("a plan keeps to what is free");
            }
        }
    }

    /// Copies the order and the clusters of another state of the same job.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.order.clone_from(&other.order);
        self.cluster.clone_from(&other.cluster);
    }

    /// Draws a feasible change: with probability 1/2 of the order, else of a cluster, half of these to the cluster of a neighbour in the DAG.
    /// `None` if the draw yields no change.
    pub(super) fn draw(
        &self,
        problem: &Problem<'_>,
        chain: &[TaskIndex],
        rng: &mut impl Rng,
    ) -> Option<Move> {
        let tasks = if rng.random_bool(ON_CHAIN) {
            chain
        } else {
            &self.order
        };
        let task = tasks[rng.random_range(0..tasks.len())];
        match rng.random_range(0..4u8) {
            0 | 1 => self.draw_order(problem, task, rng),
            2 => {
                let to = self.usable[rng.random_range(0..self.usable.len())];
                self.change(problem, task, to)
            }
            _ => {
                let to = self.cluster(neighbour(problem, task, rng)?);
                self.change(problem, task, to)
            }
        }
    }

    /// Another position between the last parent and the first child.
    fn draw_order(
        &self,
        problem: &Problem<'_>,
        task: TaskIndex,
        rng: &mut impl Rng,
    ) -> Option<Move> {
        let position = |(task, _): (TaskIndex, _)| self.position[task.get()];
        let dag = problem.dag();
        let first = dag.parents(task).map(|p| position(p) + 1).max();
        let last = dag.children(task).map(position).min();
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(self.order.len()));
        let from = self.position[task.get()];
        let to = rng.random_range(first..last);
        (from != to).then_some(Move::Order { from, to })
    }

    /// The move of a task to a cluster, if that is another one and has the resources.
    fn change(&self, problem: &Problem<'_>, task: TaskIndex, to: usize) -> Option<Move> {
        let from = self.cluster(task);
        let demand = &problem.dag().task(task).demand;
        let fits = demand.fits(&self.free[to]) && demand.fits(&problem.clusters()[to].largest);
        let runs = || problem.work(task, ClusterIndex::new(to)).is_finite();
        (from != to && fits && runs()).then_some(Move::Cluster { task, from, to })
    }

    /// Makes a change; returns the first position in the order from which on the schedule differs.
    pub(super) fn apply(&mut self, problem: &Problem<'_>, change: Move) -> usize {
        match change {
            Move::Cluster { task, from, to } => {
                self.cluster[task.get()] = to;
                if problem.options().hold == Hold::Job {
                    let demand = &problem.dag().task(task).demand;
                    self.free[from] = self.free[from].saturating_add(demand);
                    let left = self.free[to].checked_sub(demand);
                    self.free[to] = left.expect("only a cluster with room is drawn");
                }
                self.position[task.get()]
            }
            Move::Order { from, to } => {
                let (first, last) = (from.min(to), from.max(to));
                let moved = &mut self.order[first..=last];
                if from < to {
                    moved.rotate_left(1);
                } else {
                    moved.rotate_right(1);
                }
                for (at, task) in (first..).zip(moved) {
                    self.position[task.get()] = at;
                }
                first
            }
        }
    }

    /// Undoes a change.
    pub(super) fn undo(&mut self, problem: &Problem<'_>, change: Move) {
        let back = match change {
            Move::Cluster { task, from, to } => Move::Cluster {
                task,
                from: to,
                to: from,
            },
            Move::Order { from, to } => Move::Order { from: to, to: from },
        };
        self.apply(problem, back);
    }
}

/// A parent or child, drawn; `None` if a task has neither.
fn neighbour(problem: &Problem<'_>, task: TaskIndex, rng: &mut impl Rng) -> Option<TaskIndex> {
    let dag = problem.dag();
    let all = || dag.parents(task).chain(dag.children(task));
    let count = all().count();
    if count == 0 {
        return None;
    }
    all().nth(rng.random_range(0..count)).map(|(task, _)| task)
}
