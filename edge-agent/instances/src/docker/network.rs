//! How a container is connected, and how the agent reaches it.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bollard::Docker;
use bollard::models::{ContainerInspectResponse, NetworkCreateRequest};
use tokio::sync::OnceCell;

use super::create;
use super::failure;
use super::options::Network;
use crate::error::{RuntimeError, StartError};
use crate::link::{Endpoint, NamespaceConnector};
use crate::runtime::{Kind, Owner};
use crate::spec::{Outbound, StartSpec};

/// The networks of this owner, created when first needed.
#[derive(Debug)]
pub(super) struct Networks {
    owner: Owner,
    mode: Network,
    /// Whether the network may be one through which containers reach this node and more.
    trusted: bool,
    connector: Option<NamespaceConnector>,
    internal: OnceCell<String>,
}

/// The network connection of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// The engine's name of the mode: `none`, `host`, or a network's name.
    pub(super) mode: String,
    /// The port on which the container must listen.
    pub(super) port: u16,
}

impl Networks {
    /// # Errors
    /// When the mode needs a right that this process lacks, or gives containers access that only trusted functions may have.
    pub(super) fn new(owner: Owner, mode: Network, trusted: bool) -> Result<Self, RuntimeError> {
        if mode != Network::Isolated && !trusted {
            return Err(RuntimeError::Unusable {
                kind: Kind::Docker,
                reason: "containers on the networks \"bridge\" and \"host\" reach what this node serves and more: set network = \"isolated\", \
                         or trusted = true where every function that this node is told to run is trusted as the agent itself is"
                    .to_owned(),
            });
        }
        let connector = match mode {
            Network::Isolated => {
                let started = NamespaceConnector::start().map_err(|error| RuntimeError::Unusable {
                    kind: Kind::Docker,
                    reason: format!(
                        "the agent may not enter containers' networks ({error}); give it CAP_SYS_ADMIN, or set network = \"bridge\" if its functions are trusted"
                    ),
                })?;
                Some(started)
            }
            Network::Bridge | Network::Host => None,
        };
        Ok(Self {
            owner,
            mode,
            trusted,
            connector,
            internal: OnceCell::new(),
        })
    }

    /// How a container of this specification is to be connected.
    pub(super) async fn attach(
        &self,
        docker: &Docker,
        spec: &StartSpec,
    ) -> Result<Attachment, StartError> {
        let port = spec.description.port.get();
        let mode = match (&spec.outbound, self.mode) {
            (Outbound::Hosts(_) | Outbound::Open, _) => {
                return Err(StartError::Unsupported {
                    reason: "what a container connects to cannot be kept from inner addresses; allow it nothing"
                        .to_owned(),
                });
            }
            (_, Network::Host) => {
                let port = free_port().map_err(|error| StartError::NoRoom {
                    reason: format!("no free port: {error}"),
                })?;
                let mode = "host".to_owned();
                return Ok(Attachment { mode, port });
            }
            (Outbound::Denied, Network::Bridge) => self.internal(docker).await?,
            (Outbound::Denied, Network::Isolated) => "none".to_owned(),
        };
        Ok(Attachment { mode, port })
    }

    /// The name of the internal bridge, which has no way out.
    async fn internal(&self, docker: &Docker) -> Result<String, RuntimeError> {
        let name = format!("fdn-{}-{}-internal", self.owner.cluster, self.owner.node);
        let made = self
            .internal
            .get_or_try_init(|| make(docker, &self.owner, name));
        made.await.cloned()
    }

    /// The address at which a running container answers.
    pub(super) fn endpoint(
        &self,
        container: &ContainerInspectResponse,
    ) -> Result<Endpoint, RuntimeError> {
        let unusable = |reason: String| RuntimeError::Unusable {
            kind: Kind::Docker,
            reason,
        };
        let mode = container
            .host_config
            .as_ref()
            .and_then(|host| host.network_mode.as_deref())
            .unwrap_or_default();
        let port = port_label(container)
            .ok_or_else(|| unusable("the container lacks the label with its port".to_owned()))?;
        if mode != "none" && !self.trusted {
            // It was created when this was still allowed.
            return Err(unusable(format!(
                "the container is on the network {mode:?}, where functions are not that nobody trusts"
            )));
        }
        match mode {
            "host" => Ok(Endpoint::Address(SocketAddr::from(([127, 0, 0, 1], port)))),
            "none" => {
                let connector = self.connector.clone().ok_or_else(|| {
                    unusable(
                        "the container has no network and this agent may not enter it".to_owned(),
                    )
                })?;
                let namespace = namespace_of(container).map_err(unusable)?;
                Ok(Endpoint::Namespace {
                    namespace: Arc::new(namespace),
                    port,
                    connector,
                })
            }
            _ => address_of(container)
                .map(|ip| Endpoint::Address(SocketAddr::new(ip, port)))
                .ok_or_else(|| unusable("the container has no address".to_owned())),
        }
    }
}

async fn make(docker: &Docker, owner: &Owner, name: String) -> Result<String, RuntimeError> {
    match docker.inspect_network(&name, None).await {
        Ok(_) => return Ok(name),
        Err(error) if failure::status(&error) == Some(404) => {}
        Err(error) => return Err(failure::engine("look for the network", &error)),
    }
    let icc = ("com.docker.network.bridge.enable_icc", "false");
    let request = NetworkCreateRequest {
        name: name.clone(),
        driver: Some("bridge".to_owned()),
        internal: Some(true),
        // Containers of different tenants must not reach each other.
        options: Some([(icc.0.to_owned(), icc.1.to_owned())].into()),
        labels: Some(create::owner_labels(owner)),
        ..NetworkCreateRequest::default()
    };
    match docker.create_network(request).await {
        Ok(_) => Ok(name),
        // Another agent of this owner was faster.
        Err(error) if failure::status(&error) == Some(409) => Ok(name),
        Err(error) => Err(failure::engine("make the network", &error)),
    }
}

/// A port that is free on the loopback now. Used only for the node's own network, where nothing better is possible: another process
/// may take it before the container does, and then the start fails and is retried.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn port_label(container: &ContainerInspectResponse) -> Option<u16> {
    let labels = container.config.as_ref()?.labels.as_ref()?;
    labels.get(create::PORT)?.parse().ok()
}

fn address_of(container: &ContainerInspectResponse) -> Option<IpAddr> {
    let networks = container.network_settings.as_ref()?.networks.as_ref()?;
    let mut addresses: Vec<IpAddr> = networks
        .values()
        .filter_map(|network| network.ip_address.as_deref()?.parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.first().copied()
}

/// The network namespace of a container's first process.
fn namespace_of(container: &ContainerInspectResponse) -> Result<OwnedFd, String> {
    let pid = container.state.as_ref().and_then(|state| state.pid);
    let pid = pid.filter(|pid| *pid > 0).ok_or("it has ended")?;
    let id = container.id.as_deref().unwrap_or_default();
    let namespace = File::open(format!("/proc/{pid}/ns/net"))
        .map_err(|e| format!("cannot see the container's process {pid}: {e}"))?;
    // The process id may have been reused. The kernel says whose it is, after the namespace was opened.
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .map_err(|e| format!("cannot see the container's process {pid}: {e}"))?;
    if id.is_empty() || !groups.contains(id) {
        return Err(format!("process {pid} is not the container's"));
    }
    Ok(namespace.into())
}
