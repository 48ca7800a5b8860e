//! Pods that want slices of devices, placed one after the other on a recorded cluster until more is asked for than there is.
//!
//! The world is thin: it draws pods, asks [`fdn_scheduling::resource`] for a node and devices, and books what was taken. Nothing is
//! given back, so what counts is how much of the devices can be handed out before a pod finds no room, and at the end.

mod input;

use std::collections::BTreeMap;

use fdn_scheduling::resource::{
    Choice, DeviceChoice, DeviceRequest, Fleet, GpuMilli, NodeIndex, NodeSet, Request, Score,
    Selector, Typical,
};
use rand::RngExt;

use crate::Error;
use crate::seed::{Rng, Seed};

pub use input::{DEVICES_MAX, Node, nodes, pods};

/// The part of the recorded pods that counts as what usually comes: every kind that the score looks at.
pub const TYPICAL_PART: f64 = 1.0;

/// How the curve of a run is sampled: a point per this share of the capacity.
const CURVE_STEP: f64 = 0.01;

/// How nodes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Rule {
    /// Smallest mean of the fractions in use
    LeastRequested,
    /// Smallest variance of the fractions in use
    MostBalanced,
    /// Largest mean of the fractions in use
    Packing,
    /// Least left over on the devices
    SmallestLeftover,
    /// Least room lost for the pods that usually come
    #[default]
    Fragmentation,
    /// Any node with room, all alike
    Random,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::LeastRequested,
        Self::MostBalanced,
        Self::Random,
        Self::Packing,
        Self::SmallestLeftover,
        Self::Fragmentation,
    ];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeastRequested => "least-requested",
            Self::MostBalanced => "most-balanced",
            Self::Packing => "packing",
            Self::SmallestLeftover => "smallest-leftover",
            Self::Fragmentation => "fragmentation",
            Self::Random => "random",
        }
    }

    fn score(self, typical: &Typical<u128>) -> Score<u128> {
        match self {
            // A random choice needs the devices only; the score is the cheapest one.
            Self::LeastRequested | Self::Random => Score::LeastRequested,
            Self::MostBalanced => Score::MostBalanced,
            Self::Packing => Score::Packing,
            Self::SmallestLeftover => Score::SmallestLeftover,
            Self::Fragmentation => Score::Fragmentation(typical.clone()),
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How nodes are compared.
    pub rule: Rule,
    /// Which device of a node.
    pub devices: DeviceChoice,
    /// Until this share of the devices' capacity has been asked for.
    pub requested: f64,
    /// The seed of the draws.
    pub seed: Seed,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// What was asked for so far, as a share of the capacity of all devices.
    pub requested: f64,
    /// What was handed out.
    pub allocated: f64,
    /// What is free and of no use to the pods that usually come.
    pub fragmented: f64,
}

/// What became of the pods of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// How many came.
    pub pods: u64,
    /// How many found no room.
    pub refused: u64,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// All devices, in thousandths.
    pub capacity: GpuMilli,
    /// What became of all pods.
    pub all: Fate,
    /// When the first pod found no room; `None` if all did.
    pub first_refusal: Option<Point>,
    /// At the end.
    pub end: Point,
    /// On the way: what was asked for, and what was handed out, as shares.
    pub curve: Vec<(f64, f64)>,
    /// By what the pods wanted: devices, and thousandths of each.
    pub by_kind: BTreeMap<(u32, u64), Fate>,
    /// What was handed out of each model, and what there is.
    pub by_model: BTreeMap<String, (GpuMilli, GpuMilli)>,
}

/// Places pods drawn from `pods`, with replacement, on empty `nodes`.
///
/// # Errors
/// When a choice breaks a rule that must always hold: a bug.
pub fn run(nodes: &[Node], pods: &[Request], settings: &Settings) -> Result<Run, Error> {
    let mut world = World::new(nodes, pods, settings)?;
    let mut draws = settings.seed.stream("pods");
    let enough = settings.requested * world.capacity as f64;
    let mut next_point = 0.0;
    while (world.requested as f64) < enough {
        let pod = &pods[draws.random_range(0..pods.len())];
        world.place(pod)?;
        if world.share(world.requested) >= next_point {
            let point = (world.share(world.requested), world.share(world.allocated));
            world.run.curve.push(point);
            next_point = point.0 + CURVE_STEP;
        }
    }
    world.finish(nodes)
}

struct World {
    fleet: Fleet<u128>,
    typical: Typical<u128>,
    selector: Selector<u128>,
    /// For the random rule: the generator and the nodes with room.
    random: Option<(Rng, NodeSet)>,
    capacity: u64,
    requested: u64,
    allocated: u64,
    run: Run,
}

impl World {
    fn new(nodes: &[Node], pods: &[Request], settings: &Settings) -> Result<Self, Error> {
        let specs: Vec<_> = nodes.iter().map(|node| node.spec).collect();
        let fleet = Fleet::new(&specs).map_err(|error| Error::Usage(error.to_string()))?;
        let typical = Typical::observed(pods.iter().copied(), TYPICAL_PART);
        let score = settings.rule.score(&typical);
        Ok(Self {
            selector: Selector::new(score, settings.devices, fleet.len()),
            random: (settings.rule == Rule::Random).then(|| {
                (
                    settings.seed.stream("nodes"),
                    NodeSet::with_room(fleet.len()),
                )
            }),
            capacity: specs
                .iter()
                .map(|s| u64::from(s.devices) * s.each.get())
                .sum(),
            fleet,
            typical,
            requested: 0,
            allocated: 0,
            run: Run::default(),
        })
    }

    fn place(&mut self, pod: &Request) -> Result<(), Error> {
        let (count, each) = kind(pod);
        let wanted = u64::from(count) * each;
        self.requested += wanted;
        let fate = self.run.by_kind.entry((count, each)).or_default();
        fate.pods += 1;
        self.run.all.pods += 1;
        if let Some(choice) = self.choose(pod) {
            let taken = self.fleet.take(choice.node, pod, choice.devices);
            taken.map_err(|error| Error::Broken(error.to_string()))?;
            self.allocated += wanted;
            return Ok(());
        }
        self.run.by_kind.entry((count, each)).or_default().refused += 1;
        self.run.all.refused += 1;
        if self.run.first_refusal.is_none() {
            self.run.first_refusal = Some(self.point());
        }
        Ok(())
    }

    fn choose(&mut self, pod: &Request) -> Option<Choice> {
        let Some((rng, candidates)) = &mut self.random else {
            return self.selector.choose(&self.fleet, pod);
        };
        self.fleet.filter(pod, candidates);
        let count = candidates.count();
        let node = (count > 0).then(|| rng.random_range(0..count))?;
        let node = candidates.iter().nth(node)?;
        self.selector.evaluate(&self.fleet, node, pod)
    }

    fn share(&self, milli: u64) -> f64 {
        milli as f64 / self.capacity as f64
    }

    fn point(&self) -> Point {
        let nodes = (0..self.fleet.len()).map(NodeIndex::new);
        let lost: f64 = nodes.map(|n| self.typical.fragments(&self.fleet, n)).sum();
        Point {
            requested: self.share(self.requested),
            allocated: self.share(self.allocated),
            fragmented: lost / self.capacity as f64,
        }
    }

    fn finish(mut self, nodes: &[Node]) -> Result<Run, Error> {
        let mut booked = 0;
        for (index, node) in nodes.iter().enumerate() {
            let free = self.fleet.device_free(NodeIndex::new(index));
            let free = u64::try_from(self.fleet.layout().total(free)).unwrap_or(u64::MAX);
            let has = u64::from(node.spec.devices) * node.spec.each.get();
            let of_model = self.run.by_model.entry(node.model.clone()).or_default();
            of_model.0.0 += has - free;
            of_model.1.0 += has;
            booked += has - free;
        }
        if booked != self.allocated {
            let (wanted, booked) = (self.allocated, booked);
            return Err(Error::Broken(format!(
                "{wanted} thousandths were handed out, but {booked} are in use"
            )));
        }
        self.run.end = self.point();
        self.run.capacity = GpuMilli(self.capacity);
        Ok(self.run)
    }
}

/// How many devices a pod wants, and how many thousandths of each.
fn kind(pod: &Request) -> (u32, u64) {
    let each = pod.devices.each(GpuMilli::WHOLE.units()).get();
    match pod.devices {
        DeviceRequest::None => (0, 0),
        DeviceRequest::Slices { count, .. } | DeviceRequest::Whole(count) => (count, each),
    }
}
