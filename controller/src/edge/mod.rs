//! Machines at the edge: enrolled nodes and DNS servers, each with one outgoing TLS connection and an identity by which every message is judged.
//!
//! | module | holds |
//! | --- | --- |
//! | `acquaint` | whether the store knows a machine |
//! | `server` | the listener: TLS 1.3, certificates of the network's own authority, HTTP/2 |
//! | `machines` | the connected machines, and the revoked certificates |
//! | `requests` | the requests of machines, and their answers |
//! | `fetch` | which artifacts a node may fetch |
//! | [`judge`] | what a machine may send and ask |
//! | [`ask`] | requests to nodes: logs, calls, jobs |
//! | `bodies`, `pace` | limits of request bodies, and of slow readers |
//! | [`change_log`], [`change`], [`used`], `view` | the state and the changes for machines, by revision |
//! | `feed`, `pulse` | one machine's feed; the heartbeat of all |
//! | `load`, `changes` | reading the change log from the database, and keeping it current |
//! | `reports` | handling the reports of machines |
//!
//! Broker, database and the network's secrets stay behind this listener: no machine holds credentials for them.

mod acquaint;
pub mod ask;
mod bodies;
pub mod change;
pub mod change_log;
mod changes;
mod feed;
mod fetch;
pub mod judge;
mod load;
mod machines;
mod pace;
mod pulse;
pub mod reports;
mod requests;
mod server;
pub mod used;
mod view;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use fdn_core::NodeId;
use fdn_core::enrol::Role;
use fdn_service::pki::tls::{Credentials, Removed, Revoked};
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
pub use machines::Machines;
use pulse::Pulse;

/// Wakes feeds, with the number of the last change for each role: changes for DNS servers, one every second, wake no node.
#[derive(Default)]
pub struct Changed {
    node: watch::Sender<u64>,
    dns: watch::Sender<u64>,
}

impl Changed {
    /// The sender for a role.
    #[must_use]
    pub const fn of(&self, role: Role) -> &watch::Sender<u64> {
        match role {
            Role::Node => &self.node,
            Role::Dns => &self.dns,
        }
    }

    /// Wakes the feeds of roles with a new change.
    pub fn show(&self, change_log: &ChangeLog) {
        for role in [Role::Node, Role::Dns] {
            let last = change_log.last_for(role);
            let new = |told: &mut u64| std::mem::replace(told, last) != last;
            self.of(role).send_if_modified(new);
        }
    }
}

/// State about machines at the edge, shared by the parts of a controller.
pub struct Edge {
    /// The state and the changes for machines.
    pub change_log: Mutex<ChangeLog>,
    /// Wakes their feeds.
    pub changed: Changed,
    /// Their heartbeat.
    pulse: Pulse,
    /// The connected machines.
    pub machines: Arc<Machines>,
    /// Turns to ask the store again about machines that were admitted while it did not answer.
    again: Semaphore,
    /// The clients that ask nodes.
    pub asker: ask::Asker,
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
            changed: Changed::default(),
            pulse: Pulse::default(),
            machines: Arc::default(),
            again: Semaphore::new(acquaint::AGAIN),
            asker: ask::Asker::default(),
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
    tasks.spawn(changes::hear(
        Arc::clone(state),
        name.clone(),
        shutdown.clone(),
    ));
    tasks.spawn(beat(Arc::clone(state), shutdown.clone()));
    tasks.spawn(changes::refresh(Arc::clone(state), shutdown.clone()));
    tasks.spawn(changes::revocations(Arc::clone(state), shutdown.clone()));
    tasks.spawn(changes::certify(Arc::clone(&shared), name.clone()));
    tasks.spawn(server::run(shared, listener));
    info!(%address, %name, "machines at the edge are listened for");
    Ok(address)
}

/// Runs the heartbeat until shutdown.
async fn beat(state: Arc<State>, shutdown: CancellationToken) {
    let every = state.settings.edge.heartbeat.as_duration();
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = state.edge.pulse.run(every) => {}
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
    let revoked: Revoked = Arc::new(move |serial: &str| machines.is_revoked(serial));
    state.edge.asker.renew(&credentials, revoked)?;
    let machines = Arc::clone(&state.edge.machines);
    let count = state.metrics.edge.refused.with_label_values(&["revoked"]);
    let removed: Removed = Arc::new(move |facts| {
        let removed = machines.is_revoked(&facts.serial);
        if removed {
            count.inc();
            machines.tell_of_removed(&facts.identity, fdn_service::now());
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
