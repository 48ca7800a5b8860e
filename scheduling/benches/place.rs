//! How long a placement takes: `cargo bench -p fdn-scheduling`.
//!
//! Jobs of the shape of the experiments, placed by Heu-Orche and by HEFT with insertion without a report, and one of a thousand tasks
//! by every policy; and what the controller asks for with every demand: a plain function, planned with the full report.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::Millis;
use fdn_core::Resources;
use fdn_scheduling::dag::Dag;
use fdn_scheduling::place::{Budget, Detail, Policy, Problem};
use fdn_scheduling::steer::{Margin, replan};

#[path = "../tests/it/random.rs"]
mod random;

fn jobs(c: &mut Criterion) {
    for policy in [Policy::HeuOrche, Policy::Heft] {
        let mut group = c.benchmark_group(policy.name());
        group.sample_size(20);
        for clusters in [5, 50] {
            for tasks in [100, 1_000, 10_000] {
                let job = random::random_job(tasks, clusters, 1);
                let problem = Problem::new(&job.dag, &job.clusters, &job.network, &job.distance)
                    .expect("a consistent problem");
                let mut placer = policy.placer(Budget::default());
                group.throughput(Throughput::Elements(tasks as u64));
                group.bench_with_input(
                    BenchmarkId::new(format!("{clusters} clusters"), tasks),
                    &problem,
                    |b, problem| b.iter(|| placer.place(black_box(problem), Detail::Nothing)),
                );
            }
        }
        group.finish();
    }
}

fn policies(c: &mut Criterion) {
    let mut group = c.benchmark_group("1000 tasks, 5 clusters");
    group.sample_size(20);
    let job = random::random_job(1_000, 5, 1);
    let problem = Problem::new(&job.dag, &job.clusters, &job.network, &job.distance)
        .expect("a consistent problem");
    for policy in Policy::ALL {
        let mut placer = policy.placer(Budget::default());
        group.bench_with_input(
            BenchmarkId::from_parameter(policy),
            &problem,
            |b, problem| b.iter(|| placer.place(black_box(problem), Detail::Nothing)),
        );
    }
    group.finish();
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

criterion_group!(benches, jobs, policies, functions);
criterion_main!(benches);
