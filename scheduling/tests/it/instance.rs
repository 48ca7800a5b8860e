//! Owned problems for tests, and a generator of small random ones.

use fdn_core::{ByteSize, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::place::{
    Bandwidth, Cluster, Hold, Link, Network, Options, Problem, Slots, Speed,
};
use proptest::prelude::*;

pub(crate) fn ms(value: f64) -> Millis {
    Millis::new(value)
}

pub(crate) fn mib(value: u64) -> Resources {
    Resources::new(MilliCpu(0), MebiBytes(value))
}

pub(crate) fn id(name: &str) -> fdn_core::ClusterId {
    name.parse().expect("a cluster name")
}

/// Everything a [`Problem`] borrows.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) dag: Dag,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) network: Network,
    pub(crate) distance: Vec<Millis>,
    pub(crate) options: Options,
}

impl Instance {
    pub(crate) fn problem(&self) -> Problem<'_> {
        Problem::new(&self.dag, &self.clusters, &self.network, &self.distance)
            .expect("a consistent problem")
            .with_options(self.options)
    }
}

/// A DAG of these works and demands, with edges `(from, to, transfer)`.
pub(crate) fn dag(tasks: &[(f64, u64)], edges: &[(usize, usize, Transfer)]) -> Dag {
    let mut builder = DagBuilder::new();
    for (i, (work, demand)) in tasks.iter().enumerate() {
        builder.task(format!("t{i}"), ms(*work), mib(*demand));
    }
    for (from, to, transfer) in edges {
        builder.edge(TaskIndex::new(*from), TaskIndex::new(*to), *transfer);
    }
    builder.build().expect("a DAG")
}

/// Numbers a small random instance is made of; times are whole eighths, so that scaling by powers of two is exact.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) tasks: Vec<(u32, u64)>,
    /// `(drawn, size)` for each pair of tasks i < j; an edge if drawn below the density.
    pub(crate) pairs: Vec<(u8, u16)>,
    pub(crate) density: u8,
    pub(crate) data: bool,
    pub(crate) clusters: Vec<RawCluster>,
    pub(crate) links: Vec<(u16, u16)>,
    pub(crate) exit_leg: bool,
    pub(crate) hold_task: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct RawCluster {
    pub(crate) speed: u32,
    pub(crate) slots: Vec<u16>,
    pub(crate) free: u64,
    pub(crate) distance: u16,
}

fn raw_cluster() -> impl Strategy<Value = RawCluster> {
    (
        1u32..6,
        prop::collection::vec(prop_oneof![Just(0u16), 0u16..200], 1..4),
        prop_oneof![Just(1u64 << 40), 4u64..24],
        0u16..400,
    )
        .prop_map(|(speed, slots, free, distance)| RawCluster {
            speed,
            slots,
            free,
            distance,
        })
}

/// Small random instances of up to `tasks` tasks on up to `clusters` clusters.
pub(crate) fn raw(tasks: usize, clusters: usize) -> impl Strategy<Value = Raw> {
    (1..=tasks, 1..=clusters).prop_flat_map(|(m, n)| {
        (
            prop::collection::vec((prop_oneof![4 => 1u32..400, 1 => Just(0u32)], 0u64..6), m),
            prop::collection::vec((any::<u8>(), 0u16..300), m * (m - 1) / 2),
            any::<u8>(),
            any::<bool>(),
            prop::collection::vec(raw_cluster(), n),
            prop::collection::vec((0u16..100, 1u16..50), n * n),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(
                |(tasks, pairs, density, data, clusters, links, exit_leg, hold_task)| Raw {
                    tasks,
                    pairs,
                    density,
                    data,
                    clusters,
                    links,
                    exit_leg,
                    hold_task,
                },
            )
    })
}

impl Raw {
    /// The instance, with every time multiplied by `scale`.
    pub(crate) fn build_scaled(&self, scale: f64) -> Instance {
        let time = |eighths: f64| ms(eighths / 8.0 * scale);
        let m = self.tasks.len();
        let mut pairs = self.pairs.iter();
        let mut edges = Vec::new();
        for from in 0..m {
            for to in from + 1..m {
                let (drawn, size) = pairs.next().expect("one for each pair");
                if *drawn < self.density {
                    let transfer = if self.data {
                        Transfer::Data(ByteSize::from_bytes(u64::from(*size) * 1024))
                    } else {
                        Transfer::Fixed(time(f64::from(*size)))
                    };
                    edges.push((from, to, transfer));
                }
            }
        }
        let tasks: Vec<(f64, u64)> = self
            .tasks
            .iter()
            .map(|(work, demand)| (time(f64::from(*work)).get(), *demand))
            .collect();
        let n = self.clusters.len();
        let clusters = self.clusters.iter().enumerate().map(|(p, raw)| {
            let slots: Slots = raw.slots.iter().map(|t| time(f64::from(*t))).collect();
            Cluster::new(id(&format!("c{p}")), Speed::new(f64::from(raw.speed)), 0)
                .with_slots(slots)
                .with_free(mib(raw.free))
        });
        Instance {
            dag: dag(&tasks, &edges),
            clusters: clusters.collect(),
            network: Network::from_fn(n, |from, to| {
                let (latency, rate) = self.links[from * n + to];
                Link {
                    latency: time(f64::from(latency)),
                    bandwidth: Bandwidth::from_mb_per_s(f64::from(rate) / scale)
                        .expect("a positive rate"),
                }
            }),
            distance: self
                .clusters
                .iter()
                .map(|raw| time(f64::from(raw.distance)))
                .collect(),
            options: Options {
                exit_leg: self.exit_leg,
                hold: if self.hold_task {
                    Hold::Task
                } else {
                    Hold::Job
                },
                ..Options::default()
            },
        }
    }

    pub(crate) fn build(&self) -> Instance {
        self.build_scaled(1.0)
    }
}
