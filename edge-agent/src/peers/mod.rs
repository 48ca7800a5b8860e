//! The other nodes of the cluster: instances are started where there is room, and called there.
//!
//! ```text
//!  pool ── Placer ─ ClusterPlacer ── scale ──▶ fdn_cluster ══ gRPC ══▶ fdn_cluster ── start ─▶ Orders ─ LocalPlacer ─ Ledger
//!  seat ── call ─── RemoteInstance ── Connections ═══ HTTP/2 ══════▶ Service ─────── call ──▶ instance
//!                   Followed ◀═════ lines of what the instance does ═ Service ◀─ state
//! ```
//!
//! A task of the cluster carries an `order`: the version, and the node that requests it. The node that has room starts the instance from what it
//! has deployed itself (`registry`), if its own ledger permits (`host`), and keeps it in its `table` from then on. The requesting node follows
//! the instance (`followed`) and calls it (`remote`) over HTTP/2 on the cluster's listener, with the same certificates (`serve`).
//!
//! **Who ends an instance.** It runs for the requesting node as long as that node follows it, and ends when that node stops it. When the
//! requesting node leaves, dies or restarts, the node that runs the instance keeps it warm as its own (at once, or within `peers.orphan_after`)
//! and lends it to the next node whose task for such an instance it gets, mostly the restarted one. When the node that runs it is lost, the
//! requesting node's handle reports it gone and the pool replaces it. The cluster is told exactly once that a task is over: when everything that
//! the instance held is free.
//!
//! **Kinds of failures.** A call that the other node has certainly not passed to the instance is returned complete (`replay`); any other failed
//! call counts as interrupted. The gateway's rules for retries do not depend on where the instance was.

mod connections;
mod elsewhere;
mod followed;
mod gate;
mod host;
mod lease;
mod members;
mod metrics;
mod order;
mod orphans;
mod placement;
mod placer;
mod pressure;
mod registry;
mod remote;
mod replay;
mod room;
mod serve;
mod table;
mod wire;
mod withheld;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_cluster::{Cluster, ClusterParts, ClusterSettings, Step};
use fdn_core::message::StageCounts;
use fdn_core::{ClusterId, InstanceId, MebiBytes, NodeId, Resources};
use fdn_instances::Kind;
use fdn_link::SharedControllerLink;
use fdn_service::CancellationToken;
use fdn_service::health::Readiness;
use prometheus::Registry as Metrics;
use tokio::runtime::Handle;
use tokio::sync::{Notify, SetOnce, watch};
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::fleet::Fleet;
use crate::invocations::instances::WeakInstances;
use crate::invocations::ledger::Ledger;
use crate::invocations::placer::LocalPlacer;
use crate::settings::PeerSettings;
use connections::Connections;
pub use elsewhere::Elsewhere;
use followed::Follows;
use gate::Gate;
use host::{Orders, TaskEndGuard};
use lease::ControllerLeases;
use members::SavedAddresses;
use metrics::PeerMetrics;
pub use placement::Placement;
use registry::Registry;
use room::Room;
use serve::Service;
use table::{Entry, Table};

/// The readiness condition that holds once the node is a member of its cluster, or has found no other member.
pub const CONDITION_PEERS: &str = "cluster";

/// What a node needs to take part in its cluster.
pub struct PeerParts {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// How the node takes part.
    pub settings: PeerSettings,
    /// The cluster's settings, complete.
    pub cluster_settings: ClusterSettings,
    /// The node's capacity for instances, GPU memory included.
    pub capacity: Resources,
    /// The ledger, which decides what fits.
    pub ledger: Arc<Ledger>,
    /// The placer that starts instances on this node.
    pub local: Arc<LocalPlacer>,
    /// The time limit of a start.
    pub start_timeout: Duration,
    /// How long an instance that is ended may go on with its calls.
    pub stop_grace: Duration,
    /// The operators' decisions.
    pub fleet: Arc<Fleet>,
    /// The folder for the members' addresses.
    pub folder: PathBuf,
    /// The client for the controllers.
    pub centre: SharedControllerLink,
    /// The timeout of the controllers' answers.
    pub answer_timeout: Duration,
    /// The registry of metrics.
    pub registry: Metrics,
    /// Shows whether the node is a member.
    pub readiness: Readiness,
}

/// This node's part in its cluster. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Node>);

/// Starts instances anywhere in the cluster.
pub struct ClusterPlacer(Arc<Node>);

/// State shared by all parts.
struct Node {
    me: NodeId,
    settings: PeerSettings,
    capacity: Resources,
    /// The GPU memory that this node announced to the cluster.
    gpu: MebiBytes,
    start_timeout: Duration,
    stop_grace: Duration,
    cluster: Arc<SetOnce<Cluster>>,
    left: AtomicBool,
    /// Whether the agent is about to stop.
    stopping: AtomicBool,
    runtime: Handle,
    ledger: Arc<Ledger>,
    local: Arc<LocalPlacer>,
    registry: Arc<Registry>,
    table: Table,
    follows: Arc<Follows>,
    connections: Arc<Connections>,
    room: Room,
    /// Set once the node is a member of its cluster, or has found no other member.
    met: SetOnce<()>,
    gate: Gate,
    fleet: Arc<Fleet>,
    /// How instances were placed, until the first call of each takes it: one entry per completed start.
    placements: Mutex<BTreeMap<InstanceId, Arc<Placement>>>,
    /// Wakes the pool when the available room changes.
    bell: SetOnce<Arc<Notify>>,
    /// This node's own instances, which take in idle ones of other nodes that nobody uses any more.
    own: SetOnce<WeakInstances>,
    /// The number of other nodes' calls that run here.
    served: watch::Sender<usize>,
    metrics: PeerMetrics,
}

/// Counts a call of another node as running until dropped.
struct Serving(Arc<Node>, Arc<Entry>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.1.call_ended();
        self.0.served.send_modify(|calls| *calls -= 1);
    }
}

impl Peers {
    /// Makes this process a node of its cluster; returns when it listens. Must be called on a runtime that outlives the gateway's threads. The
    /// returned task follows members and operators until `stop` is cancelled.
    ///
    /// # Errors
    /// When a setting or certificate is not usable, or the address is in use.
    pub async fn start(
        parts: PeerParts,
        stop: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let addresses = SavedAddresses::open(&parts.folder);
        let mut settings = parts.cluster_settings;
        settings.seeds = addresses.seeds(&settings.seeds);
        let metrics = PeerMetrics::new(&parts.registry)?;
        let cluster = Arc::new(SetOnce::new());
        let per_node = settings.limits.peer_connections;
        let open = metrics.connections.clone();
        let (shared, kind) = (Arc::clone(&cluster), parts.local.kind());
        let connections = Connections::new(&parts.node, shared, per_node, kind, open);
        let node = Arc::new(Node {
            me: parts.node.clone(),
            settings: parts.settings,
            capacity: parts.ledger.capacity(),
            gpu: parts.capacity.gpu_memory_mib,
            start_timeout: parts.start_timeout,
            stop_grace: parts.stop_grace,
            cluster,
            left: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            runtime: Handle::current(),
            ledger: parts.ledger,
            local: parts.local,
            registry: Arc::default(),
            table: Table::default(),
            follows: Arc::default(),
            connections: Arc::new(connections),
            room: Room::new(kind != Kind::Elsewhere),
            met: SetOnce::new(),
            gate: Gate::default(),
            fleet: parts.fleet,
            placements: Mutex::default(),
            bell: SetOnce::new(),
            own: SetOnce::new(),
            served: watch::Sender::new(0),
            metrics,
        });
        parts.readiness.set(CONDITION_PEERS, false, "starting");
        let started = Cluster::start(ClusterParts {
            cluster: parts.cluster,
            node: parts.node,
            capacity: parts.capacity,
            settings,
            host: Orders(Arc::downgrade(&node)),
            peers: Some(Arc::new(Service(Arc::downgrade(&node)))),
            leases: Some(Arc::new(ControllerLeases {
                centre: parts.centre,
                timeout: parts.answer_timeout,
            })),
            registry: parts.registry,
        })
        .await?;
        node.take_room_of_found(&started).await;
        // Set only here, once.
        drop(node.cluster.set(started));
        let following = Arc::clone(&node).follow_members(addresses, parts.readiness, stop);
        let task = tokio::spawn(following);
        Ok((Self(node), task))
    }

    /// The placer for instances of this node's calls.
    #[must_use]
    pub fn placer(&self) -> Arc<ClusterPlacer> {
        Arc::new(ClusterPlacer(Arc::clone(&self.0)))
    }

    /// Sets what to wake when the room for instances changes; once.
    pub fn on_change(&self, bell: Arc<Notify>) {
        drop(self.0.bell.set(bell));
    }

    /// Sets where instances are kept that ran for other nodes; once.
    pub fn keep_in(&self, own: WeakInstances) {
        drop(self.0.own.set(own));
    }

    /// The cluster, for inspection and tests.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.0.cluster.get()
    }

    /// The number of scaling tasks that ended on this node, by stage.
    #[must_use]
    pub fn stages(&self) -> Option<StageCounts> {
        let metrics = self.0.cluster.get()?.metrics();
        let at = |step: Step| metrics.held[step as usize].get_sample_count();
        Some(StageCounts {
            local: at(Step::Local),
            probe: at(Step::Probe) + at(Step::Hint),
            global: at(Step::Global),
            refused: metrics.settled.with_label_values(&["refused"]).get(),
        })
    }

    /// Accepts nothing new for other nodes: the agent is about to stop.
    pub async fn drain(&self) {
        self.0.drain().await;
    }

    /// Ends this node's work for other nodes, waiting at most `grace`, and leaves the cluster.
    pub async fn stop(&self, grace: Duration) {
        self.0.stop(grace).await;
    }
}

impl Node {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    fn placements(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Arc<Placement>>> {
        self.placements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.notify_one();
        }
    }

    fn serving(self: &Arc<Self>, entry: Arc<Entry>) -> Serving {
        entry.calls.fetch_add(1, Ordering::Relaxed);
        self.served.send_modify(|calls| *calls += 1);
        Serving(Arc::clone(self), entry)
    }

    /// Reserves room in the cluster for instances found at startup, so that the cluster does not assign it.
    async fn take_room_of_found(&self, cluster: &Cluster) {
        for (id, resources) in self.local.found_resources() {
            if let Ok(Some(task)) = cluster.hold(resources).await {
                let cluster = cluster.clone();
                self.local
                    .guard_found(id, Box::new(TaskEndGuard { cluster, task }));
            }
        }
    }
}

/// The text of an error and its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
