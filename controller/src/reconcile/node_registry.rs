//! The node registry: the latest report of every node, in memory.
//!
//! A report arrives every few seconds from every node. It is kept here, and written to the store only at intervals, or when something
//! important in it changed, so that a large network does not write constantly.
//!
//! **Order.** Within a boot the sequence number decides. A boot that was replaced by another is remembered for a while, and its late
//! reports are ignored.
//!
//! **Silence.** When nothing is heard from any node for a while, the controller or the broker was unavailable, not all nodes at once.
//! Until every known node has had time to report again, the view is *unsettled*, and no node is considered dead because of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fdn_core::message::{AppPhase, NodeStatus, STATUS_LIFETIME};
use fdn_core::serving::{NodeRuntime, ServingState};
use fdn_core::{
    AppName, ClusterId, DurationMs, GeoPoint, MessageId, NodeId, RegionName, Resources, Revision,
    Timestamp,
};

use super::rates::Rates;
use crate::figures::SeriesStore;
use crate::store::node::StatusRow;

/// How many replaced boots of a node are remembered.
const REPLACED_BOOTS_MAX: usize = 4;

/// How often all enrolments are read anew.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(60);

/// The effect of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It was older than the known one.
    Stale,
    /// It was from a node beyond the limit on nodes.
    Refused,
    /// It was from a node that was removed.
    Removed,
    /// Only load has changed.
    Routine,
    /// Something has changed on which plans or people depend.
    Important,
    /// The run time of some app has changed sharply, so that plans assume wrong values.
    Drifted,
}

/// A node with its latest report.
#[derive(Clone, Debug)]
pub struct NodeEntry {
    /// The latest report.
    pub status: NodeStatus,
    /// When it arrived.
    pub at: Timestamp,
    /// When it was last written to the store; `None` if never.
    written: Option<Timestamp>,
    /// Whether an important change has not been written yet.
    urgent: bool,
    /// Whether a report has arrived since the last silence.
    reported: bool,
    replaced: VecDeque<MessageId>,
    rates: Rates,
}

/// The hosts of a node's addresses at enrolment. Its ports may change.
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

/// The administrative state of nodes and clusters, as set by operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminState {
    /// The revision of this state.
    pub revision: Revision,
    /// The enrolments are those after this stamp; 0 if they are complete.
    pub after: u64,
    /// The stamp of the last enrolment included.
    pub stamp: u64,
    /// Nodes that were enrolled with a join token; they are remembered however long they are silent.
    pub enrolled: BTreeMap<NodeId, Hosts>,
    /// Region and position of clusters that were created explicitly; what nodes report about these is ignored.
    pub places: BTreeMap<ClusterId, (RegionName, GeoPoint)>,
    /// Nodes that must take no new work.
    pub cordoned: BTreeSet<NodeId>,
    /// Nodes that were removed; their reports are ignored.
    pub removed: BTreeSet<NodeId>,
}

impl AdminState {
    /// Whether a node's addresses are those of its enrolment; true for a node without one, of which nothing is known.
    #[must_use]
    pub fn has_enrolled_hosts(&self, status: &NodeStatus) -> bool {
        let hosts = Hosts::of(status.gateway, status.admin);
        self.enrolled
            .get(&status.node)
            .is_none_or(|known| *known == hosts)
    }
}

/// All nodes with their latest reports.
#[derive(Debug)]
pub struct NodeRegistry {
    /// The combined administrative state.
    admin_state: AdminState,
    /// When all enrolments were last read.
    full_read_at: Timestamp,
    nodes: BTreeMap<NodeId, NodeEntry>,
    nodes_max: usize,
    last_heard: Timestamp,
    settles_at: Timestamp,
    /// When drift was last signalled.
    drifted_at: Option<Timestamp>,
    figures: SeriesStore,
}

/// The parts of a report that matter beyond load.
#[derive(PartialEq)]
struct SignificantState<'a> {
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
    apps: Vec<(&'a AppName, Revision, &'a AppPhase, ServingState)>,
}

impl<'a> SignificantState<'a> {
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

impl NodeEntry {
    /// Whether the report is younger than the lifetime of a status.
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
    /// The present call rate of an app over all living nodes, per second.
    #[must_use]
    pub fn rate(&self, app: &AppName, now: Timestamp) -> f64 {
        self.alive(now).map(|seen| seen.rates.of(app)).sum()
    }

    /// The present call rates of all apps, per second.
    #[must_use]
    pub fn rates(&self, now: Timestamp) -> BTreeMap<AppName, f64> {
        let mut rates = BTreeMap::<AppName, f64>::new();
        for (app, rate) in self.alive(now).flat_map(|seen| seen.rates.all()) {
            // Looked up before the name is cloned: this runs once per node and app.
            match rates.get_mut(app) {
                Some(sum) => *sum += rate,
                None => _ = rates.insert(app.clone(), rate),
            }
        }
        rates
    }

    /// By app: the clusters whose living nodes have received it.
    #[must_use]
    pub fn informed_clusters(&self, now: Timestamp) -> BTreeMap<AppName, BTreeSet<ClusterId>> {
        let mut informed = BTreeMap::<AppName, BTreeSet<ClusterId>>::new();
        for status in self.alive(now).map(|seen| &seen.status) {
            for app in &status.apps {
                match informed.get_mut(&app.app) {
                    Some(clusters) if clusters.contains(&status.cluster) => {}
                    Some(clusters) => _ = clusters.insert(status.cluster.clone()),
                    None => {
                        informed.insert(app.app.clone(), BTreeSet::from([status.cluster.clone()]));
                    }
                }
            }
        }
        informed
    }

    /// The registry after a start: nodes as stored, unsettled until they have had time to report.
    #[must_use]
    pub fn new(stored: Vec<StatusRow>, nodes_max: usize, now: Timestamp) -> Self {
        let mut live = Self {
            admin_state: AdminState::default(),
            full_read_at: now,
            nodes: BTreeMap::new(),
            nodes_max,
            last_heard: now,
            settles_at: after(now, STATUS_LIFETIME),
            drifted_at: None,
            figures: SeriesStore::new(0),
        };
        for row in stored {
            live.merge(row, now);
        }
        live
    }

    /// Starts to keep metrics of calls, with up to `series` series.
    pub fn enable_figures(&mut self, series: usize) {
        self.figures = SeriesStore::new(series);
    }

    /// The metrics of calls as callers experienced them.
    #[must_use]
    pub const fn figures(&self) -> &SeriesStore {
        &self.figures
    }

    /// Handles a report.
    pub fn observe(&mut self, status: NodeStatus, now: Timestamp) -> Observation {
        if self.admin_state.removed.contains(&status.node) {
            return Observation::Removed;
        }
        if now.since(self.last_heard) > STATUS_LIFETIME.as_duration() / 2 {
            self.settles_at = after(now, STATUS_LIFETIME);
            self.nodes
                .values_mut()
                .for_each(|seen| seen.reported = false);
        }
        let Some(seen) = self.nodes.get_mut(&status.node) else {
            if self.nodes.len() >= self.nodes_max {
                return Observation::Refused;
            }
            self.last_heard = now;
            self.nodes.insert(
                status.node.clone(),
                NodeEntry {
                    status,
                    at: now,
                    written: None,
                    urgent: true,
                    reported: true,
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
        let important =
            !seen.alive(now) || SignificantState::of(&seen.status) != SignificantState::of(&status);
        let rested = self
            .drifted_at
            .is_none_or(|at| now.since(at) >= DRIFT_PAUSE);
        let drifted = !important && rested && drifted(&seen.status, &status);
        seen.replace(status, now, &mut self.figures);
        seen.reported = true;
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

    /// Merges a report that another controller received and stored.
    pub fn merge(&mut self, row: StatusRow, now: Timestamp) {
        if self.admin_state.removed.contains(&row.status.node) {
            return;
        }
        // The other controller's clock may be ahead: a report from the future would keep a dead node alive until then.
        let at = row.seen_at.min(now);
        match self.nodes.get_mut(&row.status.node) {
            Some(seen) if seen.supersedes(&row.status) => {}
            // Two boots have no common order but their times.
            Some(seen) if seen.status.boot != row.status.boot && at <= seen.at => {}
            Some(seen) => {
                // The node was heard here at the known time, even if the other clock is behind.
                let at = at.max(seen.at).min(now);
                seen.replace(row.status, at, &mut self.figures);
                seen.written = Some(at);
                seen.reported = true;
            }
            None => {
                let node = row.status.node.clone();
                self.nodes.insert(
                    node,
                    NodeEntry {
                        status: row.status,
                        at,
                        written: Some(at),
                        urgent: false,
                        reported: false,
                        replaced: VecDeque::new(),
                        rates: Rates::default(),
                    },
                );
            }
        }
    }

    /// Records the enrolment of a node, which is from now on reached at these hosts.
    pub fn admit(&mut self, node: NodeId, hosts: Hosts) {
        self.admin_state.removed.remove(&node);
        self.admin_state.enrolled.insert(node, hosts);
    }

    /// Records the creation of a cluster; what nodes report about its place is ignored from now on.
    pub fn register_cluster(&mut self, cluster: ClusterId, place: (RegionName, GeoPoint)) {
        self.admin_state.places.insert(cluster, place);
    }

    /// The stamp up to which enrolments were read.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.admin_state.stamp
    }

    /// The stamp after which enrolments must be read; at intervals 0, i.e. all, because nodes removed long ago disappear without a new stamp.
    pub fn enrolments_after(&mut self, now: Timestamp) -> u64 {
        if now.since(self.full_read_at) < FULL_READ_INTERVAL {
            return self.admin_state.stamp;
        }
        self.full_read_at = now;
        0
    }

    /// Applies the administrative state; true if it changes what DNS servers must be told.
    pub fn set_admin_state(&mut self, update: AdminState) -> bool {
        let known = &mut self.admin_state;
        // A pass that began before a removal must not readmit the node.
        if update.revision < known.revision {
            return false;
        }
        if update.after == 0 {
            known.removed.clear();
        }
        let mut changed = update.cordoned != known.cordoned;
        for node in update.removed {
            known.enrolled.remove(&node);
            changed |= self.nodes.remove(&node).is_some();
            known.removed.insert(node);
        }
        for node in update.enrolled.keys() {
            known.removed.remove(node);
        }
        // A state read just before an enrolment, or the creation of a cluster, does not contain it and must not undo it: nodes that leave are
        // listed as removed as long as that matters, and explicitly created clusters are never deleted.
        known.enrolled.extend(update.enrolled);
        known.places.extend(update.places);
        known.cordoned = update.cordoned;
        known.revision = update.revision;
        known.stamp = known.stamp.max(update.stamp);
        changed
    }

    /// The administrative state.
    #[must_use]
    pub const fn admin_state(&self) -> &AdminState {
        &self.admin_state
    }

    /// Whether a node must take no new work, whether or not it knows yet.
    #[must_use]
    pub fn cordoned(&self, node: &NodeId) -> bool {
        self.admin_state.cordoned.contains(node)
    }

    /// Whether a node's report is younger than the lifetime of a status.
    #[must_use]
    pub fn is_alive(&self, node: &NodeId, now: Timestamp) -> bool {
        self.nodes.get(node).is_some_and(|seen| seen.alive(now))
    }

    /// A node, if it is known.
    #[must_use]
    pub fn node(&self, node: &NodeId) -> Option<&NodeEntry> {
        self.nodes.get(node)
    }

    /// Whether silent nodes may be considered dead.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> bool {
        now >= self.settles_at || self.nodes.values().all(|seen| seen.reported)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values()
    }

    /// The living nodes, by name.
    pub fn alive(&self, now: Timestamp) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values().filter(move |seen| seen.alive(now))
    }

    /// The clusters that have nodes, with region and position: as set at their creation, else as reported by the node heard last.
    #[must_use]
    pub fn clusters(&self) -> BTreeMap<ClusterId, (RegionName, GeoPoint)> {
        let mut order: Vec<&NodeEntry> = self.nodes.values().collect();
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

    /// The living nodes, each with whether it drains: when this changes, plans may have to change.
    #[must_use]
    pub fn vitals(&self, now: Timestamp) -> BTreeSet<(NodeId, bool)> {
        self.alive(now)
            .map(|seen| (seen.status.node.clone(), seen.status.draining))
            .collect()
    }

    /// The reports to be written to the store now; they count as written from then on.
    pub fn take_unwritten(&mut self, now: Timestamp, interval: DurationMs) -> Vec<StatusRow> {
        let mut rows = Vec::new();
        // Turns come about as often as rows fall due. One that comes a moment early must not leave a row to the next one: other controllers
        // would take the node for dead.
        let rest = interval.as_duration() * 3 / 4;
        for seen in self.nodes.values_mut() {
            // Measured from now, not from the arrival of the report: how old the stored row becomes is what matters. A time of writing in the
            // future means that the clock was set back.
            let due = seen
                .written
                .is_none_or(|at| at > now || (at < seen.at && now.since(at) >= rest));
            if seen.urgent || due {
                seen.urgent = false;
                seen.written = Some(now);
                rows.push(StatusRow {
                    status: seen.status.clone(),
                    seen_at: seen.at,
                });
            }
        }
        rows
    }

    /// Puts back reports that could not be written.
    pub fn put_back(&mut self, rows: &[StatusRow]) {
        for row in rows {
            if let Some(seen) = self.nodes.get_mut(&row.status.node) {
                seen.urgent = true;
            }
        }
    }

    /// Nodes silent since before `before` that were never enrolled; enrolled ones stay until they are removed.
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

impl NodeEntry {
    fn replace(&mut self, status: NodeStatus, at: Timestamp, figures: &mut SeriesStore) {
        figures.observe((&self.status, self.at), (&status, at));
        if self.status.boot != status.boot {
            if self.replaced.len() >= REPLACED_BOOTS_MAX {
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

/// The factor by which a typical run time must change between two reports to count as drift. With run times whose deviation equals their
/// mean, chance causes such a change once in hundreds of reports.
const DRIFT: f64 = 2.5;
/// The shortest interval between two signals of drift, over all nodes and apps: plans are made every few seconds anyway, and chance must
/// not keep the planner busy.
const DRIFT_PAUSE: Duration = Duration::from_secs(5);
/// The number of calls between two reports below which a change says little.
const DRIFT_CALLS: u64 = 10;

/// Whether the run time of some app has changed by more than [`DRIFT`]. Reports of one boot list apps in the same order.
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
