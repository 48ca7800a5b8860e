//! Chooses the clusters of the next jobs: the online form of placement ([`fdn_scheduling::online`], late binding) over the present state of the
//! network.
//!
//! Each round builds a new scheduler from the latest node statuses, because other dispatchers and callers use the same clusters, and because
//! clusters come, go and change. What this dispatcher has started since a node's last status ([`OwnAttempts`]) is counted as well: a status is
//! some seconds old, and without that a burst would all go to what was idle then. A job that finds no free slot is not sent: it waits, so that a
//! later round can still choose another cluster.
//!
//! The time until a cluster can run an app at all ([`readiness`](crate::reconcile::serving::readiness)) counts like network latency: a cluster
//! that has the app wins over an equally fast one that has to fetch it first, and loses to one that is faster by more than the fetch takes. A job
//! waits for a slot where it will be done first rather than going where its function arrives late.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::enrol::NodeIdentity;
use fdn_core::message::AppPhase;
use fdn_core::{AppName, ClusterId, Millis, Timestamp};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::online::{Action, Event, Input, JobRef, Online, Refused, Settings};
use fdn_scheduling::place::{Cluster, Exclusion, Hold, Network, Slots};

pub use super::own::OwnAttempts;
use crate::edge::node_client::NodeAddress;
use crate::reconcile::node_registry::NodeRegistry;
use crate::reconcile::serving::Phases;
use crate::reconcile::serving::readiness::ProvisioningCost;
use crate::state::{State, lock};

/// How much longer than the longest cold start a slot in use is assumed to stay in use. So a ready cluster with room that only has to start an
/// instance is never skipped for a full one that has instances.
const IN_USE: Millis = Millis::new(1000.0);

/// A node that takes part in its cluster, by its last status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSlots {
    /// The node.
    pub node: NodeIdentity,
    /// The address at which controllers call it; `None` for one that they cannot call.
    pub at: Option<NodeAddress>,
    /// The number of its slots.
    pub slots: u32,
    /// The slots in use, and the calls that wait for one.
    pub used: u32,
    /// The sequence number of the status.
    pub sequence: u64,
    /// The apps that it can serve without loading them first.
    pub ready: Vec<AppName>,
}

/// The expected work of one job of an app.
#[derive(Clone, Debug)]
pub struct ExpectedRun {
    /// The app.
    pub app: AppName,
    /// The stages, with their expected run times.
    pub dag: Arc<Dag>,
    /// The cost of bringing the entry stage to a node, in each of its forms.
    pub forms: Vec<ProvisioningCost>,
}

/// A snapshot of the network for dispatching.
#[derive(Clone, Debug)]
pub struct NetworkSnapshot {
    /// The clusters, by name.
    pub clusters: Vec<Cluster>,
    /// The network between them.
    pub network: Network,
    /// By cluster, in the order of `clusters`: its nodes.
    pub nodes: Vec<Vec<NodeSlots>>,
    /// By cluster: the state of each app there.
    pub phases: Arc<Phases>,
}

impl NetworkSnapshot {
    /// Takes a snapshot of the network.
    #[must_use]
    pub fn of(state: &State, now: Timestamp) -> Self {
        let live = lock(&state.live);
        let world = state.world_of(&live, now);
        let nodes = nodes_of(&live, world.clusters(), now);
        Self {
            clusters: world.clusters().to_vec(),
            network: world.network().clone(),
            nodes,
            phases: world.phases(),
        }
    }

    /// By cluster: the time until it can run the jobs of an app, or why it cannot.
    fn readiness(&self, runs: &ExpectedRun) -> Vec<Result<Millis, Exclusion>> {
        let all = 0..self.clusters.len();
        all.map(|at| self.phases.readiness(&runs.app, &runs.forms, at))
            .collect()
    }

    /// The gateway of a cluster for a call of `app`: one that has the app ready if there is one, and of these the one with the most free slots, after
    /// what this dispatcher has started there since.
    #[must_use]
    pub fn gateway(
        &self,
        cluster: &ClusterId,
        app: &AppName,
        own: &OwnAttempts,
    ) -> Option<NodeAddress> {
        let at = self.clusters.binary_search_by(|c| c.id.cmp(cluster)).ok()?;
        let callable = self.nodes.get(at)?.iter().filter(|node| node.at.is_some());
        let best = callable.max_by_key(|node| {
            // Below zero where calls wait: of full nodes the one with the fewest.
            let free = i64::from(node.slots) - own.taken(node).cast_signed();
            (node.ready.contains(app), free)
        });
        best.and_then(|node| node.at.clone())
    }
}

fn nodes_of(live: &NodeRegistry, clusters: &[Cluster], now: Timestamp) -> Vec<Vec<NodeSlots>> {
    let mut nodes = vec![Vec::new(); clusters.len()];
    for seen in live.alive(now) {
        let status = &seen.status;
        if status.draining || live.cordoned(&status.node) {
            continue;
        }
        let Ok(at) = clusters.binary_search_by(|c| c.id.cmp(&status.cluster)) else {
            continue;
        };
        let ready = status
            .apps
            .iter()
            .filter(|app| app.phase == AppPhase::Ready);
        nodes[at].push(NodeSlots {
            node: NodeIdentity {
                cluster: status.cluster.clone(),
                node: status.node.clone(),
            },
            // Controllers cannot call an agent of an older release: jobs wait for another one.
            at: NodeAddress::of(status),
            slots: status.slots,
            used: status.busy.saturating_add(status.waiting),
            sequence: status.sequence,
            ready: ready.map(|app| app.app.clone()).collect(),
        });
    }
    nodes
}

/// The decision where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To this cluster, now.
    At {
        /// The cluster.
        cluster: ClusterId,
        /// The expected time until the cluster can run it.
        ready: Millis,
    },
    /// Nowhere yet: the clusters that could take it are full.
    Later,
    /// Nowhere: no cluster can take it as the network is. The text says why.
    Nowhere(String),
}

/// The number of free slots.
#[must_use]
pub fn free(snapshot: &NetworkSnapshot, own: &OwnAttempts) -> usize {
    let clusters = snapshot.clusters.iter().zip(&snapshot.nodes);
    clusters
        .map(|(cluster, nodes)| slots(cluster, nodes, own, IN_USE))
        .map(|slots| {
            slots
                .available()
                .iter()
                .filter(|at| **at == Millis::ZERO)
                .count()
        })
        .sum()
}

/// The assumed slots of a cluster: those used by others according to the last statuses, and by this dispatcher, are free only at `in_use`.
fn slots(cluster: &Cluster, nodes: &[NodeSlots], own: &OwnAttempts, in_use: Millis) -> Slots {
    let total = cluster.slots.len();
    // Calls that wait at one node take no slots of another.
    let of = |node| own.taken(node).min(u64::from(node.slots));
    let taken: u64 = nodes.iter().map(of).sum();
    let taken = usize::try_from(taken).unwrap_or(total).min(total);
    let free = std::iter::repeat_n(Millis::ZERO, total - taken);
    free.chain(std::iter::repeat_n(in_use, taken)).collect()
}

/// Places jobs, in their order.
#[must_use]
pub fn place(
    snapshot: &NetworkSnapshot,
    own: &OwnAttempts,
    jobs: &[Arc<ExpectedRun>],
) -> Vec<Placement> {
    let starts = jobs.iter().flat_map(|job| &job.forms);
    let in_use = IN_USE
        + starts
            .map(ProvisioningCost::cold_start)
            .max()
            .unwrap_or_default();
    let clusters: Vec<Cluster> = snapshot
        .clusters
        .iter()
        .zip(&snapshot.nodes)
        .map(|(cluster, nodes)| {
            let slots = slots(cluster, nodes, own, in_use);
            cluster.clone().with_slots(slots)
        })
        .collect();
    let settings = Settings {
        hold: Hold::Task,
        ..Settings::late_fifo()
    };
    let Ok(mut machine) = Online::new(settings, &clusters, snapshot.network.clone()) else {
        return vec![Placement::Later; jobs.len()];
    };
    let mut known: BTreeMap<&AppName, Vec<Result<Millis, Exclusion>>> = BTreeMap::new();
    let mut places = vec![Placement::Later; jobs.len()];
    let mut refs: BTreeMap<JobRef, usize> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        // A job has no client location: the distance of a cluster is the time until the app is ready there.
        let readiness = known.entry(&job.app);
        let readiness = &*readiness.or_insert_with(|| snapshot.readiness(job));
        let far = |ready: &Result<Millis, Exclusion>| ready.unwrap_or(Millis::INFINITY);
        let distance: Vec<Millis> = readiness.iter().map(far).collect();
        let mut actions = Vec::new();
        match machine.arrive(Millis::ZERO, Arc::clone(&job.dag), &distance, &mut actions) {
            Ok(job) => {
                refs.insert(job, at);
            }
            Err(Refused::Infeasible(mut why)) => {
                for ((_, exclusion), ready) in why.clusters.iter_mut().zip(readiness) {
                    if let (Exclusion::OutOfReach, Err(own)) = (*exclusion, ready) {
                        *exclusion = *own;
                    }
                }
                places[at] = Placement::Nowhere(why.to_string());
            }
            Err(_) => {}
        }
        let mut next = 0;
        while next < actions.len() {
            match actions[next] {
                Action::Bind {
                    run,
                    input: Input::Expected(_),
                    ..
                } => {
                    // The input is sent with the call.
                    let _ = machine.apply(Millis::ZERO, Event::Delivered(run), &mut actions);
                }
                Action::Start { run, cluster, .. } => {
                    if let Some(job) = refs.get(&run.job)
                        && places[*job] == Placement::Later
                    {
                        let ready = known.get(&jobs[*job].app);
                        let ready = ready.and_then(|of| of.get(cluster.get())?.ok());
                        places[*job] = Placement::At {
                            cluster: clusters[cluster.get()].id.clone(),
                            ready: ready.unwrap_or_default(),
                        };
                    }
                }
                Action::Bind { .. }
                | Action::Preempt { .. }
                | Action::Stop { .. }
                | Action::Strand { .. }
                | Action::Done(_) => {}
            }
            next += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests;
