//! Encodes a pass.

use std::collections::BTreeMap;

use super::bytes::Writer;
use super::{ClusterLoad, CompletedPass, Decisions, MARK, VERSION};
use crate::compete::{GroupDemand, Moves, Outcome, Terms, Verdict};
use crate::dag::{Dag, Holding, TaskIndex, Transfer};
use crate::place::{
    Availability, Cluster, ClusterIndex, Constraints, Exclusion, Hold, Network, Score,
};
use fdn_core::manifest::RuntimeKind;

/// Parts shared by several demands, each stored once, in the order of first use. Identity is the address in memory; equal values at two
/// addresses are stored twice, which costs space and changes nothing.
struct Shared<T> {
    of: BTreeMap<usize, usize>,
    items: Vec<T>,
}

impl<T> Shared<T> {
    const fn new() -> Self {
        Self {
            of: BTreeMap::new(),
            items: Vec::new(),
        }
    }

    fn index(&mut self, address: usize, item: T) -> usize {
        let items = &mut self.items;
        *self.of.entry(address).or_insert_with(|| {
            items.push(item);
            items.len() - 1
        })
    }
}

fn address<T: ?Sized>(item: &T) -> usize {
    std::ptr::from_ref(item).cast::<()>().addr()
}

/// The shared parts of all demands, and which demand uses which.
struct Parts<'a> {
    dags: Shared<&'a Dag>,
    views: Shared<(&'a str, &'a GroupDemand<'a>)>,
    constraints: Shared<(&'a Constraints, usize)>,
    factors: Shared<&'a [f64]>,
    entries: Vec<[Option<usize>; 4]>,
}

pub(super) fn encode(made: &CompletedPass<'_>) -> Vec<u8> {
    let mut to = Writer::default();
    to.0.extend_from_slice(MARK);
    to.whole(VERSION);
    to.whole(made.at.get());
    moves(&mut to, &made.moves);
    terms(&mut to, &made.pass.terms);
    to.list(made.pass.clusters, cluster);
    network(&mut to, made.pass.network);
    to.list(made.apps, |to, name| to.text(name));
    let parts = parts(made);
    let count = made.pass.clusters.len();
    to.list(&parts.dags.items, |to, item| dag(to, item));
    to.list(&parts.views.items, |to, (name, demand)| {
        to.text(name);
        to.list(demand.distance, |to, time| to.millis(*time));
    });
    to.list(&parts.constraints.items, |to, (item, tasks)| {
        constraints(to, item, (*tasks, count));
    });
    to.list(&parts.factors.items, |to, factors| {
        to.list(factors, |to, factor| to.number(*factor));
    });
    let mut entries = parts.entries.iter();
    for demands in [made.pass.settled, made.pass.demands] {
        to.list(demands, |to, each| {
            demand(to, each, entries.next().copied().unwrap_or_default(), count);
        });
    }
    decisions(&mut to, made.decisions, count);
    to.0
}

fn parts<'a>(made: &CompletedPass<'a>) -> Parts<'a> {
    let mut parts = Parts {
        dags: Shared::new(),
        views: Shared::new(),
        constraints: Shared::new(),
        factors: Shared::new(),
        entries: Vec::new(),
    };
    let demands = made.pass.settled.iter().chain(made.pass.demands);
    for (at, demand) in demands.enumerate() {
        let name = made.groups.get(at).copied().unwrap_or_default();
        let constraints = demand.constraints.map(|constraints| {
            let item = (constraints, demand.dag.given());
            parts.constraints.index(address(constraints), item)
        });
        let factors = demand
            .factors
            .map(|factors| parts.factors.index(address(factors), factors));
        parts.entries.push([
            Some(parts.dags.index(address(demand.dag), demand.dag)),
            Some(parts.views.index(address(demand.distance), (name, demand))),
            constraints,
            factors,
        ]);
    }
    parts
}

fn moves(to: &mut Writer, moves: &Moves) {
    for number in moves.numbers() {
        to.number(number);
    }
}

fn terms(to: &mut Writer, terms: &Terms) {
    to.number(terms.margin.get());
    to.millis(terms.horizon);
    to.flag(terms.options.exit_leg);
    to.flag(matches!(terms.options.hold, Hold::Task));
    to.flag(matches!(terms.options.score, Score::Inverse));
}

fn cluster(to: &mut Writer, cluster: &Cluster) {
    to.text(cluster.id.as_str());
    to.number(cluster.speed.get());
    to.list(&cluster.slots.available(), |to, time| to.millis(*time));
    for resources in [
        &cluster.free,
        &cluster.largest,
        &cluster.capacity,
        &cluster.roomiest,
    ] {
        to.resources(resources);
    }
    to.byte(match cluster.availability {
        Availability::Up => 0,
        Availability::Draining => 1,
        Availability::Down => 2,
    });
}

fn network(to: &mut Writer, network: &Network) {
    for from in 0..network.clusters() {
        let (latency, ms_per_byte) = network.row(from);
        for number in latency.iter().chain(ms_per_byte) {
            to.number(*number);
        }
    }
}

fn dag(to: &mut Writer, dag: &Dag) {
    let given = || (0..dag.given()).map(TaskIndex::new);
    to.count(dag.given());
    for task in given().map(|index| dag.task(index)) {
        to.text(&task.name);
        to.millis(task.work);
        to.resources(&task.demand);
        to.whole(match task.holding {
            Holding::Calls => 0,
            Holding::Instances(seats) => u64::from(seats.get()),
        });
        to.number(task.mean_ratio);
    }
    let edges: Vec<(TaskIndex, TaskIndex, Transfer)> = given()
        .flat_map(|from| {
            let children = dag.children(from);
            children.map(move |(child, transfer)| (from, child, transfer))
        })
        .collect();
    to.list(&edges, |to, (from, child, transfer)| {
        to.count(from.get());
        to.count(child.get());
        match transfer {
            Transfer::Data(size) => {
                to.byte(0);
                to.whole(size.as_bytes());
            }
            Transfer::Fixed(time) => {
                to.byte(1);
                to.millis(*time);
            }
        }
    });
}

fn constraints(to: &mut Writer, constraints: &Constraints, (tasks, clusters): (usize, usize)) {
    to.count(tasks);
    for task in 0..tasks {
        for at in 0..clusters {
            match constraints.get(task, at) {
                None => to.byte(0),
                Some(why) => {
                    to.byte(1);
                    exclusion(to, &why);
                }
            }
            let share = constraints.share(task, at);
            to.flag(share < 1.0);
            if share < 1.0 {
                to.number(share);
            }
        }
    }
}

fn exclusion(to: &mut Writer, exclusion: &Exclusion) {
    match exclusion {
        Exclusion::Down => to.byte(0),
        Exclusion::Draining => to.byte(1),
        Exclusion::Gone => to.byte(2),
        Exclusion::NoRuntime { kind } => {
            to.byte(3);
            to.byte(match kind {
                RuntimeKind::Wasm => 0,
                RuntimeKind::Docker => 1,
            });
        }
        Exclusion::NotReady => to.byte(4),
        Exclusion::CannotServe => to.byte(5),
        Exclusion::NoSlots => to.byte(6),
        Exclusion::OutOfReach => to.byte(7),
        Exclusion::TooSlow => to.byte(8),
        Exclusion::Shortage { wanted, free } => {
            to.byte(9);
            to.resources(wanted);
            to.resources(free);
        }
        Exclusion::Crowded { wanted, left } => {
            to.byte(10);
            to.resources(wanted);
            to.resources(left);
        }
        Exclusion::NeverFinishes => to.byte(11),
        Exclusion::NotSearched { tasks } => {
            to.byte(12);
            to.count(*tasks);
        }
    }
}

fn demand(to: &mut Writer, demand: &GroupDemand<'_>, parts: [Option<usize>; 4], clusters: usize) {
    to.count(demand.app);
    to.number(demand.rate.get());
    to.flag(demand.dwells);
    for part in parts {
        to.count(part.map_or(0, |index| index + 1));
    }
    match demand.before {
        None => to.byte(0),
        Some(before) => {
            to.byte(1);
            places(to, before, clusters);
        }
    }
}

/// Clusters by index plus one; zero for one that no longer exists.
fn places(to: &mut Writer, places: &[ClusterIndex], clusters: usize) {
    to.list(places, |to, place| {
        to.count(if place.get() < clusters {
            place.get() + 1
        } else {
            0
        });
    });
}

pub(super) fn outcome(to: &mut Writer, outcome: &Outcome, clusters: usize) {
    match &outcome.verdict {
        Verdict::First => to.byte(0),
        Verdict::StillBest => to.byte(1),
        Verdict::WithinMargin => to.byte(2),
        Verdict::Better => to.byte(3),
        Verdict::Deferred => to.byte(4),
        Verdict::Unplaced => to.byte(5),
        Verdict::Failed(why) => {
            to.byte(6);
            exclusion(to, why);
        }
    }
    places(to, &outcome.clusters, clusters);
    to.millis(outcome.latency);
}

pub(super) fn cluster_load(to: &mut Writer, load: &ClusterLoad) {
    let memory = &load.memory;
    for number in [load.erlangs, load.runs, memory.main, memory.gpu] {
        to.number(number);
    }
}

fn decisions(to: &mut Writer, decisions: &Decisions, clusters: usize) {
    to.list(&decisions.outcomes, |to, each| outcome(to, each, clusters));
    to.list(&decisions.loads, cluster_load);
    moves(to, &decisions.moves);
}
