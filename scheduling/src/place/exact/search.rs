//! The search itself; see the parent module for what it does and why it is complete.

use fdn_core::{Millis, Resources};

use super::super::model::ClusterIndex;
use super::super::plan::{Placement, Plan};
use super::super::problem::Problem;
use super::site::Site;
use crate::dag::{TaskIndex, Transfer};

/// Relative tolerance within which two latencies count as equal.
const ROUNDING: f64 = 1e-12;

/// What is known of a task before the search; times in ms.
#[derive(Debug)]
struct Job {
    index: TaskIndex,
    demand: Resources,
    parents: Vec<(usize, Transfer)>,
    children: Vec<usize>,
    is_exit: bool,
    /// By cluster: its run time.
    work: Vec<f64>,
    /// By cluster: a lower bound of the time from its finish there to the user's answer.
    rest: Vec<f64>,
    /// A lower bound of the time from its start to the user's answer.
    tail: f64,
    /// Its run time on the cluster that is fastest for it.
    least_work: f64,
}

/// One more task on a cluster.
#[derive(Clone, Copy, Debug)]
struct Branch {
    bound: f64,
    task: usize,
    cluster: usize,
    start: f64,
    finish: f64,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct Search<'p> {
    problem: &'p Problem<'p>,
    jobs: Vec<Job>,
    /// By cluster; `None` for one that takes no part.
    sites: Vec<Option<Site>>,
    /// By task: where it is placed, `None` if it is not; `waiting` counts its parents that are not.
    placed: Vec<Option<Placement>>,
    waiting: Vec<usize>,
    order: Vec<usize>,
    /// By cluster: an upper bound of its speed, in units of [`Job::least_work`] per ms.
    rates: Vec<f64>,
    /// The distance of the nearest cluster from the user, in ms.
    nearest: f64,
    /// The latency to beat: that of the best plan known, less the rounding tolerance.
    limit: f64,
    /// The best plan, if the search itself found it.
    found: Option<(Vec<Placement>, Vec<TaskIndex>)>,
    nodes: u64,
    nodes_max: u64,
    cut_short: bool,
}

impl<'p> Search<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, nodes_max: u64) -> Self {
        let dag = problem.dag();
        let hold = problem.options().hold;
        let barred = problem.cluster_exclusions();
        let open = |p: usize| barred[p].is_none();
        let site = |p: usize| Site::new(&problem.clusters()[p], dag.len(), hold);
        let sites = (0..barred.len()).map(|p| open(p).then(|| site(p)));
        let jobs = jobs(problem, &open);
        let rates = (0..barred.len()).map(|p| rate(&jobs, p)).collect();
        let distances = problem.distance().iter().map(|d| d.get());
        let nearest = distances.fold(f64::INFINITY, f64::min);
        Self {
            problem,
            jobs,
            sites: sites.collect(),
            placed: vec![None; dag.len()],
            waiting: dag
                .indices()
                .map(|task| dag.parents(task).count())
                .collect(),
            order: Vec::with_capacity(dag.len()),
            rates,
            nearest,
            limit: f64::INFINITY,
            found: None,
            nodes: 0,
            nodes_max,
            cut_short: false,
        }
    }

    /// Restricts the search to plans better than this one.
    pub(super) fn begin_with(&mut self, plan: &Plan) {
        let answers = self.problem.dag().exits().iter().map(|exit| {
            let Placement {
                cluster, finish, ..
            } = plan.placement(*exit);
            finish.get() + self.problem.distance()[cluster.get()].get()
        });
        self.set_limit(answers.fold(f64::NEG_INFINITY, f64::max));
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes
    }

    pub(super) fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The best plan, if one was found.
    pub(super) fn into_plan(self) -> Option<Plan> {
        let (placements, order) = self.found?;
        Some(Plan::new(self.problem, placements, order))
    }

    /// Runs the search until it is complete or the node limit is reached.
    pub(super) fn run(&mut self) {
        self.visit(f64::NEG_INFINITY, None);
    }

    /// Follows the branches of a node whose last task, on the given cluster, started at `last`.
    fn visit(&mut self, last: f64, previous: Option<(usize, usize)>) {
        if self.order.len() == self.jobs.len() {
            self.keep();
            return;
        }
        let mut branches = self.branches(last, previous);
        branches.sort_by(|a, b| a.bound.total_cmp(&b.bound));
        for branch in branches {
            if branch.bound >= self.limit {
                return;
            }
            if self.nodes == self.nodes_max {
                self.cut_short = true;
            }
            if self.cut_short {
                return;
            }
            self.nodes += 1;
            self.follow(&branch);
        }
    }

    fn follow(&mut self, branch: &Branch) {
        let &Branch {
            task,
            cluster,
            start,
            finish,
            ..
        } = branch;
        let demand = self.jobs[task].demand;
        let hold = self.problem.options().hold;
        let site = self.sites[cluster].as_mut().expect("a branch has a site");
        let (slot, undo) = site.put(start, finish, &demand, hold);
        self.placed[task] = Some(Placement {
            cluster: ClusterIndex::new(cluster),
            slot,
            start: Millis::new(start),
            finish: Millis::new(finish),
        });
        self.order.push(task);
        self.release_children(task, true);
        self.visit(start, Some((task, cluster)));
        self.release_children(task, false);
        self.order.pop();
        self.placed[task] = None;
        let site = self.sites[cluster].as_mut().expect("a branch has a site");
        site.undo(undo);
    }

    fn release_children(&mut self, task: usize, done: bool) {
        for &child in &self.jobs[task].children {
            let waiting = &mut self.waiting[child];
            *waiting = if done { *waiting - 1 } else { *waiting + 1 };
        }
    }

    /// Keeps a complete schedule that is better than the best known.
    fn keep(&mut self) {
        let answer = |job: &Job| {
            let placed = self.placed[job.index.get()].expect("all are placed");
            placed.finish.get() + job.rest[placed.cluster.get()]
        };
        let exits = self.jobs.iter().filter(|job| job.is_exit);
        let answer = exits.map(answer).fold(f64::NEG_INFINITY, f64::max);
        let placements = self
            .placed
            .iter()
            .map(|placed| placed.expect("all are placed"));
        let order = self.order.iter().map(|task| TaskIndex::new(*task));
        self.found = Some((placements.collect(), order.collect()));
        self.set_limit(answer);
    }

    fn set_limit(&mut self, best: f64) {
        self.limit = best - best.abs() * ROUNDING;
    }

    /// The branches of a node whose bound is below the limit.
    fn branches(&self, last: f64, previous: Option<(usize, usize)>) -> Vec<Branch> {
        let mut branches = Vec::new();
        let left = || (0..self.jobs.len()).filter(|task| self.placed[*task].is_none());
        if left().any(|task| self.is_homeless(task)) || self.is_too_much(last) {
            return branches;
        }
        let mut needed = f64::NEG_INFINITY;
        for task in left().filter(|task| self.waiting[*task] == 0) {
            let others = left().filter(|other| *other != task);
            let tail = others
                .map(|other| self.jobs[other].tail)
                .fold(f64::NEG_INFINITY, f64::max);
            let mut least = f64::INFINITY;
            for cluster in 0..self.sites.len() {
                if let Some((branch, answer)) = self.branch(task, cluster, last, tail) {
                    least = least.min(answer);
                    branches.push(branch);
                }
            }
            needed = needed.max(least);
        }
        for branch in &mut branches {
            branch.bound = branch.bound.max(needed);
        }
        branches.retain(|branch| {
            branch.start >= last
                && branch.bound < self.limit
                && !self.is_mirrored(branch, last, previous)
        });
        branches
    }

    /// Whether all slots together cannot do the remaining work, from `last` on, in time for a better answer.
    fn is_too_much(&self, last: f64) -> bool {
        let end = self.limit - self.nearest;
        let left = self.jobs.iter().zip(&self.placed);
        let left = left.filter(|(_, placed)| placed.is_none());
        let work: f64 = left.map(|(job, _)| job.least_work).sum();
        let sites = self.sites.iter().zip(&self.rates);
        let possible = sites.filter_map(|(site, rate)| Some(site.as_ref()?.idle(last, end) * rate));
        possible.sum::<f64>() <= work
    }

    /// Whether no cluster has the resources for a remaining task.
    fn is_homeless(&self, task: usize) -> bool {
        let demand = &self.jobs[task].demand;
        !self
            .sites
            .iter()
            .flatten()
            .any(|site| site.has_room(demand))
    }

    /// Evaluates a task on a cluster, if it can ever run there; also returns its earliest answer there if nothing starts before
    /// `last`. `tail` is the longest path from any other remaining task.
    fn branch(&self, task: usize, cluster: usize, last: f64, tail: f64) -> Option<(Branch, f64)> {
        let job = &self.jobs[task];
        let site = self.sites[cluster].as_ref()?;
        if !site.has_room(&job.demand) {
            return None;
        }
        let work = job.work[cluster];
        let start = site.earliest(self.ready(job, cluster), work, &job.demand);
        let finish = start + work;
        let branch = Branch {
            bound: (finish + job.rest[cluster]).max(start + tail),
            task,
            cluster,
            start,
            finish,
        };
        let answer = start.max(last) + work + job.rest[cluster];
        finish.is_finite().then_some((branch, answer))
    }

    /// When a task's data is on a cluster.
    fn ready(&self, job: &Job, cluster: usize) -> f64 {
        let arrival = self.problem.arrival().get();
        if job.index == self.problem.dag().entry() {
            return arrival + self.problem.distance()[cluster].get();
        }
        job.parents
            .iter()
            .fold(arrival, |ready, (parent, transfer)| {
                let placed = self.placed[*parent].expect("its parents are placed");
                let omega = omega(self.problem, *transfer, placed.cluster.get(), cluster);
                ready.max(placed.finish.get() + omega)
            })
    }

    /// Whether the same schedule follows with the last two tasks in the order of their indices.
    fn is_mirrored(&self, branch: &Branch, last: f64, previous: Option<(usize, usize)>) -> bool {
        previous.is_some_and(|(task, cluster)| {
            branch.start == last
                && branch.task < task
                && branch.cluster != cluster
                && !self.jobs[task].children.contains(&branch.task)
        })
    }
}

/// `omega(a,b)` from one cluster to another.
fn omega(problem: &Problem<'_>, transfer: Transfer, from: usize, to: usize) -> f64 {
    match transfer {
        _ if from == to => 0.0,
        Transfer::Fixed(time) => time.get(),
        Transfer::Data(size) => problem.network().time(from, to, size.as_bytes()).get(),
    }
}

/// The largest ratio, over all tasks, between a task's least run time and its run time on the cluster.
fn rate(jobs: &[Job], cluster: usize) -> f64 {
    let rate = |job: &Job| match job.work[cluster] {
        0.0 => 1.0,
        work => job.least_work / work,
    };
    jobs.iter().map(rate).fold(0.0, f64::max)
}

/// What is known of each task before the search, by index.
fn jobs(problem: &Problem<'_>, open: &dyn Fn(usize) -> bool) -> Vec<Job> {
    let dag = problem.dag();
    let clusters = 0..problem.clusters().len();
    let time = |task, p: usize| problem.work(task, ClusterIndex::new(p)).get();
    let mut jobs: Vec<Job> = dag
        .indices()
        .map(|task| Job {
            index: task,
            demand: dag.task(task).demand,
            parents: dag
                .parents(task)
                .map(|(parent, transfer)| (parent.get(), transfer))
                .collect(),
            children: dag.children(task).map(|(child, _)| child.get()).collect(),
            is_exit: dag.is_exit(task),
            work: clusters.clone().map(|p| time(task, p)).collect(),
            rest: Vec::new(),
            tail: 0.0,
            least_work: 0.0,
        })
        .collect();
    for &task in dag.topological().iter().rev() {
        let rest = |from: usize| {
            let shortest = |(child, transfer): (TaskIndex, Transfer)| {
                let child = &jobs[child.get()];
                let path =
                    |to| omega(problem, transfer, from, to) + child.work[to] + child.rest[to];
                clusters
                    .clone()
                    .filter(|&to| open(to))
                    .map(path)
                    .fold(f64::INFINITY, f64::min)
            };
            let longest = dag.children(task).map(shortest).fold(0.0, f64::max);
            let back = if dag.is_exit(task) {
                problem.distance()[from].get()
            } else {
                0.0
            };
            longest + back
        };
        let rest: Vec<f64> = clusters.clone().map(rest).collect();
        let job = &mut jobs[task.get()];
        let tails = clusters
            .clone()
            .filter(|&p| open(p))
            .map(|p| job.work[p] + rest[p]);
        job.tail = tails.fold(f64::INFINITY, f64::min);
        let work = clusters.clone().filter(|&p| open(p)).map(|p| job.work[p]);
        job.least_work = work.fold(f64::INFINITY, f64::min);
        job.rest = rest;
    }
    jobs
}
