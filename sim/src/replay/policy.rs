//! Other rules than the planner's, over the same recorded demand and clusters.
//!
//! They are those that `fdn-bench response` compares with, for the mean of many calls: a rule that goes by single calls spreads a group over clusters
//! by shares. They are given the best conditions that they can have: they know run times, distances and which cluster can serve what exactly, and
//! change their mind at no cost.

use std::collections::BTreeMap;

use clap::ValueEnum;
use fdn_core::{ClusterId, Millis};
use fdn_scheduling::compete::{GroupDemand, Load, Rate};
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{Availability, Cluster, ClusterIndex};
use serde::Serialize;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Clients stay where they were at first, as long as they can be served there, and go to the nearest cluster then
    Stay,
    /// The nearest cluster
    Nearest,
    /// Client groups are dealt out to the clusters in turn, and stay
    RoundRobin,
    /// Clusters in turn, call by call
    Fcfs,
    /// The cluster with the least work for its slots, call by call
    Priority,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Stay,
        Self::Nearest,
        Self::RoundRobin,
        Self::Fcfs,
        Self::Priority,
    ];

    /// The name by which it is chosen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stay => "stay",
            Self::Nearest => "nearest",
            Self::RoundRobin => "round-robin",
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
        }
    }

    /// Whether clients have one place, from which they can be moved.
    const fn binds(self) -> bool {
        match self {
            Self::Stay | Self::Nearest | Self::RoundRobin => true,
            Self::Fcfs | Self::Priority => false,
        }
    }
}

/// A group goes to the least busy cluster in so many parts.
const PARTS: usize = 8;

/// Who a group is from pass to pass: its app, its name, and which it is of those with that name.
pub(super) type Key = (String, String, usize);

/// A part of a demand, and where it goes; nowhere, if it cannot be served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) demand: usize,
    pub(super) share: f64,
    pub(super) places: Vec<ClusterIndex>,
}

/// What a rule did in a pass.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) parts: Vec<Part>,
    /// Groups that were sent elsewhere; nothing where they have no one place.
    pub(super) moves: Option<usize>,
    /// What these ask for, in erlangs at speed 1.
    pub(super) moved: f64,
}

/// A rule with what it remembers.
#[derive(Debug)]
pub(super) struct Ruled {
    policy: Policy,
    kept: BTreeMap<Key, Vec<ClusterId>>,
    dealt: usize,
}

impl Ruled {
    pub(super) const fn new(policy: Policy) -> Self {
        Self {
            policy,
            kept: BTreeMap::new(),
            dealt: 0,
        }
    }

    /// Places all demands.
    pub(super) fn pass(
        &mut self,
        clusters: &[Cluster],
        demands: &[(Key, GroupDemand<'_>)],
    ) -> Done {
        match self.policy {
            Policy::Fcfs => in_turn(clusters, demands),
            Policy::Priority => least_busy(clusters, demands),
            Policy::Stay | Policy::Nearest | Policy::RoundRobin => self.bind(clusters, demands),
        }
    }

    fn bind(&mut self, clusters: &[Cluster], demands: &[(Key, GroupDemand<'_>)]) -> Done {
        let mut done = Done {
            moves: self.policy.binds().then_some(0),
            ..Done::default()
        };
        let mut kept = BTreeMap::new();
        for (at, (key, demand)) in demands.iter().enumerate() {
            let before = self.kept.get(key).cloned();
            let places = self.place(clusters, demand, before.as_ref());
            let names = |places: &[ClusterIndex]| -> Vec<ClusterId> {
                let ids = places.iter().filter_map(|place| clusters.get(place.get()));
                ids.map(|cluster| cluster.id.clone()).collect()
            };
            let there = names(&places);
            if before.as_ref().is_some_and(|before| *before != there) && !there.is_empty() {
                done.moves = done.moves.map(|moves| moves + 1);
                done.moved += work(demand);
            }
            // One that cannot be served now comes back to where it was.
            let remembered = if there.is_empty() {
                before
            } else {
                Some(there)
            };
            if let Some(there) = remembered {
                kept.insert(key.clone(), there);
            }
            done.parts.push(Part {
                demand: at,
                share: 1.0,
                places,
            });
        }
        self.kept = kept;
        done
    }

    fn place(
        &mut self,
        clusters: &[Cluster],
        demand: &GroupDemand<'_>,
        before: Option<&Vec<ClusterId>>,
    ) -> Vec<ClusterIndex> {
        let by_name = |ids: &Vec<ClusterId>| -> Vec<ClusterIndex> {
            let index = |id: &ClusterId| clusters.iter().position(|cluster| cluster.id == *id);
            let found = ids.iter().map(|id| index(id).unwrap_or(usize::MAX));
            found.map(ClusterIndex::new).collect()
        };
        let stays = match self.policy {
            Policy::Stay => before
                .map(by_name)
                .or_else(|| demand.before.map(<[ClusterIndex]>::to_vec)),
            Policy::RoundRobin => before.map(by_name),
            Policy::Nearest | Policy::Fcfs | Policy::Priority => None,
        };
        if let Some(places) = stays.filter(|places| serves(clusters, demand, places)) {
            return places;
        }
        if self.policy != Policy::RoundRobin {
            return route(clusters, demand, &by_distance(demand));
        }
        let first = self.dealt;
        self.dealt += 1;
        route(clusters, demand, &from(first, clusters.len()))
    }
}

/// All clusters in turn, beginning with this one.
fn from(first: usize, clusters: usize) -> Vec<usize> {
    (first..first + clusters)
        .map(|turn| turn % clusters)
        .collect()
}

fn by_distance(demand: &GroupDemand<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..demand.distance.len()).collect();
    order.sort_by_key(|at| (demand.distance[*at], *at));
    order
}

/// Clusters in turn, call by call: each that can serve an app has the same share of its calls.
fn in_turn(clusters: &[Cluster], demands: &[(Key, GroupDemand<'_>)]) -> Done {
    let mut done = Done::default();
    for (at, (_, demand)) in demands.iter().enumerate() {
        let whole: Vec<usize> = (0..clusters.len())
            .filter(|cluster| all_open(clusters, demand, *cluster))
            .collect();
        let place = |cluster: &usize| vec![ClusterIndex::new(*cluster); demand.dag.given()];
        let share = 1.0 / whole.len() as f64;
        let parts = whole.iter().map(|cluster| Part {
            demand: at,
            share,
            places: place(cluster),
        });
        done.parts.extend(parts);
        if whole.is_empty() {
            done.parts.push(Part {
                demand: at,
                share: 1.0,
                places: route(clusters, demand, &by_distance(demand)),
            });
        }
    }
    done
}

/// Those with the most work first, each in parts, to whichever cluster is least busy by then.
fn least_busy(clusters: &[Cluster], demands: &[(Key, GroupDemand<'_>)]) -> Done {
    let mut done = Done::default();
    let mut loads: Vec<Load> = clusters.iter().map(Load::of).collect();
    let mut turns: Vec<usize> = (0..demands.len()).collect();
    turns.sort_by(|a, b| {
        let by_work = work(&demands[*b].1).total_cmp(&work(&demands[*a].1));
        by_work.then(a.cmp(b))
    });
    for at in turns {
        let demand = &demands[at].1;
        let share = 1.0 / PARTS as f64;
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..PARTS {
            let mut order: Vec<usize> = (0..clusters.len()).collect();
            order.sort_by(|a, b| {
                let busy = |at: &usize| loads[*at].utilization();
                busy(a).total_cmp(&busy(b)).then(a.cmp(b))
            });
            let places = route(clusters, demand, &order);
            let rate = Rate::per_second(demand.rate.get() * share);
            for (task, place) in places.iter().enumerate() {
                let at = place.get();
                loads[at].add(rate, mean(clusters, demand, task, at));
            }
            match parts.iter_mut().find(|part| part.places == places) {
                Some(part) => part.share += share,
                None => parts.push(Part {
                    demand: at,
                    share,
                    places,
                }),
            }
        }
        done.parts.extend(parts);
    }
    done
}

/// The mean run time of a task in a cluster.
fn mean(clusters: &[Cluster], demand: &GroupDemand<'_>, task: usize, at: usize) -> Millis {
    let factors = demand.factors.unwrap_or_default();
    let factor = factors.get(task * clusters.len() + at);
    let mean = demand.dag.task(TaskIndex::new(task)).mean();
    clusters[at].speed.time(mean) * factor.copied().unwrap_or(1.0)
}

/// What a demand asks for at speed 1, in erlangs.
pub(super) fn work(demand: &GroupDemand<'_>) -> f64 {
    let tasks = (0..demand.dag.given()).map(|task| demand.dag.task(TaskIndex::new(task)).mean());
    demand
        .rate
        .erlangs(tasks.fold(Millis::ZERO, |sum, mean| sum + mean))
}

/// Whether a task can run in a cluster at all.
fn is_open(clusters: &[Cluster], demand: &GroupDemand<'_>, task: usize, at: usize) -> bool {
    let cluster = &clusters[at];
    let need = &demand.dag.task(TaskIndex::new(task)).demand;
    let distance = demand.distance.get(at);
    cluster.availability == Availability::Up
        && !cluster.slots.is_empty()
        && cluster.speed.get() > 0.0
        && need.fits(&cluster.roomiest)
        && distance.is_some_and(|distance| distance.is_finite())
        && demand
            .constraints
            .is_none_or(|constraints| constraints.get(task, at).is_none())
}

fn all_open(clusters: &[Cluster], demand: &GroupDemand<'_>, at: usize) -> bool {
    (0..demand.dag.given()).all(|task| is_open(clusters, demand, task, at))
}

/// Whether all tasks can run where they are.
fn serves(clusters: &[Cluster], demand: &GroupDemand<'_>, places: &[ClusterIndex]) -> bool {
    let mut tasks = places.iter().enumerate();
    places.len() == demand.dag.given()
        && tasks.all(|(task, place)| {
            place.get() < clusters.len() && is_open(clusters, demand, task, place.get())
        })
}

/// The first of these clusters that can take all of a workflow, or the first for each task; nowhere, if one can go nowhere.
fn route(clusters: &[Cluster], demand: &GroupDemand<'_>, order: &[usize]) -> Vec<ClusterIndex> {
    let tasks = demand.dag.given();
    if let Some(at) = order.iter().find(|at| all_open(clusters, demand, **at)) {
        return vec![ClusterIndex::new(*at); tasks];
    }
    let first = |task: usize| {
        let found = order
            .iter()
            .find(|at| is_open(clusters, demand, task, **at));
        found.map(|at| ClusterIndex::new(*at))
    };
    let places: Option<Vec<ClusterIndex>> = (0..tasks).map(first).collect();
    places.unwrap_or_default()
}
