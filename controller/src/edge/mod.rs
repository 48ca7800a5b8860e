//! Machines at the edge: enrolled nodes and DNS servers, each with one outgoing TLS connection and an identity by which every message is judged.
//!
//! | module | holds |
//! | --- | --- |
//! | `admission` | whether the store knows a machine |
//! | `server` | the listener: TLS 1.3, certificates of the network's own authority, HTTP/2 |
//! | `machines` | the connected machines, and the revoked certificates |
//! | `requests` | the requests of machines, and their answers |
//! | `fetch` | which artifacts a node may fetch |
//! | [`authorize`] | what a machine may send and ask |
//! | [`node_client`] | requests to nodes: logs, calls, jobs |
//! | `bodies`, `stall_guard` | limits of request bodies, and of slow readers |
//! | [`change_log`], [`change`], [`used`], `view` | the state and the changes for machines, by revision |
//! | `feed`, `heartbeat` | one machine's feed; the heartbeat of all |
//! | `load`, `changes` | reading the change log from the database, and keeping it current |
//! | `reports` | handling the reports of machines |
//!
//! Broker, database and the network's secrets stay behind this listener: no machine holds credentials for them.

mod admission;
pub mod authorize;
mod bodies;
pub mod change;
pub mod change_log;
mod changes;
mod feed;
mod fetch;
mod heartbeat;
mod load;
mod machines;
pub mod node_client;
pub mod reports;
mod requests;
mod server;
mod stall_guard;
pub mod used;
mod view;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use fdn_core::NodeId;
use fdn_core::enrol::Role;
use fdn_service::pki::tls::{Credentials, RemovalCheck, RevocationCheck};
use fdn_service::{CancellationToken, listen};
use rustls::ServerConfig;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::info;

use crate::Error;
use crate::app::authority::own_certificate;
use crate::settings::EdgeSettings;
use crate::state::State;
use bodies::Bodies;
use change_log::{ChangeLog, Limits};
use heartbeat::Heartbeat;
pub use machines::Machines;

/// Wakes feeds, with the number of the last change for each role: changes for DNS servers, one every second, wake no node.
#[derive(Default)]
pub struct FeedWaker {
    node: watch::Sender<u64>,
    dns: watch::Sender<u64>,
}

impl FeedWaker {
    /// The sender for a role.
    #[must_use]
    pub const fn of(&self, role: Role) -> &watch::Sender<u64> {
        match role {
            Role::Node => &self.node,
            Role::Dns => &self.dns,
        }
    }

    /// Wakes the feeds of roles with a new change.
    pub fn wake(&self, change_log: &ChangeLog) {
        for role in [Role::Node, Role::Dns] {
            let last = change_log.last_for(role);
            let new = |sent: &mut u64| std::mem::replace(sent, last) != last;
            self.of(role).send_if_modified(new);
        }
    }
}

/// State about machines at the edge, shared by the parts of a controller.
pub struct Edge {
    /// The state and the changes for machines.
    pub change_log: Mutex<ChangeLog>,
    /// Wakes their feeds.
    pub feed_waker: FeedWaker,
    /// Their heartbeat.
    heartbeat: Heartbeat,
    /// The connected machines.
    pub machines: Arc<Machines>,
    /// Permits to ask the store again about machines that were admitted while it did not answer.
    rechecks: Semaphore,
    /// The clients that ask nodes.
    pub node_clients: node_client::NodeClients,
    /// The limits of their request bodies.
    bodies: Bodies,
    /// The port on which machines reach this controller.
    pub port: AtomicU16,
}

impl Edge {
    /// The state before any machine is connected and anything is loaded.
    #[must_use]
    pub fn new(settings: &EdgeSettings) -> Self {
        let limits = Limits {
            changes: settings.history,
            bytes: settings.history_size.as_usize(),
        };
        Self {
            change_log: Mutex::new(ChangeLog::new(limits)),
            feed_waker: FeedWaker::default(),
            heartbeat: Heartbeat::default(),
            machines: Arc::default(),
            rechecks: Semaphore::new(admission::RECHECKS_MAX),
            node_clients: node_client::NodeClients::default(),
            bodies: Bodies::new(settings),
            port: AtomicU16::new(settings.listen.port()),
        }
    }
}

/// Starts the listener and the tasks around it; returns its address.
///
/// # Errors
/// When the address is in use, or no certificate can be made.
pub(crate) async fn start(
    state: &Arc<State>,
    api: SocketAddr,
    shutdown: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<SocketAddr, Error> {
    let settings = &state.settings.edge;
    let listener = listen::tcp(settings.listen, "edge.listen")?;
    let unusable = |e: std::io::Error| Error::Internal(format!("the edge listener: {e}"));
    let address = listener.local_addr().map_err(unusable)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(unusable)?;
    state.edge.port.store(address.port(), Ordering::Relaxed);
    let name = match &settings.name {
        Some(name) => name.clone(),
        None => own_name(api)?,
    };
    // No machine is admitted before the removed ones are known.
    changes::revoke(state, fdn_service::now()).await?;
    let shared = Arc::new(server::Shared {
        tls: RwLock::new(certificate(state, &name).await?),
        state: Arc::clone(state),
        stop: shutdown.clone(),
    });
    tasks.spawn(changes::receive(
        Arc::clone(state),
        name.clone(),
        shutdown.clone(),
    ));
    tasks.spawn(run_heartbeat(Arc::clone(state), shutdown.clone()));
    tasks.spawn(changes::refresh(Arc::clone(state), shutdown.clone()));
    tasks.spawn(changes::poll_revocations(
        Arc::clone(state),
        shutdown.clone(),
    ));
    tasks.spawn(changes::renew_certificates(
        Arc::clone(&shared),
        name.clone(),
    ));
    tasks.spawn(server::run(shared, listener));
    info!(%address, %name, "machines at the edge are listened for");
    Ok(address)
}

/// Runs the heartbeat until shutdown.
async fn run_heartbeat(state: Arc<State>, shutdown: CancellationToken) {
    let every = state.settings.edge.heartbeat.as_duration();
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = state.edge.heartbeat.run(every) => {}
    }
}

/// The TLS settings for machines: this controller's certificate, and which machines are admitted. Requests to nodes use the same certificate.
async fn certificate(state: &Arc<State>, name: &NodeId) -> Result<Arc<ServerConfig>, Error> {
    let own = own_certificate(state, name, fdn_service::now()).await?;
    let credentials = Credentials {
        authorities: own.authorities.concat(),
        certificate: own.certificate,
        key: own.key,
    };
    let machines = Arc::clone(&state.edge.machines);
    let revoked: RevocationCheck = Arc::new(move |serial: &str| machines.is_revoked(serial));
    state.edge.node_clients.renew(&credentials, revoked)?;
    let machines = Arc::clone(&state.edge.machines);
    let count = state.metrics.edge.refused.with_label_values(&["revoked"]);
    let removed: RemovalCheck = Arc::new(move |facts| {
        let removed = machines.is_revoked(&facts.serial);
        if removed {
            count.inc();
            machines.warn_removed(&facts.identity, fdn_service::now());
        }
        removed
    });
    Ok(Arc::new(credentials.server(removed)?))
}

/// The default name: host name and API port, since several controllers may run on one host.
fn own_name(api: SocketAddr) -> Result<NodeId, Error> {
    let host = fdn_service::host_name();
    let name = format!(
        "{}-{}",
        host.unwrap_or_else(|| "controller".to_owned()),
        api.port()
    );
    name.parse().map_err(|_| {
        Error::config(format!(
            "edge.name: `{name}`, made of the host name, is no name; set one"
        ))
    })
}
