//! A snapshot of the network as placement sees it: pure data, built from node reports and what is known of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::api::Candidate;
use fdn_core::billing::PriceList;
use fdn_core::fleet::ClusterLink;
use fdn_core::latency::{ClientView, LatencyEstimate, LatencyMap, LatencySource};
use fdn_core::message::NodeStatus;
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{
    AppName, ClientPrefix, ClusterId, GeoPoint, Millis, RegionName, Resources, StageName, Timestamp,
};
use fdn_scheduling::compete::{self, Competition, GroupDemand, Load, Pass, Rate};
use fdn_scheduling::dag::{Dag, Holding, TaskIndex};
use fdn_scheduling::group::{GroupKey, Grouping};
use fdn_scheduling::live;
use fdn_scheduling::place::{
    Bandwidth, Cluster, ClusterIndex, Costs, Infeasible, Link, Memory, MemoryLimits, Network,
    Options, Problem,
};
use fdn_scheduling::steer::{Margin, Steered, replan};
use fdn_scheduling::workflow::{Profile, dag};

use super::actual::{Actuals, Factors};
use super::learned::MeasuredProfiles;
pub use super::links::MeasuredRtts;
use super::links::links;
use super::node_registry::NodeRegistry;
use super::prefixes::ActivePrefixes;
use super::reason::Failover;
use super::serving::{Phases, Serving, running};
use super::what_if::Shifts;
use crate::geo::Geo;

/// Placement counts the way back to the client, since what it minimizes is the latency that the client sees.
const OPTIONS: Options = Options {
    exit_leg: true,
    hold: fdn_scheduling::place::Hold::Job,
    score: fdn_scheduling::place::Score::Normal,
};

/// A snapshot of the network.
pub struct World {
    clusters: Vec<Cluster>,
    network: Network,
    links: Vec<Vec<LatencyEstimate>>,
    map: LatencyMap,
    geo: Arc<Geo>,
    grouping: Grouping,
    terms: compete::Terms,
    loads: Vec<ClusterLoad>,
    called: ActivePrefixes,
    learned: MeasuredProfiles,
    pub(super) phases: Arc<Phases>,
    actuals: Actuals,
    shifts: Shifts,
    bandwidth: Bandwidth,
    /// The price list in force; `None` if there is none.
    pub(super) prices: Option<PriceList>,
}

/// The load and memory need of a cluster under the plans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterLoad {
    /// The offered load on its slots.
    pub load: Load,
    /// The memory needed for instances.
    pub memory: Memory,
}

/// Where an app already is, for explanations.
#[derive(Clone, Copy)]
pub struct Presence<'a> {
    /// Whether some plan has a stage run in a cluster, so that it needs no further instance there.
    pub runs: &'a dyn Fn(&StageName, &ClusterId) -> bool,
    /// Whether it is being called, so that it holds an instance where its clients are sent.
    pub is_called: bool,
    /// Where its stages can run.
    pub serving: &'a Serving,
    /// The corrections of run times.
    pub factors: &'a Factors,
}

/// The run-time profiles of an app's stages.
pub type Profiles = BTreeMap<StageName, Profile>;

/// The settings that a snapshot needs, in the schedulers' types.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The gain that a move of clients requires.
    pub margin: Margin,
    /// The bandwidth between clusters.
    pub bandwidth: Bandwidth,
    /// How long an overload is assumed to last.
    pub horizon: Millis,
}

/// The steering decision for one client or group.
pub struct Steering {
    /// The cluster of each stage, in the order of the stages.
    pub stages: Vec<ClusterId>,
    /// The cluster of the entry stage.
    pub entry: ClusterId,
    /// The reason, in words.
    pub reason: String,
    /// Whether any stage moved.
    pub changed: bool,
    /// The clusters with the terms of their evaluation for the entry.
    pub candidates: Vec<Candidate>,
    /// The cluster that was left because it could not take the work, if that is the reason.
    pub failover: Option<Failover>,
}

impl World {
    /// The network as nodes describe it at `now`, with the measured round trips.
    #[must_use]
    pub fn new(
        live: &NodeRegistry,
        geo: Arc<Geo>,
        measured: MeasuredRtts,
        terms: Terms,
        now: Timestamp,
    ) -> Self {
        let alive: Vec<&NodeStatus> = live.alive(now).map(|seen| &seen.status).collect();
        Self::of(live.clusters(), &alive, geo, measured, terms)
    }

    /// The network of these clusters with these living nodes.
    #[must_use]
    pub fn of(
        places: BTreeMap<ClusterId, (RegionName, GeoPoint)>,
        alive: &[&NodeStatus],
        geo: Arc<Geo>,
        measured: MeasuredRtts,
        terms: Terms,
    ) -> Self {
        let mut nodes = BTreeMap::<&ClusterId, Vec<&NodeStatus>>::new();
        for node in alive {
            nodes.entry(&node.cluster).or_default().push(node);
        }
        let nodes_of = |id: &ClusterId| nodes.get(id).into_iter().flatten().copied();
        let clusters: Vec<Cluster> = places
            .keys()
            .map(|id| live::cluster(id.clone(), nodes_of(id), terms.horizon))
            .collect();
        let names: Vec<&ClusterId> = places.keys().collect();
        let phases = Phases::new(&names, alive);
        let actuals = Actuals::new(&names, alive);
        let links = links(&places, &measured.links);
        let network = Network::from_fn(links.len(), |from, to| Link {
            latency: links[from][to].one_way(),
            bandwidth: terms.bandwidth,
        });
        let locations = places
            .into_iter()
            .map(|(id, (_, point))| (id, point))
            .collect();
        let mut map = LatencyMap::new(locations, geo.locations().iter().copied());
        let called = ActivePrefixes::new(measured.clients.iter().map(|(prefix, _, _)| *prefix));
        map.set_measured(measured.clients);
        Self {
            loads: clusters.iter().map(nothing).collect(),
            called,
            clusters,
            network,
            links,
            map,
            geo,
            grouping: Grouping::default(),
            terms: compete::Terms {
                margin: terms.margin,
                options: OPTIONS,
                horizon: terms.horizon,
            },
            learned: MeasuredProfiles::new(alive),
            phases: Arc::new(phases),
            actuals,
            shifts: Shifts::new(),
            bandwidth: terms.bandwidth,
            prices: None,
        }
    }

    /// Shifts the round trips of some clusters, to clients and to each other; not below zero.
    #[must_use]
    pub fn with_shifts(mut self, shifts: Shifts) -> Self {
        let by = |at: usize| {
            let shift = shifts.get(&self.clusters[at].id);
            shift.copied().unwrap_or(Millis::ZERO)
        };
        for (from, row) in self.links.iter_mut().enumerate() {
            for (to, link) in row.iter_mut().enumerate().filter(|(to, _)| *to != from) {
                link.rtt = (link.rtt + by(from) + by(to)).max(Millis::ZERO);
            }
        }
        let (links, bandwidth) = (&self.links, self.bandwidth);
        self.network = Network::from_fn(links.len(), |from, to| Link {
            latency: links[from][to].one_way(),
            bandwidth,
        });
        self.shifts = shifts;
        self
    }

    /// Uses the measurements of functions and stages from another snapshot.
    #[must_use]
    pub fn with_measurements_of(mut self, other: &Self) -> Self {
        self.learned.clone_from(&other.learned);
        self
    }

    /// Sets the load of the clusters under the last plans; a cluster that is not listed has none.
    #[must_use]
    pub fn with_loads(mut self, loads: &BTreeMap<ClusterId, ClusterLoad>) -> Self {
        for (cluster, load) in self.clusters.iter().zip(&mut self.loads) {
            if let Some(known) = loads.get(&cluster.id) {
                // The load is set against the present slots.
                load.load = known.load.on_slots_of(&load.load);
                load.memory = known.memory;
            }
        }
        self
    }

    /// The memory needed in all clusters together, and the memory of those that take work, in MiB.
    #[must_use]
    pub fn memory(&self, loads: &BTreeMap<ClusterId, ClusterLoad>) -> (f64, f64) {
        let needed = loads.values().map(|load| load.memory.main).sum();
        let main = |cluster: &Cluster| Memory::of(&cluster.capacity).main;
        (needed, self.clusters.iter().map(main).sum())
    }

    /// The pass in which client groups compete for these clusters: `settled` groups stay where they are, the others have their turn.
    #[must_use]
    pub fn pass<'a>(
        &'a self,
        settled: &'a [GroupDemand<'a>],
        demands: &'a [GroupDemand<'a>],
    ) -> Pass<'a> {
        Pass {
            clusters: &self.clusters,
            network: &self.network,
            terms: self.terms,
            settled,
            demands,
        }
    }

    /// The clusters, by name.
    #[must_use]
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The load and memory need of a cluster under the plans.
    pub(super) fn load_of(&self, at: usize) -> &ClusterLoad {
        &self.loads[at]
    }

    /// How long an overload is assumed to last.
    pub(super) const fn horizon(&self) -> Millis {
        self.terms.horizon
    }

    /// How far the clusters are in serving all apps.
    #[must_use]
    pub fn phases(&self) -> Arc<Phases> {
        Arc::clone(&self.phases)
    }

    /// The measured run times.
    #[must_use]
    pub const fn actuals(&self) -> &Actuals {
        &self.actuals
    }

    /// The client prefixes with measured calls.
    #[must_use]
    pub const fn called(&self) -> &ActivePrefixes {
        &self.called
    }

    /// The gain that a move of clients requires.
    pub(super) const fn margin(&self) -> Margin {
        self.terms.margin
    }

    /// The links between the clusters.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The round trips from a cluster to the others, nearest first; empty for an unknown cluster.
    #[must_use]
    pub fn links(&self, cluster: &ClusterId) -> Vec<ClusterLink> {
        let from = self.clusters.iter().position(|known| known.id == *cluster);
        let Some(from) = from else { return Vec::new() };
        let others = self.clusters.iter().zip(&self.links[from]);
        let mut links: Vec<ClusterLink> = others
            .filter(|(other, _)| other.id != *cluster)
            .map(|(other, link)| ClusterLink {
                cluster: other.id.clone(),
                rtt_ms: link.rtt,
                source: link.source,
            })
            .collect();
        links.sort_by_key(|link| link.rtt_ms);
        links
    }

    /// The load and memory need of each cluster after a competition, by name.
    #[must_use]
    pub fn loads_after(&self, competition: &Competition<'_>) -> BTreeMap<ClusterId, ClusterLoad> {
        let names = self.clusters.iter().map(|cluster| cluster.id.clone());
        let parts = competition.loads().iter().zip(competition.needed());
        let loads = parts.map(|(load, memory)| ClusterLoad {
            load: *load,
            memory: *memory,
        });
        names.zip(loads).collect()
    }

    /// The position of a cluster; out of range if it does not exist.
    #[must_use]
    pub fn index_of(&self, cluster: &ClusterId) -> ClusterIndex {
        let found = self.clusters.binary_search_by(|c| c.id.cmp(cluster));
        ClusterIndex::new(found.unwrap_or(usize::MAX))
    }

    /// The name of a cluster; `None` if the position is out of range.
    #[must_use]
    pub fn name_of(&self, cluster: ClusterIndex) -> Option<&ClusterId> {
        self.clusters.get(cluster.get()).map(|c| &c.id)
    }

    /// The distance of a group from each cluster, in the order of the clusters.
    #[must_use]
    pub fn distances(&self, group: &GroupKey) -> Vec<Millis> {
        let known: BTreeMap<&ClusterId, Millis> = group.distances().collect();
        self.clusters
            .iter()
            .map(|c| known.get(&c.id).copied().unwrap_or(Millis::INFINITY))
            .collect()
    }

    /// The DAG of a workflow with its profiles.
    ///
    /// # Errors
    /// When a profile's work is negative or not finite.
    pub fn dag(
        &self,
        workflow: &Workflow,
        profiles: &Profiles,
    ) -> Result<Dag, fdn_scheduling::Error> {
        let idle = Profile {
            work: Millis::ZERO,
            demand: Resources::default(),
            holding: Holding::Calls,
            mean_ratio: 1.0,
        };
        Ok(dag(workflow, |stage| {
            profiles.get(&stage.name).copied().unwrap_or(idle)
        })?)
    }

    /// The latency estimates for a client.
    #[must_use]
    pub fn view(&self, client: ClientPrefix) -> ClientView {
        let mut view = self.map.view(client, self.geo.look_up(client));
        for (cluster, by) in &self.shifts {
            if let Some(estimate) = view.estimates.get_mut(cluster) {
                estimate.rtt = (estimate.rtt + *by).max(Millis::ZERO);
            }
        }
        view
    }

    /// The group to which a client belongs.
    #[must_use]
    pub fn group(&self, client: ClientPrefix) -> GroupKey {
        self.grouping.key_of(&self.view(client))
    }

    /// The workflow with the measured sizes of outputs.
    #[must_use]
    pub fn learned(&self, app: &AppName, workflow: &Workflow) -> Workflow {
        let output = |stage: &StageName| self.learned.output(app, stage);
        workflow.clone().with_sizes(output)
    }

    /// The profiles of `app`'s stages: measured if there were calls, otherwise as the manifest expects.
    #[must_use]
    pub fn profiles(
        &self,
        app: &AppName,
        workflow: &Workflow,
        expected: impl Fn(&Stage) -> Profile,
    ) -> Profiles {
        let stages = workflow.stages().iter();
        let known = stages.map(|stage| {
            let profile = self.learned.profile(app, workflow, stage, expected(stage));
            (stage.name.clone(), profile)
        });
        known.collect()
    }

    /// Where the stages of an app can run. An app without a name, or one that does not exist yet, is ready nowhere.
    #[must_use]
    pub fn serving(
        &self,
        app: Option<&AppName>,
        workflow: &Workflow,
        profiles: &Profiles,
    ) -> Serving {
        let all = workflow.stages().iter();
        let forms: Vec<_> = all
            .map(|stage| running(profiles.get(&stage.name)))
            .collect();
        self.phases.serving(app, &forms)
    }

    /// The explanation of a group's placement, with the terms of every cluster.
    ///
    /// # Errors
    /// When no cluster can take one of the stages.
    pub fn explain(
        &self,
        problem: &Problem<'_>,
        group: &GroupKey,
        serving: &Serving,
        previous: Option<&[ClusterId]>,
    ) -> Result<Steering, fdn_scheduling::Error> {
        let estimate = |one_way: Millis| LatencyEstimate {
            rtt: one_way * 2.0,
            source: LatencySource::Located,
        };
        let view = group
            .distances()
            .map(|(id, one_way)| (id.clone(), estimate(one_way)))
            .collect();
        self.steering(problem, &view, serving, previous)
    }

    /// Plans for one client that was previously sent to `previous`, if anywhere.
    ///
    /// # Errors
    /// When no cluster can take one of the stages.
    pub fn steer(
        &self,
        workflow: &Workflow,
        profiles: &Profiles,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
        previous: Option<&[ClusterId]>,
        presence: &Presence<'_>,
    ) -> Result<Steering, fdn_scheduling::Error> {
        let dag = self.dag(workflow, profiles)?;
        let away = |c: &Cluster| {
            let known = view.get(&c.id);
            known.map_or(Millis::INFINITY, LatencyEstimate::one_way)
        };
        let distance: Vec<Millis> = self.clusters.iter().map(away).collect();
        // A single additional client does not change the load; it meets the present waits, and its toll is that of a very low rate.
        let (nobody, horizon) = (Rate::default(), self.terms.horizon);
        let factors = presence.factors.as_slice().unwrap_or_default();
        let time = |task: usize, at: usize| {
            let work = dag.task(TaskIndex::new(task)).work;
            let factor = factors.get(task * self.clusters.len() + at);
            self.clusters[at].speed.time(work) * factor.copied().unwrap_or(1.0)
        };
        let (mut times, mut costs) = (Costs::default(), Costs::default());
        times.refill(dag.given(), self.clusters.len(), |task, at| {
            let time = time(task, at);
            time + self.loads[at].load.wait(nobody, time, horizon)
        });
        costs.refill(dag.given(), self.clusters.len(), |task, at| {
            let toll = self.loads[at].load.toll(nobody, time(task, at), horizon);
            times.get(task, at) + toll
        });
        let mut memory_limits = MemoryLimits::default();
        memory_limits.refill(
            (dag.given(), self.clusters.len()),
            |task, at| {
                let stage = &workflow.stages()[task].name;
                if (presence.runs)(stage, &self.clusters[at].id) {
                    Memory::default()
                } else {
                    Memory::of(&dag.task(TaskIndex::new(task)).demand)
                }
            },
            |at| Memory::of(&self.clusters[at].capacity) - self.loads[at].memory,
        );
        let mut clusters = self.clusters.clone();
        if presence.is_called {
            for (task, id) in previous.unwrap_or_default().iter().enumerate() {
                let found = clusters.get_mut(self.index_of(id).get());
                if let Some(cluster) = found.filter(|_| task < dag.given()) {
                    cluster.give_back(&dag.task(TaskIndex::new(task)).demand);
                }
            }
        }
        let problem = Problem::new(&dag, &clusters, &self.network, &distance)?
            .with_tolls(&costs, &times)?
            .with_memory_limits(&memory_limits)?
            .with_options(OPTIONS);
        let index = |ids: &[ClusterId]| ids.iter().map(|id| self.index_of(id)).collect::<Vec<_>>();
        let before = previous.map(index);
        let problem = match presence.serving.constraints(before.as_deref()) {
            Some(constraints) => problem.with_constraints(constraints)?,
            None => problem,
        };
        self.steering(&problem, view, presence.serving, previous)
    }

    fn steering(
        &self,
        problem: &Problem<'_>,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
        serving: &Serving,
        previous: Option<&[ClusterId]>,
    ) -> Result<Steering, fdn_scheduling::Error> {
        let Steered {
            plan,
            planned,
            decision,
        } = replan(problem, previous, self.terms.margin)?;
        let stages = plan.placements()[..problem.dag().given()]
            .iter()
            .map(|placement| self.clusters[placement.cluster.get()].id.clone())
            .collect();
        let mut candidates = planned
            .report
            .entry()
            .map(|entry| decision.rows(entry, view))
            .unwrap_or_default();
        serving.annotate(&mut candidates);
        Ok(Steering {
            stages,
            entry: decision.cluster.clone(),
            reason: decision.reason.to_string(),
            changed: decision.changed,
            candidates,
            failover: Failover::of(&decision.reason),
        })
    }

    /// Rows for an explanation when no cluster can take the app: the distances, and the exclusions.
    #[must_use]
    pub fn excluded_rows(
        &self,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
        serving: &Serving,
        why: &Infeasible,
    ) -> Vec<Candidate> {
        let mut rows: Vec<Candidate> = why
            .clusters
            .iter()
            .filter_map(|(id, exclusion)| {
                let latency = *view.get(id)?;
                Some(Candidate {
                    cluster: id.clone(),
                    latency,
                    distance: latency.one_way(),
                    available: Millis::INFINITY,
                    start: Millis::INFINITY,
                    work: Millis::INFINITY,
                    toll: Millis::INFINITY,
                    finish: Millis::INFINITY,
                    total: Millis::INFINITY,
                    excluded: Some(exclusion.to_string()),
                    verdict: exclusion.to_string(),
                })
            })
            .collect();
        serving.annotate(&mut rows);
        rows
    }

    /// The configured client locations, each of which stands for a group of clients.
    pub fn located(&self) -> impl Iterator<Item = ClientPrefix> + '_ {
        self.geo.locations().iter().map(|(prefix, _)| *prefix)
    }

    /// The clusters, by name.
    #[must_use]
    pub fn cluster_ids(&self) -> BTreeSet<&ClusterId> {
        self.clusters.iter().map(|c| &c.id).collect()
    }
}

/// A cluster without any load.
fn nothing(cluster: &Cluster) -> ClusterLoad {
    ClusterLoad {
        load: Load::of(cluster),
        memory: Memory::default(),
    }
}
