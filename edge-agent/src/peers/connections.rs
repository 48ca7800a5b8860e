//! Connections to other nodes: a few per node, opened on demand and shared by all calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdn_cluster::peer::{NODE, PeerBody, PeerConnection};
use fdn_cluster::{Cluster, ClusterStatus};
use fdn_core::NodeId;
use fdn_instances::Kind;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use prometheus::IntGauge;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

use super::chain;

/// Why a request got no response.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nothing of it was sent.
    NotSent(String),
    /// The other node may have received it.
    Interrupted(String),
}

/// This node's connections to other nodes.
#[derive(Debug)]
pub(super) struct Connections {
    /// This node's name, for connections without certificates.
    name: HeaderValue,
    cluster: Arc<SetOnce<Cluster>>,
    /// The agent's runtime: connections live there, not on that of a gateway thread.
    runtime: Handle,
    /// The kind of runtime that failures name.
    pub(super) kind: Kind,
    per_node: usize,
    nodes: Mutex<BTreeMap<NodeId, Arc<ConnectionSlots>>>,
    addresses: Mutex<BTreeMap<NodeId, SocketAddr>>,
    open: IntGauge,
}

/// The connections to one node, used in turn.
#[derive(Debug)]
struct ConnectionSlots {
    slots: Vec<tokio::sync::Mutex<Option<PeerConnection>>>,
    next: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(super) fn new(
        me: &NodeId,
        cluster: Arc<SetOnce<Cluster>>,
        per_node: usize,
        kind: Kind,
        open: IntGauge,
    ) -> Self {
        Self {
            name: HeaderValue::from_str(me.as_str())
                .expect("a node's name is letters, digits and dashes"),
            cluster,
            runtime: Handle::current(),
            per_node,
            kind,
            nodes: Mutex::default(),
            addresses: Mutex::default(),
            open,
        }
    }

    /// Updates the members' addresses and closes the connections to nodes that are no longer members.
    pub(super) fn members(&self, status: &ClusterStatus) {
        let known = status.members.iter();
        let known: BTreeMap<_, _> = known.map(|one| (one.node.clone(), one.address)).collect();
        let gone: Vec<Arc<ConnectionSlots>> = {
            let mut nodes = lock(&self.nodes);
            let before = std::mem::take(&mut *nodes);
            let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = before
                .into_iter()
                .partition(|(node, _)| known.contains_key(node));
            *nodes = kept;
            gone.into_values().collect()
        };
        *lock(&self.addresses) = known;
        self.close(gone);
    }

    /// Closes the connections to a lost node, which interrupts its calls.
    pub(super) fn drop_node(&self, node: &NodeId) {
        let gone = lock(&self.nodes).remove(node);
        lock(&self.addresses).remove(node);
        self.close(gone);
    }

    fn close(&self, gone: impl IntoIterator<Item = Arc<ConnectionSlots>>) {
        for pool in gone {
            self.runtime.spawn(async move {
                for slot in &pool.slots {
                    if let Some(connection) = slot.lock().await.take() {
                        connection.closer.cancel();
                    }
                }
            });
        }
    }

    /// Sends a request and waits for the response head.
    pub(super) async fn send(
        &self,
        node: &NodeId,
        mut request: Request<PeerBody>,
    ) -> Result<Response<Incoming>, SendError> {
        request.headers_mut().insert(NODE, self.name.clone());
        *request.version_mut() = http::Version::HTTP_2;
        // A connection may have ended unnoticed; the second attempt opens a new one.
        for again in [true, false] {
            let mut connection = match self.connection(node).await {
                Ok(connection) => connection,
                Err(reason) => return Err(SendError::NotSent(reason)),
            };
            let mut failed = match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            let back = failed.take_message();
            let reason = chain(&failed.into_error());
            match back {
                Some(back) if again => {
                    connection.closer.cancel();
                    request = back;
                }
                Some(_) => return Err(SendError::NotSent(reason)),
                None => return Err(SendError::Interrupted(reason)),
            }
        }
        Err(SendError::Interrupted("no connection held".to_owned()))
    }

    async fn connection(&self, node: &NodeId) -> Result<PeerConnection, String> {
        let pool = {
            let mut nodes = lock(&self.nodes);
            let pool = nodes.entry(node.clone()).or_insert_with(|| {
                let slots = (0..self.per_node).map(|_| tokio::sync::Mutex::default());
                Arc::new(ConnectionSlots {
                    slots: slots.collect(),
                    next: AtomicUsize::new(0),
                })
            });
            Arc::clone(pool)
        };
        let turn = pool.next.fetch_add(1, Ordering::Relaxed);
        let slot = &pool.slots[turn % pool.slots.len()];
        // One caller connects, the others wait for it.
        let mut slot = slot.lock().await;
        if let Some(connection) = &*slot
            && !connection.sender.is_closed()
            && !connection.closer.is_cancelled()
        {
            return Ok(connection.clone());
        }
        let connection = self.connect(node).await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    async fn connect(&self, node: &NodeId) -> Result<PeerConnection, String> {
        let cluster = self.cluster.get().ok_or("this node has no cluster yet")?;
        let address = self.address(cluster, node).await?;
        let (dialer, name) = (cluster.dialer().clone(), node.clone());
        let open = self.open.clone();
        let connecting = self.runtime.spawn(async move {
            let connection = dialer.connect(&name, address).await?;
            open.inc();
            let closed = connection.closer.clone();
            tokio::spawn(async move {
                closed.cancelled().await;
                open.dec();
            });
            Ok::<_, fdn_cluster::peer::PeerError>(connection)
        });
        match connecting.await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn address(&self, cluster: &Cluster, node: &NodeId) -> Result<SocketAddr, String> {
        if let Some(address) = lock(&self.addresses).get(node) {
            return Ok(*address);
        }
        let status = cluster.status().await.map_err(|error| error.to_string())?;
        // A node that rejoins knows no members for a moment; its calls must go on.
        if status.joined {
            self.members(&status);
        }
        let known = status.members.iter().find(|one| one.node == *node);
        let address = known.map(|one| one.address);
        address.ok_or_else(|| format!("node {node} is no member of the cluster"))
    }
}
