//! Follows the cluster's members and the operators' decisions: the available room, the members' addresses, and whether this node takes part.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fdn_cluster::{Cluster, ClusterStatus};
use fdn_core::NodeId;
use fdn_service::CancellationToken;
use fdn_service::health::Readiness;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use super::table::{EndReason, Progress};
use super::withheld::WithheldMemory;
use super::{CONDITION_PEERS, Node};
use crate::disk;
use crate::fleet::{FleetView, Work};

/// How often the members are checked without a change: one may have become silent.
const LOOK: Duration = Duration::from_secs(1);
/// The file of addresses, in the folder of the desired state.
const FILE: &str = "peers.json";

/// The last known addresses of members, so that a restarted node finds its cluster even if its seeds are gone.
pub(super) struct SavedAddresses {
    path: PathBuf,
    saved: BTreeSet<SocketAddr>,
}

impl SavedAddresses {
    /// Reads the addresses saved in this folder.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let saved = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!(path = %path.display(), %error, "the members' addresses cannot be understood and are left out");
                BTreeSet::new()
            }),
            Err(_) => BTreeSet::new(),
        };
        Self { path, saved }
    }

    /// The seeds and the saved addresses.
    pub(super) fn seeds(&self, seeds: &[SocketAddr]) -> Vec<SocketAddr> {
        let all: BTreeSet<SocketAddr> = self.saved.iter().chain(seeds).copied().collect();
        all.into_iter().collect()
    }

    /// Saves the addresses of the other members. A node that is alone keeps the saved ones: the others may be away for now.
    fn save(&mut self, me: &NodeId, status: &ClusterStatus) {
        let others = status.members.iter().filter(|one| one.node != *me);
        let now: BTreeSet<SocketAddr> = others.map(|one| one.address).collect();
        if now.is_empty() || now == self.saved {
            return;
        }
        let bytes = serde_json::to_vec(&now).unwrap_or_default();
        match disk::replace(&self.path, &bytes) {
            Ok(()) => self.saved = now,
            Err(failure) => warn!(%failure, "the members' addresses are not kept"),
        }
    }

    /// Whether there were other members before and there are none now.
    fn misses(&self, me: &NodeId, status: &ClusterStatus) -> bool {
        !self.saved.is_empty() && status.members.iter().all(|one| one.node == *me)
    }
}

/// What this task has told the cluster so far.
struct AnnouncedState {
    draining: bool,
    ready: bool,
    forgotten: BTreeSet<NodeId>,
}

impl Node {
    /// Follows members and operators until `stop` is cancelled or this node leaves.
    pub(super) async fn follow_members(
        self: Arc<Self>,
        mut addresses: SavedAddresses,
        readiness: Readiness,
        stop: CancellationToken,
    ) {
        let cluster = self.cluster.wait().await.clone();
        let mut changes = cluster.changes();
        let mut views = self.fleet.subscribe();
        let begun = Instant::now();
        // After this time a node without an answer founds a cluster; one that may not found a cluster serves alone.
        let patience = self.settings.cluster.timing.found_after.as_duration() * 2;
        let mut announced = AnnouncedState {
            draining: false,
            ready: false,
            forgotten: BTreeSet::new(),
        };
        let mut withheld = WithheldMemory::default();
        while !self.has_left() {
            let view = views.borrow_and_update().clone();
            changes.mark_unchanged();
            self.apply_decisions(&cluster, &view, &mut announced).await;
            withheld.hold(&cluster, self.gpu_lost()).await;
            self.make_room_for_calls();
            if let Ok(status) = cluster.status().await {
                if self.room.members(&self.me, self.capacity, &status) {
                    self.ring();
                }
                if status.joined {
                    // A node that rejoins knows no members for a moment; its calls must go on.
                    self.connections.members(&status);
                }
                self.metrics.remote.set(self.follows.len() as i64);
                addresses.save(&self.me, &status);
                self.room.missed(addresses.misses(&self.me, &status));
                if !announced.ready && (status.joined || begun.elapsed() > patience) {
                    announced.ready = true;
                    let detail = if status.joined {
                        ""
                    } else {
                        "no other node was reached"
                    };
                    readiness.set(CONDITION_PEERS, true, detail);
                    // Set only once, because `announced.ready` guards it.
                    drop(self.met.set(()));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
                changed = changes.changed() => if changed.is_err() { break },
                changed = views.changed() => if changed.is_err() { return },
            }
        }
        readiness.set(CONDITION_PEERS, true, "this node has left its cluster");
        // It may have been set before.
        drop(self.met.set(()));
    }

    /// Executes the operators' decisions.
    async fn apply_decisions(
        &self,
        cluster: &Cluster,
        view: &FleetView,
        announced: &mut AnnouncedState,
    ) {
        match view.work() {
            Work::Removed => {
                warn!("this node was removed and leaves its cluster");
                self.leave(cluster).await;
                return;
            }
            work => {
                let draining = work == Work::Cordoned || self.stopping.load(Ordering::Relaxed);
                if draining != announced.draining && cluster.drain(draining).await.is_ok() {
                    info!(
                        draining,
                        "the cluster is told whether this node takes instances"
                    );
                    announced.draining = draining;
                }
            }
        }
        let revoked: BTreeSet<NodeId> = self.gate.revoked(view).into_iter().collect();
        for node in revoked.difference(&announced.forgotten) {
            warn!(%node, "a node whose certificate was revoked is no member any more");
            if let Err(failure) = cluster.forget(node.clone()).await {
                error!(%failure, "it could not be forgotten");
            }
            self.connections.drop_node(node);
        }
        announced.forgotten = revoked;
    }

    /// Leaves the cluster for good; from now on instances start on this node only.
    async fn leave(&self, cluster: &Cluster) {
        if !self.left.swap(true, Ordering::Relaxed) {
            cluster.leave().await;
        }
    }

    /// Ends this node's work for others, waiting at most `grace`, and leaves the cluster.
    pub(super) async fn stop(&self, grace: Duration) {
        self.drain().await;
        let mut served = self.served.subscribe();
        let idle = served.wait_for(|calls| *calls == 0);
        drop(timeout(grace, idle).await);
        self.end_for_others(grace).await;
        // This node will not call them again, but may be back in a moment.
        let left = self.follows.all().into_iter().map(|followed| async move {
            let left = super::remote::release(&self.connections, &followed);
            drop(timeout(Duration::from_secs(2), left).await);
        });
        futures::future::join_all(left).await;
        if let Some(cluster) = self.cluster.get() {
            self.leave(cluster).await;
        }
    }

    /// Whether this node accepts no further instances.
    pub(super) fn is_draining(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.fleet.view().work() != Work::Taken
    }

    /// Accepts no further instances; running ones go on.
    pub(super) async fn drain(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(cluster) = self.cluster.get()
            && let Err(failure) = cluster.drain(true).await
        {
            info!(%failure, "the cluster's part of this node had stopped before");
        }
    }
}

impl Node {
    /// Ends the instances that run here for other nodes, which then start them elsewhere.
    async fn end_for_others(&self, grace: Duration) {
        let entries = self.table.all().into_iter();
        let others = entries.filter(|entry| entry.requester != self.me);
        let ends = others.map(|entry| async move {
            let mut progress = entry.progress.subscribe();
            entry
                .end
                .send_replace(Some(EndReason::Requested(Duration::ZERO)));
            let gone =
                |progress: &Progress| matches!(progress, Progress::Gone(..) | Progress::Failed(_));
            drop(timeout(grace, progress.wait_for(gone)).await);
        });
        futures::future::join_all(ends).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_remembered_beside_the_seeds() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut addresses = SavedAddresses::open(folder.path());
        assert_eq!(addresses.seeds(&[at(1)]), [at(1)]);
        let member = |node: &str, port| fdn_cluster::status::MemberStatus {
            node: node.parse().expect("node"),
            key: fdn_cluster::identity::Key::default(),
            address: at(port),
            status: fdn_cluster::membership::Status::Alive,
            draining: false,
            connected: true,
            capacity: fdn_core::Resources::default(),
        };
        let mut status = ClusterStatus {
            node: "n-1".parse().expect("node"),
            joined: true,
            quorum: true,
            head: None,
            epoch: 0,
            members: vec![member("n-1", 1), member("n-2", 2), member("n-3", 3)],
            capacity: fdn_core::Resources::default(),
            used: fdn_core::Resources::default(),
            reserved: fdn_core::Resources::default(),
            running: 0,
            open: 0,
            placed: 0,
            waiting: 0,
            held: 0,
            stages: std::collections::BTreeMap::new(),
            global: None,
        };
        let me = "n-1".parse().expect("node");
        addresses.save(&me, &status);
        assert!(!addresses.misses(&me, &status));
        status.members.truncate(1);
        addresses.save(&me, &status);
        assert!(addresses.misses(&me, &status));
        let addresses = SavedAddresses::open(folder.path());
        assert_eq!(addresses.seeds(&[at(2), at(9)]), [at(2), at(3), at(9)]);
        std::fs::write(folder.path().join(FILE), "no list").expect("written");
        let addresses = SavedAddresses::open(folder.path());
        assert!(addresses.seeds(&[]).is_empty());
        assert!(!addresses.misses(&me, &status), "there never were any");
    }
}
