//! Larger random jobs of the shape used by the experiments: layers of about sqrt(n) tasks, each with one to three parents.

use fdn_core::{ClusterId, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::place::{Cluster, Network, Speed};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A job and the clusters it may go to.
pub(crate) struct RandomJob {
    /// The job.
    pub(crate) dag: Dag,
    /// The clusters, with four slots each.
    pub(crate) clusters: Vec<Cluster>,
    /// Links between them; the job has fixed transfer times.
    pub(crate) network: Network,
    /// The user's distance from each.
    pub(crate) distance: Vec<Millis>,
}

/// A job of `tasks` tasks and `clusters` clusters; the same for the same seed.
pub(crate) fn random_job(tasks: usize, clusters: usize, seed: u64) -> RandomJob {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let speeds: Vec<f64> = (0..clusters)
        .map(|_| f64::from(rng.random_range(1u32..=5)))
        .collect();
    RandomJob {
        dag: random_dag(tasks, &speeds, &mut rng),
        clusters: speeds
            .iter()
            .enumerate()
            .map(|(p, speed)| {
                let id: ClusterId = format!("c{p}").parse().expect("a label");
                Cluster::new(id, Speed::new(*speed), 4)
            })
            .collect(),
        network: Network::instant(clusters),
        distance: (0..clusters)
            .map(|_| Millis::new(rng.random_range(0.0..100.0)))
            .collect(),
    }
}

fn random_dag(tasks: usize, speeds: &[f64], rng: &mut ChaCha8Rng) -> Dag {
    let work: Vec<f64> = (0..tasks)
        .map(|_| f64::from(rng.random_range(1u32..=100)))
        .collect();
    let mean_speed = speeds.iter().sum::<f64>() / speeds.len() as f64;
    let omega = work.iter().sum::<f64>() / tasks as f64 / mean_speed;
    let mut builder = DagBuilder::new();
    for (i, work) in work.iter().enumerate() {
        builder.task(format!("t{i}"), Millis::new(*work), Resources::default());
    }
    let mut above = 0..1;
    while above.end < tasks {
        let width = (rng.random_range(0.5..1.5) * (tasks as f64).sqrt()).round() as usize;
        let layer = above.end..(above.end + width.max(1)).min(tasks);
        for task in layer.clone() {
            let mut parents = vec![rng.random_range(above.clone())];
            for _ in 1..rng.random_range(1..=3) {
                let from = if rng.random_bool(0.8) {
                    above.clone()
                } else {
                    0..above.end
                };
                parents.push(rng.random_range(from));
            }
            parents.sort_unstable();
            parents.dedup();
            for parent in parents {
                let time = Millis::new(rng.random_range(0.2..1.8) * omega);
                builder.edge(
                    TaskIndex::new(parent),
                    TaskIndex::new(task),
                    Transfer::Fixed(time),
                );
            }
        }
        above = layer;
    }
    builder.build().expect("edges lead to later layers only")
}
