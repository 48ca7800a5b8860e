//! The other nodes of the cluster: instances are started where there is room for them, and called there.
//!
//! ```text
//!  pool ── Placer ─ ClusterPlacer ── scale ──▶ fdn_cluster ══ gRPC ══▶ fdn_cluster ── start ─▶ Orders ─ LocalPlacer ─ Ledger
//!  seat ── call ─── RemoteInstance ── Connections ═══ HTTP/2 ══════▶ Service ─────── call ──▶ instance
//!                   Followed ◀═════ lines of what the instance does ═ Service ◀─ state
//! ```
//!
//! A task of the cluster carries an `order`: which version, and who asks. The node that has the room starts the instance from what it
//! has deployed itself (`registry`), if its own ledger lets it (`host`); it is in the `table` from then on. The node that asked
//! follows it (`followed`) and calls it (`remote`) over HTTP/2 on the cluster's listener, by the same certificates (`serve`).
//!
//! **Who ends what.** An instance runs for its asker for as long as that follows it. When the asker stops it, it ends. When the asker leaves,
//! dies or starts anew, the node that runs it keeps it warm as its own (at once, or within `peers.orphan_after`), and lends it to the next
//! node whose task for such an instance it gets: mostly that one, once it is back. When its node is lost, the asker's handle shows it as gone and the pool replaces it. The cluster hears
//! that a task is over exactly once, when what the instance held is free.
//!
//! **Failures told apart.** A call that the other node has surely not handed to the instance comes back whole (`kept`); any other one
//! that broke is interrupted. The gateway's rules for making a call again do not know where the instance was.

mod connections;
mod elsewhere;
mod failed;
mod followed;
mod gate;
mod host;
mod kept;
mod lease;
mod left;
mod members;
mod metrics;
mod order;
mod placer;
mod pressure;
mod registry;
mod remote;
mod room;
mod serve;
mod table;
mod way;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_cluster::{Cluster, ClusterParts, ClusterSettings, Step};
use fdn_core::message::StageCounts;
use fdn_core::{ClusterId, InstanceId, MebiBytes, NodeId, Resources};
use fdn_instances::Kind;
use fdn_link::SharedCentre;
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
use host::{Ended, Orders};
use lease::ControllerLeases;
use members::Known;
use metrics::PeerMetrics;
use registry::Registry;
use room::Room;
use serve::Service;
use table::{Entry, Table};
pub use way::Way;

/// The condition of readiness that holds once the node is a member of its cluster, or has found nobody.
pub const CONDITION_PEERS: &str = "cluster";

/// What a node needs to take part in its cluster.
pub struct PeerParts {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// How it takes part.
    pub settings: PeerSettings,
    /// The cluster's settings, complete.
    pub cluster_settings: ClusterSettings,
    /// What it has for instances, GPU memory included.
    pub capacity: Resources,
    /// Who has the last word on that.
    pub ledger: Arc<Ledger>,
    /// What starts instances here.
    pub local: Arc<LocalPlacer>,
    /// The longest start.
    pub start_timeout: Duration,
    /// How long an instance that is ended may go on with its calls.
    pub stop_grace: Duration,
    /// What operators said.
    pub fleet: Arc<Fleet>,
    /// The folder for addresses of members.
    pub folder: PathBuf,
    /// Asks the controllers.
    pub centre: SharedCentre,
    /// How long they may take to answer.
    pub answer_timeout: Duration,
    /// Where metrics go.
    pub registry: Metrics,
    /// Shows whether the node is a member.
    pub readiness: Readiness,
}

/// This node's part of its cluster. A cheap handle.
#[derive(Clone)]
pub struct Peers(Arc<Node>);

/// Starts instances anywhere in the cluster.
pub struct ClusterPlacer(Arc<Node>);

/// What all parts share.
struct Node {
    me: NodeId,
    settings: PeerSettings,
    capacity: Resources,
    /// GPU memory that the cluster was told of.
    gpu: MebiBytes,
    start_timeout: Duration,
    stop_grace: Duration,
    cluster: Arc<SetOnce<Cluster>>,
    left: AtomicBool,
    /// The agent is about to stop.
    stopping: AtomicBool,
    runtime: Handle,
    ledger: Arc<Ledger>,
    local: Arc<LocalPlacer>,
    registry: Arc<Registry>,
    table: Table,
    follows: Arc<Follows>,
    connections: Arc<Connections>,
    room: Room,
    /// Set once it is a member of its cluster, or has found nobody.
    met: SetOnce<()>,
    gate: Gate,
    fleet: Arc<Fleet>,
    /// Ways of instances that no call has got yet: one for each start that has just ended.
    ways: Mutex<BTreeMap<InstanceId, Arc<Way>>>,
    /// Wakes the pool when there is more or less room.
    bell: SetOnce<Arc<Notify>>,
    /// What this node calls itself, where instances of others are kept that nobody wants any more.
    own: SetOnce<WeakInstances>,
    /// Calls of other nodes that run here.
    served: watch::Sender<usize>,
    metrics: PeerMetrics,
}

/// Counts a call of another node for as long as it lives.
struct Serving(Arc<Node>, Arc<Entry>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.1.called();
        self.0.served.send_modify(|calls| *calls -= 1);
    }
}

impl Peers {
    /// Makes this process a node of its cluster; returns when it listens. Must be called on the runtime that outlives the gateway's
    /// threads. The task follows members and operators until `stop` is cancelled.
    ///
    /// # Errors
    /// When a setting or certificate cannot be used, or the address is taken.
    pub async fn start(
        parts: PeerParts,
        stop: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let known = Known::open(&parts.folder);
        let mut settings = parts.cluster_settings;
        settings.seeds = known.seeds(&settings.seeds);
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
            ways: Mutex::default(),
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
        // Set once, here.
        drop(node.cluster.set(started));
        let following = Arc::clone(&node).follow_members(known, parts.readiness, stop);
        let task = tokio::spawn(following);
        Ok((Self(node), task))
    }

    /// What starts instances for this node's calls.
    #[must_use]
    pub fn placer(&self) -> Arc<ClusterPlacer> {
        Arc::new(ClusterPlacer(Arc::clone(&self.0)))
    }

    /// Says whom to wake when there is more or less room for instances; once.
    pub fn on_change(&self, bell: Arc<Notify>) {
        drop(self.0.bell.set(bell));
    }

    /// Says where instances are kept that ran for others; once.
    pub fn keep_in(&self, own: WeakInstances) {
        drop(self.0.own.set(own));
    }

    /// The cluster, to look at and for tests.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.0.cluster.get()
    }

    /// Where scaling tasks ended on this node.
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

    /// Takes nothing new for others: the agent is about to stop.
    pub async fn drain(&self) {
        self.0.drain().await;
    }

    /// Ends what this node does for others, as far as that takes no longer than `grace`, and leaves the cluster.
    pub async fn stop(&self, grace: Duration) {
        self.0.stop(grace).await;
    }
}

impl Node {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    fn ways(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Arc<Way>>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What runs from before takes room that the cluster must not give away.
    async fn take_room_of_found(&self, cluster: &Cluster) {
        for (id, resources) in self.local.found_resources() {
            if let Ok(Some(task)) = cluster.hold(resources).await {
                let cluster = cluster.clone();
                self.local
                    .guard_found(id, Box::new(Ended { cluster, task }));
            }
        }
    }
}

/// An error with its causes on one line.
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
