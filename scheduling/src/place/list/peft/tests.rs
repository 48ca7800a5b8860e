use fdn_core::{ByteSize, Resources};
use proptest::prelude::*;

use super::super::super::{Bandwidth, Cluster, Link, Network, Options, Speed};
use super::*;
use crate::dag::{Dag, DagBuilder, Transfer};

/// The formula as it stands, with every pair of clusters.
fn naive(problem: &Problem<'_>, task: TaskIndex, p: usize) -> f64 {
    let clusters = 0..problem.clusters().len();
    let omega = mean_transfer(problem, |_| true);
    let mut most: f64 = if problem.options().exit_leg && problem.dag().is_exit(task) {
        problem.distance()[p].get()
    } else {
        0.0
    };
    for (child, transfer) in problem.dag().children(task) {
        let on = |q: usize| {
            let moved = if p == q { 0.0 } else { omega(transfer) };
            naive(problem, child, q) + problem.work(child, ClusterIndex::new(q)).get() + moved
        };
        most = most.max(clusters.clone().map(on).fold(f64::INFINITY, f64::min));
    }
    most
}

/// Layers of two tasks, each with both of the layer above as parents.
fn dag(work: &[u16], bytes: u32) -> Dag {
    let mut builder = DagBuilder::new();
    for (i, work) in work.iter().enumerate() {
        builder.task(
            format!("t{i}"),
            Millis::new(f64::from(*work)),
            Resources::default(),
        );
    }
    for i in 1..work.len() {
        let above = if i < 3 {
            0..1
        } else {
            (i - 1) / 2 * 2 - 1..(i - 1) / 2 * 2 + 1
        };
        for parent in above {
            let size = ByteSize::from_bytes(u64::from(bytes) * (1 + i as u64));
            let (parent, task) = (TaskIndex::new(parent), TaskIndex::new(i));
            builder.edge(parent, task, Transfer::Data(size));
        }
    }
    builder.build().expect("edges lead down")
}

proptest! {
    #[test]
    fn the_table_is_the_formula(
        work in prop::collection::vec(0u16..100, 1..8),
        speeds in prop::collection::vec(1u8..9, 1..4),
        bytes in 0u32..1_000_000,
        exit_leg in any::<bool>(),
    ) {
        let dag = dag(&work, bytes);
        let clusters: Vec<Cluster> = speeds
            .iter()
            .enumerate()
            .map(|(p, speed)| {
                let id = format!("c{p}").parse().expect("a name");
                Cluster::new(id, Speed::new(f64::from(*speed)), 1)
            })
            .collect();
        let network = Network::from_fn(clusters.len(), |from, to| Link {
            latency: Millis::new((from + to) as f64),
            bandwidth: Bandwidth::from_mb_per_s(10.0 + from as f64).expect("above 0"),
        });
        let distance: Vec<Millis> = (0..clusters.len()).map(|p| Millis::new(p as f64 * 7.0)).collect();
        let problem = Problem::new(&dag, &clusters, &network, &distance)
            .expect("consistent")
            .with_options(Options { exit_leg, ..Options::default() });
        let mut table = OptimisticCosts::default();
        table.fill(&problem, |_| true);
        for task in dag.indices() {
            for (p, cost) in table.row(task).iter().enumerate() {
                let expected = naive(&problem, task, p);
                prop_assert!((cost - expected).abs() <= 1e-9 * expected.max(1.0), "{} {}", cost, expected);
            }
            let sum: f64 = table.row(task).iter().sum();
            let mean = sum / clusters.len() as f64;
            prop_assert!((table.mean(task).get() - mean).abs() <= 1e-9 * mean.max(1.0));
        }
    }
}
