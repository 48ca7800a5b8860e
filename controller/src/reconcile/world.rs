//! One moment of the network as placement sees it: pure data, made from what nodes said and what is known of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::api::Candidate;
use fdn_core::latency::{ClientView, LatencyEstimate, LatencyMap, LatencySource};
use fdn_core::message::NodeStatus;
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{
    AppName, ClientPrefix, ClusterId, GeoPoint, Millis, RegionName, Resources, StageName, Timestamp,
};
use fdn_scheduling::group::{GroupKey, Grouping};
use fdn_scheduling::live;
use fdn_scheduling::place::{Bandwidth, Cluster, Infeasible, Link, Network, Options, Problem};
use fdn_scheduling::steer::{Margin, Steered, replan};
use fdn_scheduling::workflow::{Profile, dag};

use super::live::Live;
use crate::geo::Geo;

/// Placement counts the way back to the client: what the client feels is what is made small.
const OPTIONS: Options = Options {
    exit_leg: true,
    hold: fdn_scheduling::place::Hold::Job,
    score: fdn_scheduling::place::Score::Normal,
};

/// One moment of the network.
pub struct World {
    clusters: Vec<Cluster>,
    network: Network,
    map: LatencyMap,
    geo: Arc<Geo>,
    grouping: Grouping,
    margin: Margin,
    execution: BTreeMap<AppName, Millis>,
}

/// What is known of running an app's stages.
pub type Profiles = BTreeMap<StageName, Profile>;

/// Readings of settings that a world needs.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// When clients are moved.
    pub margin: Margin,
    /// How much data passes between two clusters in a time.
    pub bandwidth: Bandwidth,
}

/// What is steered for one client or group.
pub struct Steering {
    /// The clusters of the stages, in their order.
    pub stages: Vec<ClusterId>,
    /// The cluster of the entry.
    pub entry: ClusterId,
    /// Why.
    pub reason: String,
    /// Whether any stage moved.
    pub changed: bool,
    /// Every cluster with its terms for the entry.
    pub candidates: Vec<Candidate>,
}

impl World {
    /// The network as nodes describe it at `now`, with the measured round trips.
    #[must_use]
    pub fn new(
        live: &Live,
        geo: Arc<Geo>,
        measured: Vec<(ClientPrefix, ClusterId, Millis)>,
        terms: Terms,
        now: Timestamp,
    ) -> Self {
        let places: BTreeMap<ClusterId, (RegionName, GeoPoint)> = live.clusters();
        let alive: Vec<&NodeStatus> = live.alive(now).map(|seen| &seen.status).collect();
        let nodes_of = |id: &ClusterId| {
            alive
                .iter()
                .copied()
                .filter(|node| node.cluster == *id)
                .collect::<Vec<_>>()
        };
        let clusters: Vec<Cluster> = places
            .keys()
            .map(|id| live::cluster(id.clone(), nodes_of(id)))
            .collect();
        let points: Vec<GeoPoint> = places.values().map(|(_, point)| *point).collect();
        let network = Network::from_fn(points.len(), |from, to| Link {
            latency: points[from].rtt_estimate(&points[to]) * 0.5,
            bandwidth: terms.bandwidth,
        });
        let locations = places
            .into_iter()
            .map(|(id, (_, point))| (id, point))
            .collect();
        let mut map = LatencyMap::new(locations, geo.locations().iter().copied());
        map.set_measured(measured);
        Self {
            clusters,
            network,
            map,
            geo,
            grouping: Grouping::default(),
            margin: terms.margin,
            execution: execution_means(&alive),
        }
    }

    /// How far each cluster is from a client.
    #[must_use]
    pub fn view(&self, client: ClientPrefix) -> ClientView {
        self.map.view(client, self.geo.look_up(client))
    }

    /// The group that a client belongs to.
    #[must_use]
    pub fn group(&self, client: ClientPrefix) -> GroupKey {
        self.grouping.key_of(&self.view(client))
    }

    /// What is known of running the stages of `app`: measured if calls have been measured, as the manifest expects otherwise.
    #[must_use]
    pub fn profiles(
        &self,
        app: &AppName,
        workflow: &Workflow,
        expected: impl Fn(&Stage) -> Profile,
    ) -> Profiles {
        // Calls are measured for an app as a whole, which tells about a stage only if there is just one.
        let measured = if workflow.stages().len() == 1 {
            self.execution.get(app).copied()
        } else {
            None
        };
        workflow
            .stages()
            .iter()
            .map(|stage| {
                let profile = expected(stage);
                (
                    stage.name.clone(),
                    Profile {
                        work: measured.unwrap_or(profile.work),
                        ..profile
                    },
                )
            })
            .collect()
    }

    /// Plans for a group of clients that were sent to `previous` before, if anywhere.
    ///
    /// # Errors
    /// When no cluster can take one of the stages.
    pub fn steer_group(
        &self,
        workflow: &Workflow,
        profiles: &Profiles,
        group: &GroupKey,
        previous: Option<&[ClusterId]>,
    ) -> Result<Steering, fdn_scheduling::Error> {
        let estimates = group
            .distances()
            .map(|(id, one_way)| {
                (
                    id.clone(),
                    LatencyEstimate {
                        rtt: one_way * 2.0,
                        source: LatencySource::Located,
                    },
                )
            })
            .collect();
        self.steer(workflow, profiles, &estimates, previous)
    }

    /// Plans for one client that was sent to `previous` before, if anywhere.
    ///
    /// # Errors
    /// When no cluster can take one of the stages.
    pub fn steer(
        &self,
        workflow: &Workflow,
        profiles: &Profiles,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
        previous: Option<&[ClusterId]>,
    ) -> Result<Steering, fdn_scheduling::Error> {
        let idle = Profile {
            work: Millis::ZERO,
            demand: Resources::default(),
        };
        let dag = dag(workflow, |stage| {
            profiles.get(&stage.name).copied().unwrap_or(idle)
        })?;
        let distance: Vec<Millis> = self
            .clusters
            .iter()
            .map(|c| {
                view.get(&c.id)
                    .map_or(Millis::INFINITY, LatencyEstimate::one_way)
            })
            .collect();
        let problem =
            Problem::new(&dag, &self.clusters, &self.network, &distance)?.with_options(OPTIONS);
        let Steered {
            plan,
            planned,
            decision,
        } = replan(&problem, previous, self.margin)?;
        let stages = plan.placements()[..workflow.stages().len()]
            .iter()
            .map(|placement| self.clusters[placement.cluster.get()].id.clone())
            .collect();
        let candidates = planned
            .report
            .entry()
            .map(|entry| entry.rows(view, &decision))
            .unwrap_or_default();
        Ok(Steering {
            stages,
            entry: decision.cluster.clone(),
            reason: decision.reason.to_string(),
            changed: decision.changed,
            candidates,
        })
    }

    /// Rows for an explanation when no cluster can take the app: the distances, and what keeps it out.
    #[must_use]
    pub fn excluded_rows(
        &self,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
        why: &Infeasible,
    ) -> Vec<Candidate> {
        why.clusters
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
                    finish: Millis::INFINITY,
                    total: Millis::INFINITY,
                    excluded: Some(exclusion.to_string()),
                    verdict: exclusion.to_string(),
                })
            })
            .collect()
    }

    /// The prefixes that have a known place, each of which stands for a group of clients.
    pub fn located(&self) -> impl Iterator<Item = ClientPrefix> + '_ {
        self.geo.locations().iter().map(|(prefix, _)| *prefix)
    }

    /// The clusters, by name.
    #[must_use]
    pub fn cluster_ids(&self) -> BTreeSet<&ClusterId> {
        self.clusters.iter().map(|c| &c.id).collect()
    }
}

/// The time inside each app's function at speed 1: the mean over all nodes, weighted by their calls.
fn execution_means(alive: &[&NodeStatus]) -> BTreeMap<AppName, Millis> {
    let mut sums: BTreeMap<&AppName, (f64, f64)> = BTreeMap::new();
    for node in alive {
        let speed = fdn_scheduling::place::Speed::new(node.speed).get();
        for app in node
            .apps
            .iter()
            .filter(|app| app.invocations > 0 && app.execution_mean.is_finite())
        {
            let weight = app.invocations as f64;
            let sum = sums.entry(&app.app).or_default();
            sum.0 += app.execution_mean.max(Millis::ZERO).get() * speed * weight;
            sum.1 += weight;
        }
    }
    sums.into_iter()
        .map(|(app, (time, weight))| (app.clone(), Millis::new(time / weight)))
        .collect()
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;
    use fdn_core::message::{AppObserved, AppPhase};

    use super::*;
    use crate::fixture;

    #[test]
    fn execution_times_are_weighted_by_calls_and_brought_to_speed_one() {
        let observed = |invocations, mean| AppObserved {
            app: "hello".parse().expect("app"),
            revision: Revision(1),
            phase: AppPhase::Ready,
            invocations,
            errors: 0,
            execution_mean: Millis::new(mean),
            instances: 0,
            degraded: None,
        };
        let node = |name: &str, speed, app| NodeStatus {
            speed,
            apps: vec![app],
            ..fixture::status(name, "eu-west")
        };
        let (a, b) = (
            node("a", 1.0, observed(30, 4.0)),
            node("b", 2.0, observed(10, 4.0)),
        );
        let idle = node("c", 1.0, observed(0, 900.0));
        // (30 * 4 * 1 + 10 * 4 * 2) / 40
        let means = execution_means(&[&a, &b, &idle]);
        assert_eq!(
            means.into_iter().collect::<Vec<_>>(),
            [("hello".parse().expect("app"), Millis::new(5.0))]
        );
    }
}
