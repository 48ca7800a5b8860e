//! What nodes say of themselves, in memory.
//!
//! A status arrives every few seconds from every node. It is kept here and written to the store only now and then, or when something
//! important in it changed, so that a large network does not write all day.
//!
//! **Order.** Within a boot the sequence decides. A boot that was replaced by another is remembered for a while; its late statuses are ignored.
//!
//! **Silence.** When nothing was heard from any node for a while, the controller or the broker was away, not all nodes at
//! once. Until every node that is known had the time to speak again the view is *unsettled*, and nobody concludes from it that a node
//! is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fdn_core::message::{AppPhase, NodeStatus, STATUS_LIFETIME};
use fdn_core::serving::{NodeRuntime, Served};
use fdn_core::{
    AppName, ClusterId, DurationMs, GeoPoint, MessageId, NodeId, RegionName, Resources, Revision,
    Timestamp,
};

use super::rates::Rates;
use crate::figures::Board;
use crate::store::node::StatusRow;

/// Boots of a node that were replaced and are remembered.
const BOOTS: usize = 4;

/// How often all enrolments are read.
const WHOLE: Duration = Duration::from_secs(60);

/// What was concluded from a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It was older than what is known.
    Stale,
    /// It was of a node beyond the limit.
    Refused,
    /// It was of a node that was removed.
    Removed,
    /// Only load changed.
    Routine,
    /// Something changed that plans or people depend on.
    Important,
    /// Calls of some app take much longer or shorter than a moment ago: plans count with something else than is.
    Drifted,
}

/// One node as it was last heard.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it said.
    pub status: NodeStatus,
    /// When.
    pub at: Timestamp,
    /// When this was last written to the store.
    written: Option<Timestamp>,
    /// Whether something important waits to be written.
    urgent: bool,
    /// Whether it was heard since the last silence.
    heard: bool,
    replaced: VecDeque<MessageId>,
    rates: Rates,
}

/// Where a node is reached, by the addresses that it joined with. Ports are its own matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    gateway: IpAddr,
    admin: IpAddr,
}

impl Hosts {
    /// The hosts of these addresses.
    #[must_use]
    pub const fn of(gateway: SocketAddr, admin: SocketAddr) -> Self {
        Self {
            gateway: gateway.ip().to_canonical(),
            admin: admin.ip().to_canonical(),
        }
    }
}

/// What operators said of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminState {
    /// As of which revision this is.
    pub revision: Revision,
    /// The stamp of the last enrolment that is not in this; 0 if this is the whole.
    pub after: u64,
    /// The stamp of the last that is.
    pub stamp: u64,
    /// Let in with a join token: remembered however long they are silent.
    pub enrolled: BTreeMap<NodeId, Hosts>,
    /// Region and position of the clusters that somebody made: what nodes say of these does not count.
    pub places: BTreeMap<ClusterId, (RegionName, GeoPoint)>,
    /// To take no new work.
    pub cordoned: BTreeSet<NodeId>,
    /// Removed: what they still say is not believed.
    pub removed: BTreeSet<NodeId>,
}

impl AdminState {
    /// Whether a node is reached where it joined. Of a node that did not join nothing is known.
    #[must_use]
    pub fn is_at_home(&self, status: &NodeStatus) -> bool {
        let hosts = Hosts::of(status.gateway, status.admin);
        self.enrolled
            .get(&status.node)
            .is_none_or(|known| *known == hosts)
    }
}

/// All nodes as they were last heard.
#[derive(Debug)]
pub struct NodeRegistry {
    /// What all that was said comes to.
    admin_state: AdminState,
    /// When all enrolments were read last.
    whole_at: Timestamp,
    nodes: BTreeMap<NodeId, Seen>,
    nodes_max: usize,
    last_heard: Timestamp,
    settles_at: Timestamp,
    /// When calls were last said to have drifted.
    drifted_at: Option<Timestamp>,
    figures: Board,
}

/// What of a status matters beyond load.
#[derive(PartialEq)]
struct Important<'a> {
    boot: MessageId,
    cluster: &'a ClusterId,
    region: &'a RegionName,
    location: GeoPoint,
    gateway: SocketAddr,
    admin: SocketAddr,
    speed: f64,
    capacity: Resources,
    slots: u32,
    draining: bool,
    runtimes: Option<&'a BTreeSet<NodeRuntime>>,
    apps: Vec<(&'a AppName, Revision, &'a AppPhase, Served)>,
}

impl<'a> Important<'a> {
    fn of(status: &'a NodeStatus) -> Self {
        Self {
            boot: status.boot,
            cluster: &status.cluster,
            region: &status.region,
            location: status.location,
            gateway: status.gateway,
            admin: status.admin,
            speed: status.speed,
            capacity: status.capacity,
            slots: status.slots,
            draining: status.draining,
            runtimes: status.runtimes.as_ref(),
            apps: status
                .apps
                .iter()
                .map(|app| (&app.app, app.revision, &app.phase, app.served()))
                .collect(),
        }
    }
}

impl Seen {
    /// Whether it was heard within the lifetime of a status.
    #[must_use]
    pub fn alive(&self, now: Timestamp) -> bool {
        now.since(self.at) < STATUS_LIFETIME.as_duration()
    }

    fn supersedes(&self, status: &NodeStatus) -> bool {
        if self.status.boot == status.boot {
            self.status.sequence >= status.sequence
        } else {
            self.replaced.contains(&status.boot)
        }
    }
}

impl NodeRegistry {
    /// How often an app is called now, on all living nodes together; calls per second.
    #[must_use]
    pub fn rate(&self, app: &AppName, now: Timestamp) -> f64 {
        self.alive(now).map(|seen| seen.rates.of(app)).sum()
    }

    /// The same of all apps.
    #[must_use]
    pub fn rates(&self, now: Timestamp) -> BTreeMap<AppName, f64> {
        let mut rates = BTreeMap::<AppName, f64>::new();
        for (app, rate) in self.alive(now).flat_map(|seen| seen.rates.all()) {
            // Names are looked for before one is copied: there are as many as nodes times apps.
            match rates.get_mut(app) {
                Some(sum) => *sum += rate,
                None => _ = rates.insert(app.clone(), rate),
            }
        }
        rates
    }

    /// The clusters whose living nodes know each app.
    #[must_use]
    pub fn knowing(&self, now: Timestamp) -> BTreeMap<AppName, BTreeSet<ClusterId>> {
        let mut knowing = BTreeMap::<AppName, BTreeSet<ClusterId>>::new();
        for status in self.alive(now).map(|seen| &seen.status) {
            for app in &status.apps {
                match knowing.get_mut(&app.app) {
                    Some(clusters) if clusters.contains(&status.cluster) => {}
                    Some(clusters) => _ = clusters.insert(status.cluster.clone()),
                    None => {
                        knowing.insert(app.app.clone(), BTreeSet::from([status.cluster.clone()]));
                    }
                }
            }
        }
        knowing
    }

    /// The view after a start: nodes as they were stored, unsettled until they had the time to speak.
    #[must_use]
    pub fn new(stored: Vec<StatusRow>, nodes_max: usize, now: Timestamp) -> Self {
        let mut live = Self {
            admin_state: AdminState::default(),
            whole_at: now,
            nodes: BTreeMap::new(),
            nodes_max,
            last_heard: now,
            settles_at: after(now, STATUS_LIFETIME),
            drifted_at: None,
            figures: Board::new(0),
        };
        for row in stored {
            live.merge(row);
        }
        live
    }

    /// Keeps up to `series` series of what callers saw, from now on.
    pub fn keep_figures(&mut self, series: usize) {
        self.figures = Board::new(series);
    }

    /// What callers saw.
    #[must_use]
    pub const fn figures(&self) -> &Board {
        &self.figures
    }

    /// Takes a status in.
    pub fn observe(&mut self, status: NodeStatus, now: Timestamp) -> Observation {
        if self.admin_state.removed.contains(&status.node) {
            return Observation::Removed;
        }
        if now.since(self.last_heard) > STATUS_LIFETIME.as_duration() / 2 {
            self.settles_at = after(now, STATUS_LIFETIME);
            self.nodes.values_mut().for_each(|seen| seen.heard = false);
        }
        let Some(seen) = self.nodes.get_mut(&status.node) else {
            if self.nodes.len() >= self.nodes_max {
                return Observation::Refused;
            }
            self.last_heard = now;
            self.nodes.insert(
                status.node.clone(),
                Seen {
                    status,
                    at: now,
                    written: None,
                    urgent: true,
                    heard: true,
                    replaced: VecDeque::new(),
                    rates: Rates::default(),
                },
            );
            return Observation::Important;
        };
        if seen.supersedes(&status) {
            return Observation::Stale;
        }
        self.last_heard = now;
        let important = !seen.alive(now) || Important::of(&seen.status) != Important::of(&status);
        let rested = self
            .drifted_at
            .is_none_or(|at| now.since(at) >= DRIFT_PAUSE);
        let drifted = !important && rested && drifted(&seen.status, &status);
        seen.replace(status, now, &mut self.figures);
        seen.heard = true;
        seen.urgent |= important;
        if important {
            Observation::Important
        } else if drifted {
            self.drifted_at = Some(now);
            Observation::Drifted
        } else {
            Observation::Routine
        }
    }

    /// Takes in what another controller heard and stored.
    pub fn merge(&mut self, row: StatusRow) {
        if self.admin_state.removed.contains(&row.status.node) {
            return;
        }
        match self.nodes.get_mut(&row.status.node) {
            Some(seen) if row.seen_at <= seen.at || seen.supersedes(&row.status) => {}
            Some(seen) => {
                seen.replace(row.status, row.seen_at, &mut self.figures);
                seen.written = Some(row.seen_at);
                seen.heard = true;
            }
            None => {
                let node = row.status.node.clone();
                self.nodes.insert(
                    node,
                    Seen {
                        status: row.status,
                        at: row.seen_at,
                        written: Some(row.seen_at),
                        urgent: false,
                        heard: false,
                        replaced: VecDeque::new(),
                        rates: Rates::default(),
                    },
                );
            }
        }
    }

    /// A node was let in: from now on it is reached there.
    pub fn let_in(&mut self, node: NodeId, hosts: Hosts) {
        self.admin_state.removed.remove(&node);
        self.admin_state.enrolled.insert(node, hosts);
    }

    /// A cluster was made: what nodes say of its place does not count.
    pub fn made(&mut self, cluster: ClusterId, place: (RegionName, GeoPoint)) {
        self.admin_state.places.insert(cluster, place);
    }

    /// Up to which stamp enrolments were read.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.admin_state.stamp
    }

    /// After which stamp enrolments are to be read: now and then all, for who was removed long ago is forgotten without a stamp.
    pub fn enrolments_after(&mut self, now: Timestamp) -> u64 {
        if now.since(self.whole_at) < WHOLE {
            return self.admin_state.stamp;
        }
        self.whole_at = now;
        0
    }

    /// Takes in what operators said; `true` if that changes what DNS servers should be told.
    pub fn set_admin_state(&mut self, said: AdminState) -> bool {
        let known = &mut self.admin_state;
        // A pass that began before a removal must not let the node in again.
        if said.revision < known.revision {
            return false;
        }
        if said.after == 0 {
            known.removed.clear();
        }
        let mut changed = said.cordoned != known.cordoned;
        for node in said.removed {
            known.enrolled.remove(&node);
            changed |= self.nodes.remove(&node).is_some();
            known.removed.insert(node);
        }
        for node in said.enrolled.keys() {
            known.removed.remove(node);
        }
        // What was read just before a node was let in, or a cluster was made, does not know it, and takes nothing back: whoever leaves is among those
        // that were removed, for as long as that matters, and no cluster that somebody made ever goes.
        known.enrolled.extend(said.enrolled);
        known.places.extend(said.places);
        known.cordoned = said.cordoned;
        known.revision = said.revision;
        known.stamp = known.stamp.max(said.stamp);
        changed
    }

    /// What operators said.
    #[must_use]
    pub const fn admin_state(&self) -> &AdminState {
        &self.admin_state
    }

    /// Whether a node is to take no new work, whether or not it has heard of that.
    #[must_use]
    pub fn cordoned(&self, node: &NodeId) -> bool {
        self.admin_state.cordoned.contains(node)
    }

    /// Whether a node was heard within the lifetime of a status.
    #[must_use]
    pub fn is_alive(&self, node: &NodeId, now: Timestamp) -> bool {
        self.nodes.get(node).is_some_and(|seen| seen.alive(now))
    }

    /// One node.
    #[must_use]
    pub fn node(&self, node: &NodeId) -> Option<&Seen> {
        self.nodes.get(node)
    }

    /// Whether a node that is silent may be taken for dead.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> bool {
        now >= self.settles_at || self.nodes.values().all(|seen| seen.heard)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Seen> {
        self.nodes.values()
    }

    /// Nodes that are alive, by name.
    pub fn alive(&self, now: Timestamp) -> impl Iterator<Item = &Seen> {
        self.nodes.values().filter(move |seen| seen.alive(now))
    }

    /// The clusters that have nodes: region and position as who made the cluster said, else as the node heard last says.
    #[must_use]
    pub fn clusters(&self) -> BTreeMap<ClusterId, (RegionName, GeoPoint)> {
        let mut order: Vec<&Seen> = self.nodes.values().collect();
        order.sort_by_key(|seen| seen.at);
        order
            .into_iter()
            .map(|seen| {
                let cluster = &seen.status.cluster;
                let place = match self.admin_state.places.get(cluster) {
                    Some(place) => place.clone(),
                    None => (seen.status.region.clone(), seen.status.location),
                };
                (cluster.clone(), place)
            })
            .collect()
    }

    /// Who is alive and who drains: when this changes, plans may have to.
    #[must_use]
    pub fn vitals(&self, now: Timestamp) -> BTreeSet<(NodeId, bool)> {
        self.alive(now)
            .map(|seen| (seen.status.node.clone(), seen.status.draining))
            .collect()
    }

    /// What should be written to the store now; from now on it counts as written.
    pub fn take_unwritten(&mut self, now: Timestamp, interval: DurationMs) -> Vec<StatusRow> {
        let mut rows = Vec::new();
        for seen in self.nodes.values_mut() {
            let due = seen
                .written
                .is_none_or(|at| at < seen.at && seen.at.since(at) >= interval.as_duration());
            if seen.urgent || due {
                seen.urgent = false;
                seen.written = Some(now.max(seen.at));
                rows.push(StatusRow {
                    status: seen.status.clone(),
                    seen_at: seen.at,
                });
            }
        }
        rows
    }

    /// Puts back what could not be written.
    pub fn put_back(&mut self, rows: &[StatusRow]) {
        for row in rows {
            if let Some(seen) = self.nodes.get_mut(&row.status.node) {
                seen.urgent = true;
            }
        }
    }

    /// Nodes that have been silent since before `before` and that nobody let in: those are there until somebody removes them.
    #[must_use]
    pub fn silent_since(&self, before: Timestamp) -> Vec<NodeId> {
        self.nodes
            .iter()
            .filter(|(id, seen)| seen.at < before && !self.admin_state.enrolled.contains_key(*id))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Forgets a node.
    pub fn forget(&mut self, node: &NodeId) {
        self.nodes.remove(node);
    }
}

impl Seen {
    fn replace(&mut self, status: NodeStatus, at: Timestamp, figures: &mut Board) {
        figures.observe((&self.status, self.at), (&status, at));
        if self.status.boot != status.boot {
            if self.replaced.len() >= BOOTS {
                self.replaced.pop_front();
            }
            self.replaced.push_back(self.status.boot);
            self.rates = Rates::default();
        } else {
            self.rates
                .observe(&self.status.apps, self.at, &status.apps, at);
        }
        self.status = status;
        self.at = at;
    }
}

/// A typical run time that changes by more than this between two statuses is drift: of calls whose times vary as much as their mean does, one such
/// change in hundreds is chance.
const DRIFT: f64 = 2.5;
/// Drift is said once in so long, for all nodes and apps together: plans are made every few seconds anyhow, and chance must not have them made
/// without a rest.
const DRIFT_PAUSE: Duration = Duration::from_secs(5);
/// Calls between two statuses below which a change says little.
const DRIFT_CALLS: u64 = 10;

/// Whether calls of some app take much longer or shorter than they did. Apps of equal statuses stand in the same order.
fn drifted(before: &NodeStatus, after: &NodeStatus) -> bool {
    let both = before.apps.iter().zip(&after.apps);
    both.filter(|(old, new)| old.app == new.app)
        .any(|(old, new)| {
            let (Some(was), Some(is)) = (&old.phases, &new.phases) else {
                return false;
            };
            let (was, is) = (was.execution.get(), is.execution.get());
            let enough = new.invocations.saturating_sub(old.invocations) >= DRIFT_CALLS;
            enough && was > 0.0 && (is > was * DRIFT || is < was / DRIFT)
        })
}

fn after(now: Timestamp, span: DurationMs) -> Timestamp {
    Timestamp(now.get().saturating_add(span.as_millis()))
}

#[cfg(test)]
mod tests;
