//! A lower bound of the latency of every plan.
//!
//! **Problem.** How far from the best a plan is cannot be said without knowing the best, which is NP-hard to find; a lower bound says
//! how far it is at most.
//!
//! **Source.** The two bounds of list scheduling since Graham (SIAM J. Appl. Math. 17(2), 1969): the critical path, and the total work
//! divided by the processing capacity; extended by the user's distance, slots that are already taken, and speeds.
//!
//! 1. Path: no task ends before the longest path to it has run, each task at the fastest cluster that could ever take it, without
//!    transfers; the first starts no earlier than the request and a slot are there, and the last answer has to go back.
//! 2. Work: by the time the last task ends, the slots together have done all work. Nothing starts before the request has reached the nearest
//!    cluster, and nothing in a slot before it is free.
//!
//! **Complexity.** O(n m + |E|) for n clusters and m tasks, and sorting the slots.
//!
//! **Invariants.** No plan that the checker accepts has a lower latency (but for rounding).

use fdn_core::Millis;

use super::model::ClusterIndex;
use super::problem::Problem;
use crate::dag::TaskIndex;

/// A lower bound of the latency (formula 5) of every plan; [`Millis::INFINITY`] if no cluster could ever take some task.
#[must_use]
pub fn lower_bound(problem: &Problem<'_>) -> Millis {
    let bound = Bound::new(problem);
    bound.path().max(bound.work())
}

/// What both bounds need.
struct Bound<'p> {
    problem: &'p Problem<'p>,
    /// The clusters that take part.
    usable: Vec<usize>,
    /// By task: its least run time on a cluster that could take it.
    fastest: Vec<f64>,
}

impl<'p> Bound<'p> {
    fn new(problem: &'p Problem<'p>) -> Self {
        let barred = problem.cluster_exclusions();
        let clusters = 0..problem.clusters().len();
        let mut bound = Self {
            problem,
            usable: clusters.filter(|&p| barred[p].is_none()).collect(),
            fastest: Vec::new(),
        };
        let fastest = |task| least(bound.homes(task).map(|p| bound.time(task, p)));
        bound.fastest = problem.dag().indices().map(fastest).collect();
        bound
    }

    /// The clusters that could take a task if nothing else were placed.
    fn homes(&self, task: TaskIndex) -> impl Iterator<Item = usize> {
        let demand = &self.problem.dag().task(task).demand;
        self.usable.iter().copied().filter(move |&p| {
            let cluster = &self.problem.clusters()[p];
            demand.fits(&cluster.free) && demand.fits(&cluster.largest)
        })
    }

    fn time(&self, task: TaskIndex, cluster: usize) -> f64 {
        self.problem.work(task, ClusterIndex::new(cluster)).get()
    }

    fn distance(&self, cluster: usize) -> f64 {
        self.problem.distance()[cluster].get()
    }

    /// The path bound: from sending the request to the last answer along the longest path.
    fn path(&self) -> Millis {
        let dag = self.problem.dag();
        let mut tails = vec![0.0_f64; dag.len()];
        for &task in dag.topological().iter().rev() {
            let own = self.fastest[task.get()];
            let rest = dag.children(task).map(|(child, _)| tails[child.get()]);
            tails[task.get()] = if dag.is_exit(task) {
                least(
                    self.homes(task)
                        .map(|p| self.time(task, p) + self.distance(p)),
                )
            } else {
                own + rest.fold(0.0, f64::max)
            };
        }
        let entry = dag.entry();
        let behind = dag.children(entry).map(|(child, _)| tails[child.get()]);
        let behind = behind.fold(0.0, f64::max);
        Millis::new(least(self.homes(entry).map(|p| {
            let back = if dag.is_exit(entry) {
                self.distance(p)
            } else {
                0.0
            };
            // An entry in front of several takes no slot: only those behind it wait for one.
            let wait = if dag.virtual_entry() == Some(entry) {
                self.distance(p)
            } else {
                self.wait(p)
            };
            wait + self.time(entry, p) + behind + back
        })))
    }

    /// From sending the request until it is at a cluster and a slot is free there.
    fn wait(&self, cluster: usize) -> f64 {
        let free = self.problem.clusters()[cluster].slots.earliest().get();
        (free - self.problem.arrival().get()).max(self.distance(cluster))
    }

    /// The work bound: from sending the request until all work is done and the nearest answer is back.
    fn work(&self) -> Millis {
        let (mut slots, work) = self.capacity();
        if work.is_infinite() {
            return Millis::INFINITY;
        }
        slots.sort_by(|a, b| a.0.total_cmp(&b.0));
        let nearest = least(self.usable.iter().map(|&p| self.distance(p)));
        // With the first `i` slots working: rate * (end - start), summed, is the work. The right `i` gives the least end.
        let (mut rate, mut lost) = (0.0, 0.0);
        let end = least(slots.into_iter().map(|(start, speed)| {
            rate += speed;
            lost += start * speed;
            (work + lost) / rate
        }));
        Millis::new(if work > 0.0 { end + nearest } else { 0.0 })
    }

    /// For each slot, when it can first work for this job and how fast; and the total work. With run times given per cluster ([`super::Costs`]),
    /// every slot has speed 1 and every task counts with its least run time.
    fn capacity(&self) -> (Vec<(f64, f64)>, f64) {
        let problem = self.problem;
        let request = least(self.usable.iter().map(|&p| self.distance(p)));
        let mut slots = Vec::new();
        for &p in &self.usable {
            let cluster = &problem.clusters()[p];
            let speed = if problem.has_costs() {
                1.0
            } else {
                cluster.speed.get()
            };
            let free = cluster
                .slots
                .available()
                .into_iter()
                .filter(|at| at.is_finite());
            let start = |at: Millis| (at.get() - problem.arrival().get()).max(request);
            slots.extend(free.map(|at| (start(at), speed)));
        }
        let work = |(task, fastest): (TaskIndex, &f64)| {
            if problem.has_costs() || fastest.is_infinite() {
                *fastest
            } else {
                problem.dag().task(task).work.get()
            }
        };
        let total = problem.dag().indices().zip(&self.fastest).map(work).sum();
        (slots, total)
    }
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}
