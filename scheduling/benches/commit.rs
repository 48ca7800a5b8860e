//! How long the committer takes for a list, beside a serial scheduler's full scan of the same nodes:
//! `cargo bench -p fdn-scheduling --bench commit`.
//!
//! The committer is measured in three states: no entry changed, all entries changed, and all entries full, when it has to return
//! the container. Each measurement takes a container, commits its list and releases it again, so that the nodes stay as they
//! are; the figure is the whole round, more than the commit alone.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Committer, Container, Entry, LeastRequested, List, NodeIndex, NodeSelection, Placed,
    PreScheduler, Score, Settings, Version, View, serial,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

const ENTRIES: usize = 8;
/// Containers that are there all the time, beside the one measured.
const RESIDENT: u128 = 10_000;

fn container(number: u128) -> Container {
    Container {
        id: InstanceId::from_uuid(Uuid::from_u128(number)),
        demand: Resources::new(MilliCpu(100), MebiBytes(128)),
    }
}

/// A committer with nodes in all states of use.
fn committer(nodes: u32) -> Committer<LeastRequested> {
    let settings = Settings {
        retries_max: u32::MAX - 1,
        ..Settings::default()
    };
    let mut committer = Committer::new(settings, LeastRequested).expect("settings of use");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for n in 0..nodes {
        let capacity = Resources::new(MilliCpu(64_000), MebiBytes(256 * 1024));
        committer
            .add_node(capacity, &mut Vec::new())
            .expect("room for a node");
        let foreign = Resources::new(
            MilliCpu(rng.random_range(0..32_000)),
            MebiBytes(rng.random_range(0..128 * 1024)),
        );
        committer.observe(NodeIndex::new(n), foreign, &mut Vec::new());
    }
    let mut list = List::default();
    for number in 1..=RESIDENT {
        committer.submit(container(number)).expect("room");
        list.ticket = committer.take(Millis::ZERO).expect("pending").ticket;
        let demand = container(number).demand;
        let node = serial::best(committer.store().records(), &demand, &LeastRequested);
        list.entries.clear();
        list.entries.push(Entry {
            node: node.expect("room"),
            version: Version::new(0),
            score: Score::new(0.0),
        });
        committer.commit(&list);
    }
    committer
}

/// A list of eight for container 0, made now.
fn list(committer: &mut Committer<LeastRequested>) -> List {
    committer.submit(container(0)).expect("room");
    let assignment = committer.take(Millis::ZERO).expect("pending");
    let choice = Choice {
        length: ENTRIES,
        ..Choice::default()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (mut view, mut list) = (View::default(), List::default());
    view.read(committer.store());
    PreScheduler::new(LeastRequested, choice).list(
        &assignment,
        view.records(),
        &mut rng,
        &mut list,
    );
    committer.release(container(0).id, &mut Vec::new());
    list
}

/// One container from the queue to a node and out again.
fn round(committer: &mut Committer<LeastRequested>, list: &mut List, served: &mut Vec<Placed>) {
    committer.submit(container(0)).expect("room");
    list.ticket = committer.take(Millis::ZERO).expect("pending").ticket;
    black_box(committer.commit(black_box(list)));
    committer.release(container(0).id, served);
}

fn lists(c: &mut Criterion) {
    let mut group = c.benchmark_group("committer, list of 8");
    for nodes in [500, 5000] {
        let mut committer = committer(nodes);
        let fresh = list(&mut committer);
        let mut stale = fresh.clone();
        for entry in &mut stale.entries {
            entry.version = Version::new(0);
        }
        let mut served = Vec::new();
        // The winner of a fresh list changes with every round; its version is brought up to date, as a reader would.
        group.bench_function(BenchmarkId::new("unchanged", nodes), |b| {
            let mut list = fresh.clone();
            b.iter(|| {
                for entry in &mut list.entries {
                    entry.version = committer.store().records()[entry.node.get()].version();
                }
                round(&mut committer, &mut list, &mut served);
            });
        });
        group.bench_function(BenchmarkId::new("all changed", nodes), |b| {
            let mut list = stale.clone();
            b.iter(|| round(&mut committer, &mut list, &mut served));
        });
        for entry in &fresh.entries {
            let full = *committer.store().records()[entry.node.get()].capacity();
            committer.observe(entry.node, full, &mut served);
        }
        group.bench_function(BenchmarkId::new("all full", nodes), |b| {
            let mut list = stale.clone();
            b.iter(|| round(&mut committer, &mut list, &mut served));
        });
    }
    group.finish();
}

fn scans(c: &mut Criterion) {
    let mut group = c.benchmark_group("serial full scan");
    for nodes in [500, 5000] {
        let committer = committer(nodes);
        let demand = container(0).demand;
        group.bench_function(BenchmarkId::from_parameter(nodes), |b| {
            b.iter(|| {
                serial::best(
                    committer.store().records(),
                    black_box(&demand),
                    &LeastRequested,
                )
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("pre-scheduler, list of 8");
    for nodes in [500, 5000] {
        for (name, selection) in [
            ("all nodes", NodeSelection::All),
            ("sample of 50", NodeSelection::Sample(50)),
        ] {
            let mut committer = committer(nodes);
            committer.submit(container(0)).expect("room");
            let assignment = committer.take(Millis::ZERO).expect("pending");
            let choice = Choice {
                length: ENTRIES,
                selection,
                ..Choice::default()
            };
            let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
            let (mut rng, mut list) = (ChaCha8Rng::seed_from_u64(3), List::default());
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter(|| {
                    let nodes = committer.store().records();
                    pre_scheduler.list(&assignment, nodes, &mut rng, &mut list);
                });
            });
        }
    }
    group.finish();
}

/// The ratio that counts: a committer's round against a serial full scan, both in this run.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a ratio of two figures of one run, which criterion does not give"
)]
fn ratio(_: &mut Criterion) {
    const ROUNDS: u32 = 20_000;
    for nodes in [500, 5000] {
        let mut committer = committer(nodes);
        let mut list = list(&mut committer);
        let mut served = Vec::new();
        let started = Instant::now();
        for _ in 0..ROUNDS {
            round(&mut committer, &mut list, &mut served);
        }
        let committing = started.elapsed() / ROUNDS;
        let demand = container(0).demand;
        let started = Instant::now();
        for _ in 0..ROUNDS / 10 {
            black_box(serial::best(
                committer.store().records(),
                black_box(&demand),
                &LeastRequested,
            ));
        }
        let scanning = started.elapsed() / (ROUNDS / 10);
        println!(
            "{nodes} nodes: list of 8 {:.2} us (at most 5), full scan {:.2} us, ratio {:.1}",
            committing.as_secs_f64() * 1e6,
            scanning.as_secs_f64() * 1e6,
            scanning.as_secs_f64() / committing.as_secs_f64()
        );
    }
}

criterion_group!(benches, lists, scans, ratio);
criterion_main!(benches);
