//! The exact search against a naive enumeration, and within its limits.

use fdn_core::{Coded, ErrorCode, Millis, Resources};
use fdn_scheduling::checker::check;
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::place::{
    Cluster, ClusterIndex, Costs, Detail, Exact, ExactError, Exclusion, Heft, Hold, Network,
    Optimum, Options, Placer, Problem, Score, Slots, Speed, heu_orche,
};
use proptest::prelude::*;

use crate::examples::{PLENTY, six_tasks, ten_tasks};
use crate::instance::{Instance, dag, mib, ms, raw};
use crate::random::{RandomJob, random_job};

/// What runs where and when, and holds what.
#[derive(Clone, Copy)]
struct Run {
    cluster: usize,
    start: f64,
    end: f64,
    held: Resources,
}

/// Tries every order and every assignment, each task at the earliest time at which nothing is broken, gaps included. It shares
/// nothing with the search: no order of start times, no bound, no slots, only how many run and what they hold at a moment.
struct Enumeration<'p> {
    problem: &'p Problem<'p>,
    runs: Vec<Run>,
    placed: Vec<Option<(usize, f64)>>,
    best: Option<f64>,
}

impl<'p> Enumeration<'p> {
    fn least(problem: &'p Problem<'p>) -> Option<f64> {
        let mut all = Self {
            problem,
            runs: Vec::new(),
            placed: vec![None; problem.dag().len()],
            best: None,
        };
        for (cluster, state) in problem.clusters().iter().enumerate() {
            // Until it is free a slot is taken by something that holds nothing.
            all.runs
                .extend(state.slots.available().iter().map(|until| Run {
                    cluster,
                    start: f64::NEG_INFINITY,
                    end: until.get(),
                    held: Resources::default(),
                }));
        }
        all.visit();
        all.best
    }

    fn visit(&mut self) {
        let dag = self.problem.dag();
        let mut complete = true;
        for task in dag
            .indices()
            .filter(|task| self.placed[task.get()].is_none())
            .collect::<Vec<_>>()
        {
            complete = false;
            if dag
                .parents(task)
                .any(|(parent, _)| self.placed[parent.get()].is_none())
            {
                continue;
            }
            for cluster in 0..self.problem.clusters().len() {
                let Some((start, end)) = self.times(task, cluster) else {
                    continue;
                };
                let held = dag.task(task).demand;
                self.runs.push(Run {
                    cluster,
                    start,
                    end,
                    held,
                });
                self.placed[task.get()] = Some((cluster, end));
                self.visit();
                self.placed[task.get()] = None;
                self.runs.pop();
            }
        }
        if complete {
            let answer = |task: &TaskIndex| {
                let (cluster, end) = self.placed[task.get()].expect("complete");
                end + self.problem.distance()[cluster].get() - self.problem.arrival().get()
            };
            let latency = dag
                .exits()
                .iter()
                .map(answer)
                .fold(f64::NEG_INFINITY, f64::max);
            self.best = Some(self.best.map_or(latency, |best| best.min(latency)));
        }
    }

    fn times(&self, task: TaskIndex, cluster: usize) -> Option<(f64, f64)> {
        let problem = self.problem;
        let work = problem.work(task, ClusterIndex::new(cluster)).get();
        let mut ready = problem.arrival().get();
        if problem.dag().entry() == task {
            ready += problem.distance()[cluster].get();
        }
        for (parent, transfer) in problem.dag().parents(task) {
            let (from, end) = self.placed[parent.get()].expect("parents first");
            let omega = match transfer {
                _ if from == cluster => 0.0,
                Transfer::Fixed(time) => time.get(),
                Transfer::Data(size) => {
                    problem.network().time(from, cluster, size.as_bytes()).get()
                }
            };
            ready = ready.max(end + omega);
        }
        let ends = self
            .here(cluster)
            .map(|run| run.end)
            .filter(|end| *end > ready);
        let mut times: Vec<f64> = std::iter::once(ready).chain(ends).collect();
        times.sort_by(f64::total_cmp);
        let start = times
            .into_iter()
            .find(|start| self.is_free(task, cluster, *start, start + work))?;
        (start + work).is_finite().then_some((start, start + work))
    }

    fn here(&self, cluster: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.cluster == cluster)
    }

    fn is_free(&self, task: TaskIndex, cluster: usize, start: f64, end: f64) -> bool {
        let state = &self.problem.clusters()[cluster];
        let demand = self.problem.dag().task(task).demand;
        let free_at = |time: f64| {
            let running = || {
                self.here(cluster)
                    .filter(|run| run.start <= time && time < run.end)
            };
            let held = match self.problem.options().hold {
                Hold::Job => self
                    .here(cluster)
                    .fold(demand, |sum, run| sum.saturating_add(&run.held)),
                Hold::Task if start == end => demand,
                Hold::Task => running().fold(demand, |sum, run| sum.saturating_add(&run.held)),
            };
            running().count() < state.slots.len() && held.fits(&state.free)
        };
        let starts = self.here(cluster).map(|run| run.start);
        free_at(start) && starts.filter(|at| start < *at && *at < end).all(free_at)
    }
}

fn solve(problem: &Problem<'_>) -> Result<Optimum, ExactError> {
    Exact::default().solve(problem)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_optimum_is_the_least_of_all_schedules(raw in raw(4, 3), arrival in 0u32..50) {
        let instance = raw.build();
        let problem = instance.problem().with_arrival(ms(f64::from(arrival))).expect("finite");
        let least = Enumeration::least(&problem);
        match solve(&problem) {
            Ok(optimum) => {
                prop_assert!(optimum.proven);
                prop_assert_eq!(check(&problem, &optimum.plan), Ok(()));
                let (found, least) = (optimum.plan.latency().get(), least.expect("there is a plan"));
                prop_assert!((found - least).abs() < 1e-9, "{} {}", found, least);
            }
            Err(ExactError::Infeasible(_)) => prop_assert_eq!(least, None),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn no_heuristic_is_better_and_the_same_comes_out_again(raw in raw(7, 3)) {
        let instance = raw.build();
        let problem = instance.problem();
        let optimum = solve(&problem);
        for plan in [heu_orche(&problem), Heft::default().place(&problem, Detail::Nothing)].into_iter().flatten() {
            let optimum = optimum.as_ref().expect("a plan exists");
            prop_assert!(optimum.plan.latency() <= plan.plan.latency());
            prop_assert_eq!(check(&problem, &optimum.plan), Ok(()));
        }
        prop_assert_eq!(solve(&problem), optimum);
    }
}

#[test]
fn the_worked_examples_have_their_published_optima() {
    let (instance, costs) = ten_tasks();
    let problem = instance.problem().with_costs(&costs).expect("costs fit");
    let optimum = solve(&problem).expect("it fits");
    assert_eq!(optimum.plan.latency(), ms(73.0));
    assert!(
        optimum.proven && optimum.nodes < 10_000,
        "{}",
        optimum.nodes
    );
    assert_eq!(check(&problem, &optimum.plan), Ok(()));

    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let problem = instance.problem();
    let optimum = solve(&problem).expect("it fits");
    assert!((optimum.plan.latency().get() - 23.7).abs() < 1e-9);
    assert_eq!(check(&problem, &optimum.plan), Ok(()));
}

/// A random job on clusters of one slot each.
fn one_slot(tasks: usize, seed: u64) -> RandomJob {
    let mut job = random_job(tasks, 3, seed);
    for cluster in &mut job.clusters {
        cluster.slots = Slots::idle(1);
    }
    job
}

fn problem_of(job: &RandomJob) -> Problem<'_> {
    Problem::new(&job.dag, &job.clusters, &job.network, &job.distance).expect("consistent")
}

#[test]
fn twelve_tasks_take_fewer_nodes_than_published() {
    for seed in 0..10 {
        let job = one_slot(12, seed);
        let problem = problem_of(&job);
        let optimum = solve(&problem).expect("it fits");
        assert!(optimum.proven);
        assert!(optimum.nodes <= 440_000, "{}", optimum.nodes);
        assert_eq!(check(&problem, &optimum.plan), Ok(()));
    }
}

#[test]
fn a_larger_job_is_refused_by_type_unless_allowed() {
    let job = random_job(13, 2, 1);
    let problem = problem_of(&job);
    let refused = solve(&problem).expect_err("thirteen tasks");
    assert_eq!(
        refused,
        ExactError::TooManyTasks {
            tasks: 13,
            most: 12
        }
    );
    assert_eq!(refused.code(), ErrorCode::BadRequest);
    let refused = Exact::default()
        .place(&problem, Detail::Nothing)
        .expect_err("thirteen tasks");
    let why = refused
        .clusters
        .iter()
        .map(|(_, why)| *why)
        .collect::<Vec<_>>();
    assert_eq!(why, [Exclusion::NotSearched { tasks: 13 }; 2]);
    assert!(Exact::with_limits(13, 1_000).solve(&problem).is_ok());
}

#[test]
fn a_search_that_is_cut_short_keeps_the_best_so_far_and_says_so() {
    let job = one_slot(12, 9);
    let problem = problem_of(&job);
    let start = heu_orche(&problem).expect("unlimited").plan.latency();
    let mut last = start;
    for nodes in [0, 100, 10_000, u64::MAX] {
        let optimum = Exact::with_limits(12, nodes)
            .solve(&problem)
            .expect("it fits");
        assert!(optimum.nodes <= nodes && optimum.plan.latency() <= last);
        assert_eq!(optimum.proven, optimum.nodes < nodes);
        last = optimum.plan.latency();
    }
    assert!(last < start, "something to gain");
}

/// 6 + 4 + 4 + 3 + 3 into 10 + 10: in order of score the largest demand comes last and no longer fits.
#[test]
fn a_job_is_refused_only_if_it_cannot_be_placed_at_all() {
    let entry = |work: f64| Transfer::Fixed(ms(work));
    let tasks = [
        (1.0, 0),
        (50.0, 4),
        (50.0, 3),
        (50.0, 4),
        (50.0, 3),
        (1.0, 6),
    ];
    let edges: Vec<_> = (1..6).map(|to| (0, to, entry(1.0))).collect();
    let cluster = |name: &str| {
        let id = name.parse().expect("a name");
        Cluster::new(id, Speed::new(1.0), 1)
    };
    let with_room = |free| Instance {
        dag: dag(&tasks, &edges),
        clusters: ["a", "b"]
            .map(|name| cluster(name).with_free(mib(free)))
            .into(),
        network: Network::instant(2),
        distance: vec![ms(1.0); 2],
        options: Options::default(),
    };
    let instance = with_room(10);
    let problem = instance.problem();
    assert!(heu_orche(&problem).is_err());
    let optimum = solve(&problem).expect("6 + 4 and 4 + 3 + 3");
    assert_eq!(check(&problem, &optimum.plan), Ok(()));
    let Err(ExactError::CutShort { nodes, refused }) = Exact::with_limits(12, 3).solve(&problem)
    else {
        panic!("three nodes are too few")
    };
    assert_eq!((nodes, refused.name.as_str()), (3, "t5"));
    // 20 do not fit into 18.
    let instance = with_room(9);
    assert!(matches!(
        solve(&instance.problem()),
        Err(ExactError::Infeasible(_))
    ));
}

#[test]
fn a_task_that_can_run_nowhere_is_named() {
    let (instance, _) = ten_tasks();
    let mut rows = [[ms(1.0); 3]; 10];
    rows[4] = [Millis::INFINITY; 3];
    let costs = Costs::new(&rows).expect("rows alike");
    let problem = instance.problem().with_costs(&costs).expect("costs fit");
    let Err(ExactError::Infeasible(refused)) = solve(&problem) else {
        panic!("task 5 runs nowhere")
    };
    assert_eq!(refused.name, "t4");
}
