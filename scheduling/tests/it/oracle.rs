//! Slow, simple second implementations that share no arithmetic with the placers.
//!
//! They hold for resources kept to the end of the job ([`Hold::Job`](fdn_scheduling::place::Hold::Job)).

use fdn_core::Resources;
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::place::{ClusterIndex, Detail, HeuOrche, Hold, Placer, Problem, heu_orche};
use proptest::prelude::*;

use crate::instance::raw;

/// A schedule under construction, in the plainest terms.
#[derive(Clone)]
struct Naive<'p> {
    problem: &'p Problem<'p>,
    slots: Vec<Vec<f64>>,
    free: Vec<Resources>,
    placed: Vec<Option<(usize, f64, f64)>>,
}

impl<'p> Naive<'p> {
    fn new(problem: &'p Problem<'p>) -> Self {
        let slots = |p: &fdn_scheduling::place::Cluster| {
            p.slots.available().iter().map(|t| t.get()).collect()
        };
        Self {
            problem,
            slots: problem.clusters().iter().map(slots).collect(),
            free: problem.clusters().iter().map(|p| p.free).collect(),
            placed: vec![None; problem.dag().len()],
        }
    }

    fn d(&self, p: usize) -> f64 {
        self.problem.distance()[p].get()
    }

    /// Start and finish of a task on a cluster, if it fits.
    fn times(&self, task: TaskIndex, p: usize) -> Option<(f64, f64)> {
        let dag = self.problem.dag();
        if !dag.task(task).demand.fits(&self.free[p]) {
            return None;
        }
        let mut start = self.slots[p].iter().copied().fold(f64::INFINITY, f64::min);
        if dag.parents(task).count() == 0 {
            start = start.max(self.d(p));
        }
        for (parent, transfer) in dag.parents(task) {
            let (q, _, finish) = self.placed[parent.get()].expect("parents first");
            let omega = if p == q {
                0.0
            } else {
                match transfer {
                    Transfer::Fixed(time) => time.get(),
                    Transfer::Data(size) => {
                        self.problem.network().time(q, p, size.as_bytes()).get()
                    }
                }
            };
            start = start.max(finish + omega);
        }
        let finish = start + self.problem.work(task, ClusterIndex::new(p)).get();
        finish.is_finite().then_some((start, finish))
    }

    fn put(&mut self, task: TaskIndex, p: usize, (start, finish): (f64, f64)) {
        let slot = self.slots[p]
            .iter_mut()
            .min_by(|a, b| a.total_cmp(b))
            .expect("a slot");
        *slot = finish;
        self.free[p] = self.free[p]
            .checked_sub(&self.problem.dag().task(task).demand)
            .expect("it fits");
        self.placed[task.get()] = Some((p, start, finish));
    }

    fn latency(&self) -> f64 {
        let dag = self.problem.dag();
        dag.exits()
            .iter()
            .map(|exit| {
                let (p, _, finish) = self.placed[exit.get()].expect("all placed");
                finish + self.d(p)
            })
            .fold(0.0, f64::max)
    }

    fn ready(&self) -> Vec<TaskIndex> {
        let dag = self.problem.dag();
        dag.indices()
            .filter(|task| {
                self.placed[task.get()].is_none()
                    && dag
                        .parents(*task)
                        .all(|(parent, _)| self.placed[parent.get()].is_some())
            })
            .collect()
    }
}

/// For each task the shortest way to the end: fastest cluster each time, no transfers.
fn tails(problem: &Problem<'_>) -> Vec<f64> {
    let dag = problem.dag();
    let clusters = 0..problem.clusters().len();
    let mut tails = vec![0.0; dag.len()];
    for task in dag.topological().iter().rev() {
        let fastest = clusters
            .clone()
            .map(|p| problem.work(*task, ClusterIndex::new(p)).get())
            .fold(f64::INFINITY, f64::min);
        let rest = dag
            .children(*task)
            .map(|(child, _)| tails[child.get()])
            .fold(0.0, f64::max);
        tails[task.get()] = fastest + rest;
    }
    tails
}

/// The least latency of any schedule, by trying them all in order of start time, cut where the bound says that nothing
/// better follows.
pub(crate) fn optimum(problem: &Problem<'_>) -> Option<f64> {
    fn search(state: &Naive<'_>, tails: &[f64], last: f64, best: &mut f64) {
        let ready = state.ready();
        if ready.is_empty() {
            *best = best.min(state.latency());
            return;
        }
        let home = state.problem.distance().iter().map(|d| d.get());
        let home = home.fold(f64::INFINITY, f64::min);
        for task in ready {
            for p in 0..state.slots.len() {
                let Some((start, finish)) = state.times(task, p) else {
                    continue;
                };
                if start < last || start + tails[task.get()] + home >= *best {
                    continue;
                }
                let mut next = state.clone();
                next.put(task, p, (start, finish));
                search(&next, tails, start, best);
            }
        }
    }
    let mut best = f64::INFINITY;
    search(&Naive::new(problem), &tails(problem), 0.0, &mut best);
    best.is_finite().then_some(best)
}

/// The least latency over all assignments, tasks placed in the given order.
fn best_in_order(state: &Naive<'_>, order: &[TaskIndex]) -> f64 {
    let Some((task, rest)) = order.split_first() else {
        return state.latency();
    };
    (0..state.slots.len())
        .filter_map(|p| {
            let mut next = state.clone();
            next.put(*task, p, state.times(*task, p)?);
            Some(best_in_order(&next, rest))
        })
        .fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every choice is the first least `EFT` (with the way back for exits, if asked), and the times are those of the plain
    /// arithmetic.
    #[test]
    fn each_choice_is_the_earliest_finish(raw in raw(9, 4)) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Job;
        let problem = instance.problem();
        let planned = HeuOrche::default().place(&problem, Detail::Nothing);
        let mut naive = Naive::new(&problem);
        let order: Vec<TaskIndex> = match &planned {
            Ok(planned) => planned.plan.order().to_vec(),
            Err(_) => Vec::new(),
        };
        for task in order {
            let key = |p: usize, finish: f64| {
                if raw.exit_leg && problem.dag().is_exit(task) { finish + naive.d(p) } else { finish }
            };
            let (_, p, times) = (0..instance.clusters.len())
                .filter_map(|p| naive.times(task, p).map(|(s, f)| (key(p, f), p, (s, f))))
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                .expect("the placer found one");
            let placement = planned.as_ref().expect("an order").plan.placement(task);
            prop_assert_eq!(placement.cluster.get(), p);
            prop_assert!((placement.start.get() - times.0).abs() < 1e-9);
            prop_assert!((placement.finish.get() - times.1).abs() < 1e-9);
            naive.put(task, p, times);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No heuristic beats the optimum, and the optimum never loses to the best assignment in score order.
    #[test]
    fn nothing_is_better_than_the_optimum(raw in raw(5, 3)) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Job;
        // One slot each: with more, a schedule in order of start times need not be the best append schedule under held resources.
        for cluster in &mut instance.clusters {
            cluster.slots = [cluster.slots.earliest()].into_iter().collect();
        }
        let problem = instance.problem();
        let optimum = optimum(&problem);
        if let Ok(planned) = heu_orche(&problem) {
            let optimum = optimum.expect("a schedule exists");
            let heuristic = planned.plan.latency().get();
            let in_order = best_in_order(&Naive::new(&problem), planned.plan.order());
            prop_assert!(optimum <= in_order + 1e-9, "{} {}", optimum, in_order);
            prop_assert!(in_order <= heuristic + 1e-9, "{} {}", in_order, heuristic);
        }
    }
}
