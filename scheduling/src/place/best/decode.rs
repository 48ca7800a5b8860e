//! Turns an order of the tasks and a cluster for each into a schedule: each task in turn starts as early as it can, gaps included.
//!
//! The placed tasks form a stack, so that a schedule that shares its beginning with the previous one is continued from there.

use std::cmp::Reverse;

use fdn_core::{Millis, Resources};

use super::super::calendar::{Calendar, HeldResources, SlotRequest, resize};
use super::super::model::ClusterIndex;
use super::super::plan::Placement;
use super::super::problem::{Hold, Problem};
use super::super::timeline::Timeline;
use crate::dag::{TaskIndex, Transfer};

/// A schedule that grows and shrinks at its end only.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    sites: Vec<Timeline>,
    spare: Vec<Timeline>,
    /// By task; meaningful for the tasks on the stack.
    placed: Vec<Placement>,
    stack: Vec<TaskIndex>,
    /// By task: a lower bound of the time from its finish to the last answer.
    rest: Vec<f64>,
}

impl Decoder {
    /// Starts an empty schedule on the clusters in the state that the problem gives.
    pub(super) fn begin(&mut self, problem: &Problem<'_>, usable: &[usize]) {
        let tasks = problem.dag().len();
        resize(&mut self.sites, &mut self.spare, problem.clusters().len());
        for (site, cluster) in self.sites.iter_mut().zip(problem.clusters()) {
            site.begin(&cluster.slots);
        }
        self.stack.clear();
        self.placed.clear();
        self.placed.resize(tasks, Placement::default());
        self.fill_rest(problem, usable);
    }

    fn fill_rest(&mut self, problem: &Problem<'_>, usable: &[usize]) {
        let dag = problem.dag();
        self.rest.clear();
        self.rest.resize(dag.len(), 0.0);
        let least = |value: &dyn Fn(usize) -> f64| {
            let values = usable.iter().map(|&p| value(p));
            values.fold(f64::INFINITY, f64::min)
        };
        let nearest = least(&|p| problem.distance()[p].get());
        for &task in dag.topological().iter().rev() {
            let after = self.rest[task.get()].max(nearest);
            self.rest[task.get()] = after;
            let fastest = least(&|p| problem.work(task, ClusterIndex::new(p)).get());
            for (parent, _) in dag.parents(task) {
                let rest = &mut self.rest[parent.get()];
                *rest = rest.max(fastest + after);
            }
        }
    }

    /// How many tasks are placed.
    pub(super) fn len(&self) -> usize {
        self.stack.len()
    }

    /// Takes tasks off the stack until `len` are left.
    pub(super) fn rewind(&mut self, len: usize) {
        while self.stack.len() > len {
            if let Some(task) = self.stack.pop() {
                let Placement {
                    cluster,
                    slot,
                    start,
                    finish,
                } = self.placed[task.get()];
                self.sites[cluster.get()].release(slot, start.get(), finish.get());
            }
        }
    }

    /// Places one more task, whose parents are placed. Returns a lower bound of the latency of every schedule that continues from
    /// here; `None`, and nothing is placed, if the task would never finish.
    pub(super) fn push(
        &mut self,
        problem: &Problem<'_>,
        task: TaskIndex,
        cluster: usize,
    ) -> Option<f64> {
        let demand = &problem.dag().task(task).demand;
        let hold = problem.options().hold;
        let held = (hold == Hold::Task).then(|| HeldResources {
            demand,
            free: &problem.clusters()[cluster].free,
        });
        let ready = self.ready(problem, task, cluster);
        let work = problem.work(task, ClusterIndex::new(cluster)).get();
        let site = &mut self.sites[cluster];
        let start = site.earliest(&SlotRequest { ready, work, held });
        let finish = start + work;
        if !finish.is_finite() {
            return None;
        }
        let held = match hold {
            Hold::Task => *demand,
            Hold::Job => Resources::default(),
        };
        let slot = site.occupy(start, finish, held);
        self.placed[task.get()] = Placement {
            cluster: ClusterIndex::new(cluster),
            slot,
            start: Millis::new(start),
            finish: Millis::new(finish),
        };
        self.stack.push(task);
        Some(if problem.dag().is_exit(task) {
            finish + problem.distance()[cluster].get()
        } else {
            finish + self.rest[task.get()]
        })
    }

    /// Collects, once all tasks are placed, the chain of tasks that determines the latency, starting from the exit with the last
    /// answer: each waits for the next one's data or for its slot. Only changes to these tasks can shorten the latency.
    pub(super) fn fill_chain(&self, problem: &Problem<'_>, chain: &mut Vec<TaskIndex>) {
        chain.clear();
        let exits = problem.dag().exits().iter().copied();
        let mut next = exits.max_by_key(|exit| (self.answer(problem, *exit), Reverse(*exit)));
        while let Some(task) = next {
            chain.push(task);
            let cause = self.late_parent(problem, task);
            next = cause.or_else(|| self.before_in_slot(task));
        }
    }

    /// When the answer of an exit reaches the user.
    pub(super) fn answer(&self, problem: &Problem<'_>, exit: TaskIndex) -> Millis {
        let placed = &self.placed[exit.get()];
        placed.finish + problem.distance()[placed.cluster.get()]
    }

    /// The parent whose data arrives last and so determines the start of a task.
    fn late_parent(&self, problem: &Problem<'_>, task: TaskIndex) -> Option<TaskIndex> {
        let at = &self.placed[task.get()];
        let mut parents = problem.dag().parents(task);
        let late = parents.find(|(parent, transfer)| {
            self.arrival(problem, *parent, *transfer, at.cluster.get()) >= at.start.get()
        });
        late.map(|(parent, _)| parent)
    }

    /// The task that ends in the same slot at the moment this one starts.
    fn before_in_slot(&self, task: TaskIndex) -> Option<TaskIndex> {
        let at = &self.placed[task.get()];
        let ends_there = |other: &&TaskIndex| {
            let other = &self.placed[other.get()];
            (other.cluster, other.slot, other.finish) == (at.cluster, at.slot, at.start)
                && other.start < other.finish
        };
        self.stack.iter().find(ends_there).copied()
    }

    /// When the data of a parent arrives on a cluster.
    fn arrival(
        &self,
        problem: &Problem<'_>,
        parent: TaskIndex,
        transfer: Transfer,
        cluster: usize,
    ) -> f64 {
        let from = &self.placed[parent.get()];
        let home = from.cluster.get();
        let omega = match transfer {
            _ if home == cluster => 0.0,
            Transfer::Fixed(time) => time.get(),
            Transfer::Data(size) => {
                let link = problem.network();
                link.time(home, cluster, size.as_bytes()).get()
            }
        };
        from.finish.get() + omega
    }

    /// When all input data of a task has arrived on a cluster.
    fn ready(&self, problem: &Problem<'_>, task: TaskIndex, cluster: usize) -> f64 {
        let arrival = problem.arrival().get();
        if task == problem.dag().entry() {
            return arrival + problem.distance()[cluster].get();
        }
        let parents = problem.dag().parents(task);
        parents.fold(arrival, |ready, (parent, transfer)| {
            ready.max(self.arrival(problem, parent, transfer, cluster))
        })
    }
}
