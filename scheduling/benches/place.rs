//! How long a placement takes: `cargo bench -p fdn-scheduling --bench place`.
//!
//! Jobs of the shape of the experiments, placed by Heu-Orche, HEFT with insertion and PEFT without a report; what the controller asks
//! for with every demand: a plain function, planned with the full report; and, printed as tables, how the time grows with tasks and
//! clusters, what every policy takes for a thousand tasks, and what the searches cost. The tables take the least of many runs, which
//! is what the machine can do, whatever else it does at the time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::Millis;
use fdn_core::Resources;
use fdn_scheduling::dag::Dag;
use fdn_scheduling::place::{Best, Detail, Exact, HeuOrche, Placer, Plan, Problem, Slots};
use fdn_scheduling::policy::{Budget, Policy};
use fdn_scheduling::steer::{Margin, replan};

#[path = "../tests/it/random.rs"]
mod random;

use random::RandomJob;

fn problem(job: &RandomJob) -> Problem<'_> {
    Problem::new(&job.dag, &job.clusters, &job.network, &job.distance)
        .expect("a consistent problem")
}

fn jobs(c: &mut Criterion) {
    for policy in [Policy::HeuOrche, Policy::Heft, Policy::Peft] {
        let mut group = c.benchmark_group(policy.name());
        group.sample_size(20);
        for clusters in [5, 50] {
            for tasks in [100, 1_000, 10_000] {
                let job = random::random_job(tasks, clusters, 1);
                let mut placer = policy.placer(Budget::default());
                group.throughput(Throughput::Elements(tasks as u64));
                group.bench_with_input(
                    BenchmarkId::new(format!("{clusters} clusters"), tasks),
                    &problem(&job),
                    |b, problem| b.iter(|| placer.place(black_box(problem), Detail::Nothing)),
                );
            }
        }
        group.finish();
    }
}

/// A thousand tasks by every policy, beside Heu-Orche in the same run.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn policies(_: &mut Criterion) {
    let job = random::random_job(1_000, 5, 1);
    let problem = problem(&job);
    println!("1000 tasks, 5 clusters, least of many runs");
    println!("policy                  time_us  ratio_to_heu_orche  latency_ratio");
    let mut base: Option<(f64, f64)> = None;
    for policy in Policy::ALL {
        let mut placer = policy.placer(Budget::default());
        let Ok(planned) = placer.place(&problem, Detail::Nothing) else {
            println!("{policy:<20}  refuses jobs of this size");
            continue;
        };
        let latency = planned.plan.latency().get();
        let time = least(|| drop(placer.place(black_box(&problem), Detail::Nothing)));
        let us = time.as_secs_f64() * 1e6;
        let (base_us, base_latency) = *base.get_or_insert((us, latency));
        println!(
            "{policy:<20}  {us:9.1}  {:18.2}  {:13.3}",
            us / base_us,
            latency / base_latency
        );
    }
}

fn functions(c: &mut Criterion) {
    let mut group = c.benchmark_group("plain function, explained");
    group.sample_size(20);
    for clusters in [3, 50] {
        let job = random::random_job(1, clusters, 1);
        let dag = Dag::single("hello", Millis::new(5.0), Resources::default()).expect("a task");
        let problem = Problem::new(&dag, &job.clusters, &job.network, &job.distance)
            .expect("a consistent problem");
        let previous = [job.clusters[0].id.clone()];
        group.bench_with_input(
            BenchmarkId::from_parameter(format!("{clusters} clusters")),
            &problem,
            |b, problem| b.iter(|| replan(black_box(problem), Some(&previous), Margin::default())),
        );
    }
    group.finish();
}

/// The least time of many runs, the first of which is not counted.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn least(mut run: impl FnMut()) -> Duration {
    const BUDGET: Duration = Duration::from_millis(300);
    run();
    let began = Instant::now();
    let mut least = Duration::MAX;
    let mut runs = 0;
    while runs < 5 || began.elapsed() < BUDGET {
        let start = Instant::now();
        run();
        least = least.min(start.elapsed());
        runs += 1;
    }
    least
}

/// Time over tasks and clusters, into a reused plan: in all, per task and cluster, and by how much ten times as many tasks cost more.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn growth(_: &mut Criterion) {
    println!("heu-orche, least of many runs, into a reused plan");
    println!(
        "clusters   tasks       time_us  ns_per_task_and_cluster  ratio_to_a_tenth_of_the_tasks"
    );
    for clusters in [5, 50, 500] {
        let mut smaller: Option<f64> = None;
        for tasks in [100, 1_000, 10_000] {
            let job = random::random_job(tasks, clusters, 1);
            let problem = problem(&job);
            let (mut placer, mut plan) = (HeuOrche::default(), Plan::default());
            let time = least(|| {
                let placed = placer.place_into(black_box(&problem), &mut plan);
                assert!(placed.is_ok(), "resources are unlimited");
            });
            let us = time.as_secs_f64() * 1e6;
            let each = us * 1e3 / (tasks * clusters) as f64;
            let ratio = smaller.map_or("-".to_owned(), |smaller| format!("{:.1}", us / smaller));
            println!("{clusters:8}  {tasks:6}  {us:12.1}  {each:23.2}  {ratio:>29}");
            smaller = Some(us);
        }
    }
}

/// The exact search over jobs of one slot per cluster, and what a step of a refinement costs.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn searches(_: &mut Criterion) {
    println!("exact search, 3 clusters of one slot, worst of 10 jobs");
    println!("tasks       nodes    time_ms  ns_per_node");
    for tasks in [8, 10, 12] {
        let worst = (0..10).map(|seed| {
            let mut job = random::random_job(tasks, 3, seed);
            for cluster in &mut job.clusters {
                cluster.slots = Slots::idle(1);
            }
            let problem = problem(&job);
            let solve = || Exact::default().solve(black_box(&problem));
            let nodes = solve().expect("it fits").nodes;
            (nodes, least(|| drop(solve())))
        });
        let (nodes, time) = worst.max().expect("ten jobs");
        let ns = time.as_secs_f64() * 1e9;
        println!(
            "{tasks:5}  {nodes:10}  {:9.2}  {:11.0}",
            ns / 1e6,
            ns / nodes as f64
        );
    }
    println!("refinement, 5 clusters, from Heu-Orche's plan, 3000 steps");
    println!("tasks    time_ms  us_per_step  latency_ratio");
    for tasks in [100, 1_000] {
        let job = random::random_job(tasks, 5, 1);
        let problem = problem(&job);
        let start = HeuOrche::default().place(&problem, Detail::Nothing);
        let start = start.expect("resources are unlimited").plan;
        let mut best = Best::new(3_000, 1);
        let found = best.refine(&problem, &start).latency().get();
        let us = least(|| drop(best.refine(black_box(&problem), &start))).as_secs_f64() * 1e6;
        println!(
            "{tasks:5}  {:9.1}  {:11.2}  {:13.3}",
            us / 1e3,
            us / 3e3,
            found / start.latency().get()
        );
    }
}

criterion_group!(benches, growth, policies, searches, jobs, functions);
criterion_main!(benches);
