//! How fast instances are scheduled, on one core: `cargo bench -p fdn-scheduling --bench instance`.
//!
//! `placements` runs whole clusters in process, messages included, 95 % busy, so that four in ten tasks find no room where they
//! arrive: tasks per second by policy; compare them with bottom-up in the same run. `node` is the local check with the probe
//! decision alone, `global` the choice of the node with the most room.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, Global, GlobalSettings, Node, NodeIndex, NodeReport, Policy, Settings, Slots, Task,
    TaskId, Term, ToGlobal, ToNode,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[path = "../tests/it/instances/loopback.rs"]
mod loopback;

use loopback::Loopback;

const TASKS: u64 = 10_000;

fn placements(c: &mut Criterion) {
    let mut group = c.benchmark_group("placements");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(TASKS));
    for (name, policy) in [
        ("local-probe-global", Policy::LocalProbeGlobal),
        ("bottom-up", Policy::BottomUp),
        ("hints", Policy::Hints),
        ("re-probing", Policy::ReProbing),
    ] {
        let mut cluster = Loopback::new(policy, 500, 20, Millis::new(100.0));
        cluster.run(20 * TASKS);
        group.bench_function(name, |b| b.iter(|| cluster.run(TASKS)));
        // Every task was placed: none may wait, or the figure would be one of doing nothing.
        assert!(cluster.started() >= 20 * TASKS, "{name}");
    }
    group.finish();
}

fn task(id: u64) -> Task<Slots> {
    Task {
        id: TaskId(id),
        attempt: 1,
        leg: 0,
        demand: Slots(1),
        remaining: Millis::new(1.0),
        deadline: Millis::new(1e9),
    }
}

/// One task at a node: local check, and without room two random nodes and two probes. Every task also passes through the memory of
/// the node, and every unanswered probe through its timeout.
fn node(c: &mut Criterion) {
    let settings = Settings {
        memory: Millis::ZERO,
        ..Settings::for_round_trip(Millis::new(0.5))
    };
    let mut group = c.benchmark_group("node");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (name, slots) in [("local check, starts", 1), ("local check, probes two", 0)] {
        let mut node = Node::new(NodeIndex(0), 500, Slots(slots), settings).expect("valid");
        let mut actions = Vec::with_capacity(16);
        let mut id = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                id += 1;
                let now = Millis::new(id as f64);
                let task = Task {
                    deadline: now,
                    ..task(id)
                };
                actions.clear();
                node.receive(now, black_box(ToNode::Submit(task)), &mut rng, &mut actions);
                node.poll(now, &mut rng, &mut actions);
                if let Some(Action::Start { running, .. }) = actions.first() {
                    node.ended(*running);
                }
                actions.len()
            });
        });
    }
    group.finish();
}

/// One decision of the global scheduler, with the notice that gives the room back.
fn global(c: &mut Criterion) {
    let mut group = c.benchmark_group("global");
    for nodes in [500u32, 5_000, 50_000] {
        let capacities = vec![Slots(20); nodes as usize];
        let settings = GlobalSettings {
            memory: Millis::ZERO,
            ..GlobalSettings::for_round_trip(Millis::new(0.5))
        };
        let mut global = Global::new(&capacities, settings);
        let mut actions = Vec::with_capacity(8);
        let mut id = 0u64;
        group.bench_function(BenchmarkId::from_parameter(format!("{nodes} nodes")), |b| {
            b.iter(|| {
                id += 1;
                let now = Millis::new(id as f64);
                let task = Task {
                    deadline: now,
                    ..task(id)
                };
                global.receive(now, ToGlobal::Forward(task, Term(0)), &mut actions);
                global.decide(now, &mut actions);
                let node = NodeIndex((id * 7919 % u64::from(nodes)) as u32);
                let report = NodeReport {
                    node,
                    version: id,
                    free: Slots((id % 20) as u32),
                    term: Term(0),
                    seen: id,
                };
                global.receive(now, ToGlobal::Notice(report), &mut actions);
                let count = actions.len();
                actions.clear();
                count
            });
        });
    }
    group.finish();
}

criterion_group!(benches, placements, node, global);
criterion_main!(benches);
