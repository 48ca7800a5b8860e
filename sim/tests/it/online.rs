//! Event-driven placement in a world with delays and failures: every schedule keeps the rules, whatever the policy.

use std::sync::Arc;

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::online::{Choice, Delivery, Limits, Order, Settings, Starvation};
use fdn_scheduling::place::{
    Cluster, ClusterIndex, Detail, HeuOrche, Hold, Network, Placer, Problem,
};
use fdn_sim::generate::Sites;
use fdn_sim::online::planned::{self, Planner};
use fdn_sim::online::{Change, Conditions, End, Job, Mix, Scenario, check, poisson, run};
use fdn_sim::paper::{ALL, Context, Effort};
use fdn_sim::progress::Silent;
use fdn_sim::report::Outcome;
use fdn_sim::seed::Seed;
use proptest::prelude::*;

const CHOICES: [Choice; 4] = [
    Choice::EarliestFinish,
    Choice::RoundRobin,
    Choice::LeastQueued,
    Choice::Nearest,
];

const ORDERS: [Order; 5] = [
    Order::Arrival,
    Order::JobArrival,
    Order::LeastWork,
    Order::LargestTask,
    Order::LongestRemaining,
];

/// The same DAG with demands of 0 to 3 GiB, and a second entry, so that it gets one in front.
fn with_demands(dag: &Dag) -> Dag {
    let mut builder = DagBuilder::new();
    for task in dag.indices() {
        let gib = task.get() as u64 % 4;
        let demand = Resources::new(MilliCpu(0), MebiBytes(1024 * gib));
        builder.task(dag.task(task).name.clone(), dag.task(task).work, demand);
    }
    for task in dag.indices() {
        for (parent, transfer) in dag.parents(task) {
            builder.edge(parent, task, transfer);
        }
    }
    let second = builder.task("second", Millis::new(7.0), Resources::default());
    let last = TaskIndex::new(dag.len() - 1);
    builder.edge(second, last, Transfer::Fixed(Millis::new(3.0)));
    builder.build().expect("still a DAG")
}

fn clusters(seed: Seed, count: usize, gib: Option<u64>) -> Vec<Cluster> {
    let sites = Sites {
        clusters: count,
        slots: 3,
        ..Sites::default()
    };
    let room = |cluster: Cluster| match gib {
        Some(gib) => cluster.with_free(Resources::new(MilliCpu(0), MebiBytes(1024 * gib))),
        None => cluster,
    };
    sites.draw(seed).into_iter().map(room).collect()
}

fn scenario(seed: Seed, clusters: &[Cluster], load: f64, conditions: Conditions) -> Scenario {
    let sites = Sites {
        clusters: clusters.len(),
        ..Sites::default()
    };
    let mix = Mix {
        sizes: vec![(3, 1), (12, 2), (25, 1)],
        ccr: 1.0,
    };
    let jobs: Vec<Job> = poisson(12, load, &mix, &sites, clusters, seed)
        .expect("small jobs")
        .into_iter()
        .map(|job| Job {
            dag: Arc::new(with_demands(&job.dag)),
            ..job
        })
        .collect();
    let network = Network::instant(clusters.len());
    Scenario::new(clusters.to_vec(), network, jobs, conditions, seed)
}

fn conditions(changes: &[(u16, usize, u8)], count: usize) -> Conditions {
    let change = |(at, cluster, what): &(u16, usize, u8)| {
        let change = match what {
            0 => Change::Drained,
            1 => Change::Lost,
            _ => Change::Returned,
        };
        (
            Millis::new(f64::from(*at)),
            ClusterIndex::new(cluster % count),
            change,
        )
    };
    let mut changes: Vec<_> = changes.iter().map(change).collect();
    changes.sort_by_key(|(at, ..)| *at);
    let end = Millis::new(1e6);
    changes.extend((0..count).map(|p| (end, ClusterIndex::new(p), Change::Returned)));
    Conditions {
        jitter: Millis::new(5.0),
        spread: 0.4,
        changes,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_schedule_keeps_the_rules(
        seed in 0u64..1 << 40,
        count in 1usize..4,
        load in 0.2f64..3.0,
        choice in prop::sample::select(&CHOICES),
        order in prop::sample::select(&ORDERS),
        hold in prop::sample::select(&[Hold::Job, Hold::Task]),
        delivery in prop::sample::select(&[Delivery::Pushed, Delivery::Pulled]),
        bounded in any::<bool>(),
        changes in prop::collection::vec((0u16..800, 0usize..3, 0u8..4), 0..5),
    ) {
        let settings = Settings {
            choice,
            order,
            hold,
            delivery,
            exit_leg: true,
            starvation: Starvation::new(Millis::new(100.0), 0.2).filter(|_| bounded),
            limits: Limits::default(),
        };
        let gib = if hold == Hold::Job { 60 } else { 5 };
        let clusters = clusters(Seed(seed), count, Some(gib));
        let scenario = scenario(Seed(seed), &clusters, load, conditions(&changes, count));
        let schedule = run(&scenario, settings).expect("no rule is broken on the way");
        prop_assert!(check::check(&scenario, &schedule, hold).is_ok(), "{:?}", check::check(&scenario, &schedule, hold));
        prop_assert_eq!(run(&scenario, settings).expect("again"), schedule);
    }

    #[test]
    fn plans_carried_out_keep_the_rules_and_without_delays_their_times(
        seed in 0u64..1 << 40, count in 1usize..4, load in 0.2f64..3.0
    ) {
        let clusters = clusters(Seed(seed), count, None);
        for (jitter, spread) in [(0.0, 0.0), (5.0, 0.3)] {
            let conditions = Conditions { jitter: Millis::new(jitter), spread, changes: Vec::new() };
            let scenario = scenario(Seed(seed), &clusters, load, conditions);
            for planner in [Planner::Append, Planner::AppendInverse, Planner::Insert] {
                let schedule = planned::run(&scenario, planner).expect("everything fits");
                let checked = check::check(&scenario, &schedule, Hold::Job);
                prop_assert!(checked.is_ok(), "{planner:?}: {checked:?}");
            }
            if jitter == 0.0 {
                let schedule = planned::run(&scenario, Planner::Append).expect("everything fits");
                prop_assert_eq!(planned_latencies(&scenario), schedule.latencies());
            }
        }
    }
}

/// What the plans of Heu-Orche promise.
fn planned_latencies(scenario: &Scenario) -> Vec<f64> {
    let mut clusters = scenario.clusters.clone();
    let mut placer = HeuOrche::default();
    let latency = |job: &Job| {
        let problem = Problem::new(&job.dag, &clusters, &scenario.network, &job.distance)
            .and_then(|problem| problem.with_arrival(job.at))
            .expect("consistent");
        let plan = placer
            .place(&problem, Detail::Nothing)
            .expect("everything fits")
            .plan;
        let latency = plan.latency().get();
        plan.apply(&job.dag, Hold::Job, &mut clusters);
        latency
    };
    scenario.jobs.iter().map(latency).collect()
}

/// Containers that are paused when both clusters are lost, and begin anew long after.
#[test]
fn what_was_paused_when_its_cluster_was_lost_holds_nothing_meanwhile() {
    let seed = Seed(599_983_106_031);
    let clusters = clusters(seed, 2, Some(5));
    let conditions = conditions(&[(285, 0, 1), (616, 1, 1)], 2);
    let scenario = scenario(seed, &clusters, 1.469_848_372_760_632, conditions);
    let settings = Settings {
        choice: Choice::RoundRobin,
        order: Order::LongestRemaining,
        hold: Hold::Task,
        exit_leg: true,
        starvation: Starvation::new(Millis::new(100.0), 0.2),
        ..Settings::default()
    };
    let schedule = run(&scenario, settings).expect("no rule is broken on the way");
    let paused = |ran: &fdn_sim::online::Ran| ran.how == End::Paused;
    assert!(schedule.runs.iter().any(paused), "something was paused");
    check::check(&scenario, &schedule, Hold::Task).expect("a good schedule");
}

#[test]
fn the_checker_finds_every_kind_of_fault() {
    let clusters = clusters(Seed(3), 2, Some(60));
    let changes = [(60, 0, 1), (90, 0, 2)];
    let scenario = scenario(Seed(3), &clusters, 1.5, conditions(&changes, 2));
    let good = run(&scenario, Settings::lrtf()).expect("no rule is broken");
    check::check(&scenario, &good, Hold::Job).expect("a good schedule");
    let paused = good.runs.iter().position(|ran| ran.how == End::Paused);
    let paused = paused.expect("lrtf pauses something");
    assert!(
        good.runs.iter().any(|ran| ran.how == End::Lost),
        "a cluster was lost"
    );
    let fault = |what: &str, change: &dyn Fn(&mut fdn_sim::online::Schedule)| {
        let mut bad = good.clone();
        change(&mut bad);
        let found = check::check(&scenario, &bad, Hold::Job);
        let text = found.expect_err(what).to_string();
        assert!(text.contains(what), "{what}: {text}");
    };
    fault("finishes 0 times", &|bad| {
        bad.runs.retain(|ran| ran.how != End::Finished);
    });
    fault("finishes 2 times", &|bad| {
        let again = bad.runs.iter().find(|ran| ran.how == End::Finished);
        bad.runs.push(*again.expect("something finished"));
    });
    fault("was refused, but ran", &|bad| bad.latency[0] = None);
    fault("ends before it starts", &|bad| {
        bad.runs[0].start = bad.runs[0].end + Millis::new(1.0)
    });
    fault("ran for", &|bad| {
        bad.runs[paused].end = bad.runs[paused].start
    });
    fault("before", &|bad| {
        for ran in bad.runs.iter_mut().filter(|ran| ran.job == 1) {
            ran.start = ran.start - Millis::new(1000.0);
            ran.end = ran.end - Millis::new(1000.0);
        }
    });
    fault("no such slot", &|bad| bad.runs[0].slot = 9);
    fault("overlap", &|bad| {
        bad.runs.iter_mut().for_each(|ran| ran.slot = 0)
    });
    let mut small = scenario.clone();
    for cluster in &mut small.clusters {
        cluster.free = Resources::new(MilliCpu(0), MebiBytes(1024));
    }
    let found = check::check(&small, &good, Hold::Task).expect_err("too little room");
    assert!(found.to_string().contains("holds"), "{found}");
}

#[test]
fn jobs_beyond_the_bound_are_refused_and_the_rest_is_served() {
    let clusters = clusters(Seed(4), 2, None);
    let all = scenario(Seed(4), &clusters, f64::INFINITY, Conditions::default());
    let settings = Settings {
        limits: Limits {
            jobs: 5,
            tasks: 1000,
        },
        ..Settings::late_fifo()
    };
    let schedule = run(&all, settings).expect("no rule is broken");
    assert_eq!(schedule.latencies().len(), 5, "of 12 at once");
    check::check(&all, &schedule, Hold::Job).expect("a good schedule");
}

/// The small form of the experiment, run by so many threads.
fn experiment(threads: usize) -> Outcome {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a pool");
    let experiment = ALL.iter().find(|e| e.name() == "online").expect("listed");
    let context = Context {
        data: None,
        effort: Effort::Quick,
        progress: &Silent,
    };
    pool.install(|| experiment.run(&context)).expect("it runs")
}

#[test]
fn the_experiment_runs_and_is_the_same_whatever_the_number_of_threads() {
    let outcome = experiment(1);
    assert!(!outcome.tables.is_empty());
    assert!(outcome.gates.iter().all(|gate| gate.measured.is_finite()));
    assert!(outcome.tables.iter().all(|table| !table.rows.is_empty()));
    assert!(outcome.plots.iter().all(|plot| plot.svg().is_ok()));
    let text = |outcome: &Outcome| serde_json::to_string(outcome).expect("JSON");
    assert_eq!(text(&experiment(3)), text(&outcome));
}
