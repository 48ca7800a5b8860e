//! How long the plans of a whole network take: `cargo bench -p fdn-scheduling --bench compete`.
//!
//! 1,000 apps with 50 client groups each on 50 clusters, at 70 % of what these can do: planned from nothing, planned again at rest, after the
//! rates of 1 %, 10 % and all of the groups have changed by up to a half either way, and after the largest cluster has died. Every other app runs in instances that hold memory, of which the clusters have too little for all of them everywhere.
//! Beside it, the same 50,000 groups planned each for itself with the report that explanations are made of.

#![expect(clippy::disallowed_methods, reason = "how long it takes is the result")]

use std::num::NonZeroU32;
use std::time::Instant;

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::compete::{Competition, GroupDemand, Moves, Rate, Terms};
use fdn_scheduling::dag::{Dag, DagBuilder, Holding};
use fdn_scheduling::place::{
    Availability, Cluster, ClusterIndex, Memory, Network, Options, Problem, Speed,
};
use fdn_scheduling::steer::{Margin, replan};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const APPS: usize = 1_000;
const GROUPS: usize = 50;
const CLUSTERS: usize = 50;
const ROUNDS: usize = 5;
/// Of a cluster, for each slot, in MiB.
const MEMORY: u64 = 400;

/// The time, where each group is now, how many moved, and the part of its memory that the fullest cluster is asked for.
type Planned = (f64, Vec<ClusterIndex>, usize, f64);

struct World {
    clusters: Vec<Cluster>,
    network: Network,
    apps: Vec<Dag>,
    /// By group.
    distances: Vec<Vec<Millis>>,
    /// By app and group.
    rates: Vec<Rate>,
}

fn world() -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let clusters: Vec<Cluster> = (0..CLUSTERS)
        .map(|n| {
            let id = format!("c{n}").parse().expect("a name");
            let speed = Speed::new(rng.random_range(0.5..2.0));
            let slots = rng.random_range(16..512);
            Cluster::new(id, speed, slots).with_capacity(Resources {
                memory_mib: MebiBytes(MEMORY * slots as u64),
                ..Resources::UNLIMITED
            })
        })
        .collect();
    let capacity: f64 = clusters
        .iter()
        .map(|cluster| cluster.speed.get() * cluster.slots.len() as f64)
        .sum();
    let apps: Vec<Dag> = (0..APPS)
        .map(|number| app(number, Millis::new(rng.random_range(1.0..100.0))))
        .collect();
    let distances = (0..GROUPS)
        .map(|_| {
            (0..CLUSTERS)
                .map(|_| Millis::new(rng.random_range(1.0..150.0)))
                .collect()
        })
        .collect();
    let each = 0.7 * capacity / (APPS * GROUPS) as f64;
    let rates = (0..APPS * GROUPS)
        .map(|at| {
            let work = apps[at / GROUPS].task(apps[at / GROUPS].entry()).work;
            Rate::per_second(rng.random_range(0.0..2.0) * each * 1000.0 / work.get())
        })
        .collect();
    World {
        network: Network::instant(clusters.len()),
        clusters,
        apps,
        distances,
        rates,
    }
}

/// Calls of every other app are served by instances.
fn app(number: usize, work: Millis) -> Dag {
    let mut builder = DagBuilder::new();
    let demand = Resources::new(MilliCpu(0), MebiBytes(256));
    let task = builder.task("f", work, demand);
    if number.is_multiple_of(2) {
        let seats = NonZeroU32::new(4).expect("some");
        builder.holding(task, Holding::Instances(seats));
    }
    builder.build().expect("one task")
}

fn terms() -> Terms {
    Terms {
        margin: Margin::default(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
        horizon: Millis::new(10_000.0),
    }
}

impl World {
    /// Plans everything.
    fn plan(&self, before: Option<&[ClusterIndex]>) -> Planned {
        let demands: Vec<GroupDemand<'_>> = (0..APPS * GROUPS)
            .map(|at| GroupDemand {
                app: at / GROUPS,
                dag: &self.apps[at / GROUPS],
                distance: &self.distances[at % GROUPS],
                rate: self.rates[at],
                before: before.map(|before| std::slice::from_ref(&before[at])),
                constraints: None,
                factors: None,
                dwells: false,
            })
            .collect();
        let begin = Instant::now();
        let mut places = vec![ClusterIndex::new(0); demands.len()];
        let mut moved = 0;
        let mut competition = Competition::new(&self.clusters, &self.network, terms());
        competition
            .run(&demands, &mut Moves::unlimited(), |at, _, outcome| {
                places[at] = outcome.clusters[0];
                moved += usize::from(outcome.verdict.moves());
            })
            .expect("there is room for all");
        let took = begin.elapsed().as_secs_f64();
        let parts = competition.needed().iter().zip(&self.clusters);
        let parts = parts.map(|(needed, cluster)| needed.main / Memory::of(&cluster.capacity).main);
        (took, places, moved, parts.fold(0.0, f64::max))
    }

    /// The same with other rates for this share of the groups.
    fn changed(&mut self, share: f64, rng: &mut ChaCha8Rng) {
        for rate in &mut self.rates {
            if rng.random_bool(share) {
                *rate = Rate::per_second(rate.get() * rng.random_range(0.5..1.5));
            }
        }
    }

    fn alone(&self) -> f64 {
        let begin = Instant::now();
        for at in 0..APPS * GROUPS {
            let distance = &self.distances[at % GROUPS];
            let dag = &self.apps[at / GROUPS];
            let problem = Problem::new(dag, &self.clusters, &self.network, distance)
                .expect("consistent")
                .with_options(terms().options);
            let steered = replan(&problem, None, Margin::default());
            std::hint::black_box(&steered.expect("it fits"));
        }
        begin.elapsed().as_secs_f64()
    }
}

#[expect(clippy::print_stdout, reason = "the table is the result")]
fn main() {
    let mut world = world();
    println!("{APPS} apps x {GROUPS} client groups x {CLUSTERS} clusters, least of {ROUNDS} runs");
    println!(
        "{:<36} {:>10} {:>10} {:>16}",
        "", "seconds", "moved", "fullest cluster"
    );
    let least = |plan: &dyn Fn() -> Planned| {
        let runs = (0..ROUNDS).map(|_| plan());
        runs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("some runs")
    };
    let print = |name: &str, (time, places, moved, full): Planned| {
        let full = full * 100.0;
        println!("{name:<36} {time:>10.3} {moved:>10} {full:>14.1} %");
        places
    };
    let places = print("from nothing", least(&|| world.plan(None)));
    let places = print("again", least(&|| world.plan(Some(&places))));
    let mut places = print("and again", least(&|| world.plan(Some(&places))));
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (share, name) in [
        (0.01, "1 % of the rates have changed"),
        (0.1, "10 % of the rates have changed"),
        (1.0, "all rates have changed"),
    ] {
        world.changed(share, &mut rng);
        places = print(name, least(&|| world.plan(Some(&places))));
    }
    let largest = (0..CLUSTERS).max_by_key(|at| world.clusters[*at].slots.len());
    let largest = &mut world.clusters[largest.expect("there are some")];
    largest.availability = Availability::Down;
    print(
        "the largest cluster has died",
        least(&|| world.plan(Some(&places))),
    );
    let alone = world.alone();
    println!("{:<36} {alone:>10.3}", "each for itself, with its report");
}
