//! Random jobs and clusters of the experiments on placement.
//!
//! The family of DAGs is that of the articles on list scheduling, of shape 1: one entry; then layers of `round(U(0.5, 1.5) *
//! sqrt(n))` tasks; each task draws one to three parents, the first from the layer above, each further one from there too (80 %)
//! or from any earlier layer (20 %); parents drawn twice count once. Work is a whole number of milliseconds in [1, 100], speeds
//! are whole numbers in [1, 5], and an edge costs `U(0.2, 1.8) * CCR * mean(work) / mean(speed)` between any two clusters.
//!
//! Work, edges, speeds and distances come from streams of their own, so that one setting changed leaves the other draws alone.

use std::ops::{Range, RangeInclusive};

use fdn_core::{ClusterId, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::place::{Cluster, Network, Options, Problem, Speed};
use rand::RngExt;

use crate::Error;
use crate::seed::{Rng, Seed};

/// The most parents a task draws.
const PARENTS_MAX: usize = 3;

/// How often a further parent comes from the layer above; else from any earlier one.
const FROM_ABOVE: f64 = 0.8;

/// Clusters that differ in speed and distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Sites {
    /// How many.
    pub clusters: usize,
    /// How many tasks each runs at once.
    pub slots: usize,
    /// Speeds are drawn from these.
    pub speeds: RangeInclusive<u32>,
    /// The user's distance from each is drawn from `[0, distance)`; zero draws nothing.
    pub distance: Millis,
}

impl Default for Sites {
    /// Three clusters of four slots, speeds of 1 to 5, up to 100 ms away.
    fn default() -> Self {
        Self {
            clusters: 3,
            slots: 4,
            speeds: 1..=5,
            distance: Millis::new(100.0),
        }
    }
}

impl Sites {
    /// Clusters with idle slots and unlimited resources.
    #[must_use]
    pub fn draw(&self, seed: Seed) -> Vec<Cluster> {
        let mut rng = seed.stream("speeds");
        (0..self.clusters)
            .map(|p| {
                let speed = f64::from(rng.random_range(self.speeds.clone()));
                Cluster::new(cluster_id(p), Speed::new(speed), self.slots)
            })
            .collect()
    }

    /// One user's distance from each, one way.
    #[must_use]
    pub fn draw_distance(&self, seed: Seed) -> Vec<Millis> {
        let mut rng = seed.stream("distance");
        let mut draw = || {
            if self.distance > Millis::ZERO {
                Millis::new(rng.random_range(0.0..self.distance.get()))
            } else {
                Millis::ZERO
            }
        };
        (0..self.clusters).map(|_| draw()).collect()
    }
}

fn cluster_id(at: usize) -> ClusterId {
    format!("c{at}")
        .parse()
        .expect("a letter and digits are a label")
}

/// The mean speed of some clusters; 0 of none.
#[must_use]
pub fn mean_speed(clusters: &[Cluster]) -> f64 {
    let speeds: Vec<f64> = clusters.iter().map(|c| c.speed.get()).collect();
    crate::report::mean(&speeds)
}

/// A DAG of `tasks` tasks, at least one, whose edges cost `ccr` times what a mean task takes at `mean_speed`.
///
/// # Errors
/// When there are more tasks than a DAG may have.
pub fn dag(tasks: usize, ccr: f64, mean_speed: f64, seed: Seed) -> Result<Dag, Error> {
    let mut rng = seed.stream("work");
    let work: Vec<f64> = (0..tasks.max(1))
        .map(|_| f64::from(rng.random_range(1u32..=100)))
        .collect();
    let omega = ccr * crate::report::mean(&work) / mean_speed;
    let mut builder = DagBuilder::new();
    for (at, &work) in work.iter().enumerate() {
        builder.task(format!("t{at}"), Millis::new(work), Resources::default());
    }
    draw_edges(work.len(), omega, &mut seed.stream("edges"), &mut builder);
    builder
        .build()
        .map_err(|error| Error::Usage(error.to_string()))
}

fn draw_edges(tasks: usize, omega: f64, rng: &mut Rng, builder: &mut DagBuilder) {
    let mut above = 0..1;
    let mut parents = Vec::with_capacity(PARENTS_MAX);
    while above.end < tasks {
        let width = (rng.random_range(0.5..1.5) * (tasks as f64).sqrt()).round() as usize;
        let layer = above.end..(above.end + width.max(1)).min(tasks);
        for task in layer.clone() {
            draw_parents(&above, rng, &mut parents);
            for &parent in &parents {
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
}

fn draw_parents(above: &Range<usize>, rng: &mut Rng, parents: &mut Vec<usize>) {
    parents.clear();
    parents.push(rng.random_range(above.clone()));
    for _ in 1..rng.random_range(1..=PARENTS_MAX) {
        let from = if rng.random_bool(FROM_ABOVE) {
            above.clone()
        } else {
            0..above.end
        };
        parents.push(rng.random_range(from));
    }
    parents.sort_unstable();
    parents.dedup();
}

/// A job, where it may go, and who waits for it.
#[derive(Clone, Debug)]
pub struct World {
    /// The job.
    pub dag: Dag,
    /// The clusters.
    pub clusters: Vec<Cluster>,
    /// What joins them; the jobs here have fixed transfer times.
    pub network: Network,
    /// The user's distance from each.
    pub distance: Vec<Millis>,
}

impl World {
    /// One job on clusters of its own.
    ///
    /// # Errors
    /// When there are more tasks than a DAG may have.
    pub fn draw(tasks: usize, ccr: f64, sites: &Sites, seed: Seed) -> Result<Self, Error> {
        let clusters = sites.draw(seed);
        Ok(Self {
            dag: dag(tasks, ccr, mean_speed(&clusters), seed)?,
            network: Network::instant(clusters.len()),
            distance: sites.draw_distance(seed),
            clusters,
        })
    }

    /// The problem of placing it.
    #[must_use]
    pub fn problem(&self, options: Options) -> Problem<'_> {
        Problem::new(&self.dag, &self.clusters, &self.network, &self.distance)
            .expect("as many distances and columns as clusters were drawn")
            .with_options(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers(dag: &Dag) -> Vec<(usize, usize, Transfer)> {
        dag.indices()
            .flat_map(|to| {
                dag.parents(to)
                    .map(move |(from, transfer)| (from.get(), to.get(), transfer))
            })
            .collect()
    }

    #[test]
    fn jobs_have_the_shape_of_the_family() {
        for n in 0..20 {
            let world = World::draw(400, 2.0, &Sites::default(), Seed(n)).expect("small");
            let dag = &world.dag;
            assert_eq!(dag.len(), 400, "one entry, so none in front of it");
            assert_eq!(dag.entry().get(), 0);
            let mean_work = dag.indices().map(|t| dag.task(t).work.get()).sum::<f64>() / 400.0;
            let omega = 2.0 * mean_work / mean_speed(&world.clusters);
            let edges = transfers(dag);
            for (from, to, transfer) in &edges {
                let Transfer::Fixed(time) = transfer else {
                    panic!("a fixed time")
                };
                assert!(from < to);
                assert!((0.2 * omega..1.8 * omega).contains(&time.get()));
            }
            for task in dag.indices().skip(1) {
                let parents = dag.parents(task).count();
                assert!((1..=PARENTS_MAX).contains(&parents));
                let work = dag.task(task).work.get();
                assert!((1.0..=100.0).contains(&work) && work.fract() == 0.0);
            }
            // One to three draws, some of them twice the same: about 1.9 parents per task.
            assert!((600..=900).contains(&edges.len()), "{}", edges.len());
        }
    }

    #[test]
    fn layers_are_about_as_wide_as_the_job_is_long() {
        // The longest path counts the layers, because each task has a parent in the layer above.
        let world = World::draw(900, 1.0, &Sites::default(), Seed(5)).expect("small");
        let mut depth = vec![0; 900];
        for &task in world.dag.topological() {
            for (child, _) in world.dag.children(task) {
                depth[child.get()] = depth[child.get()].max(depth[task.get()] + 1);
            }
        }
        let layers = depth.iter().max().expect("tasks") + 1;
        assert!((24..=40).contains(&layers), "{layers}");
    }

    #[test]
    fn draws_repeat_and_do_not_shift_each_other() {
        let draw = |sites: &Sites, ccr, seed| World::draw(60, ccr, sites, seed).expect("small");
        let sites = Sites::default();
        let (a, b) = (draw(&sites, 1.0, Seed(3)), draw(&sites, 1.0, Seed(3)));
        assert_eq!(transfers(&a.dag), transfers(&b.dag));
        assert_eq!((&a.clusters, &a.distance), (&b.clusters, &b.distance));
        assert_ne!(
            transfers(&a.dag),
            transfers(&draw(&sites, 1.0, Seed(4)).dag)
        );

        let near = Sites {
            slots: 1,
            distance: Millis::ZERO,
            ..Sites::default()
        };
        let other = draw(&near, 5.0, Seed(3));
        let ends = |world: &World| -> Vec<(usize, usize)> {
            let edges = transfers(&world.dag);
            edges.iter().map(|(from, to, _)| (*from, *to)).collect()
        };
        assert_eq!(ends(&a), ends(&other));
        assert_eq!(mean_speed(&a.clusters), mean_speed(&other.clusters));
        assert_eq!(other.distance, [Millis::ZERO; 3]);
        assert!(a.distance.iter().all(|d| d.get() < 100.0));
    }

    #[test]
    fn a_job_of_one_task_is_a_job() {
        let world = World::draw(1, 1.0, &Sites::default(), Seed(1)).expect("small");
        assert_eq!((world.dag.len(), world.dag.edge_count()), (1, 0));
        assert_eq!(world.problem(Options::default()).clusters().len(), 3);
    }
}
