//! The settings of each component of the embedded network: their defaults, and what follows from the plan and the data directory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use fdn_controller::settings::ClientLocation;
use fdn_core::{ByteSize, ClientPrefix, Digest, DurationMs, ErrorCode};
use fdn_dns::settings::NameServer;
use fdn_edge_agent::join::Identity;
use fdn_edge_agent::settings::ContainerNetwork;
use fdn_link::ControllerLinkSettings;
use url::Url;

use super::engine::Engine;
use super::plan::{NodePlan, Plan};
use crate::error::CliError;

/// The name of the first user.
pub const ADMIN: &str = "admin";
/// The number of digits of the path's digest that distinguish the containers of this network from those of others.
const SCOPE: usize = 16;
/// The least memory of a node for functions in MiB, however many nodes share the machine: enough for a few.
const NODE_MEMORY_MIB: u64 = 256;
/// The locations of clients with documentation addresses, so that the network can be tried from one machine (RFC 5737,
/// RFC 3849): Paris, New York, Singapore.
const CLIENTS: [(&str, f64, f64); 6] = [
    ("192.0.2.0/24", 48.86, 2.35),
    ("198.51.100.0/24", 40.71, -74.01),
    ("203.0.113.0/24", 1.35, 103.82),
    ("2001:db8:1::/48", 48.86, 2.35),
    ("2001:db8:2::/48", 40.71, -74.01),
    ("2001:db8:3::/48", 1.35, 103.82),
];

/// The paths of the network's files in its data directory.
#[derive(Clone, Debug)]
pub struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// The layout in a data directory.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The token with which the network's processes authenticate to each other.
    #[must_use]
    pub fn network_token(&self) -> PathBuf {
        self.folder.join("network.token")
    }

    /// The key that seals secrets.
    #[must_use]
    pub fn network_key(&self) -> PathBuf {
        self.folder.join("network.key")
    }

    /// The file of the first user's password.
    #[must_use]
    pub fn admin_password(&self) -> PathBuf {
        self.folder.join("admin.password")
    }

    fn database(&self) -> PathBuf {
        self.folder.join("controller/fdn.db")
    }

    fn artifacts(&self) -> PathBuf {
        self.folder.join("controller/artifacts")
    }

    fn uploads(&self) -> PathBuf {
        self.folder.join("controller/uploads")
    }

    fn dns(&self) -> PathBuf {
        self.folder.join("dns")
    }

    /// A join token, while machines join.
    pub(super) fn join_token(&self) -> PathBuf {
        self.folder.join("join.token")
    }

    pub(super) fn node(&self, node: &NodePlan) -> PathBuf {
        self.folder.join("nodes").join(node.node.as_str())
    }

    /// Creates the folders and, at the first start, the token and the key.
    ///
    /// # Errors
    /// When the data directory cannot be written.
    pub fn prepare(&self) -> Result<(), CliError> {
        for folder in [self.artifacts(), self.uploads(), self.dns()] {
            std::fs::create_dir_all(&folder).map_err(|e| CliError::File {
                path: folder,
                reason: e.to_string(),
                code: ErrorCode::DataDirectory,
            })?;
        }
        fdn_service::secret::read_or_create(&self.network_token())?;
        fdn_service::secret::read_or_create(&self.network_key())?;
        Ok(())
    }
}

/// The controller's settings.
///
/// # Errors
/// When the data directory's path cannot be part of a database URL.
pub fn controller(plan: &Plan, layout: &Layout) -> Result<fdn_controller::Settings, CliError> {
    let mut settings = fdn_controller::Settings {
        listen: plan.listen,
        zone: plan.zone.clone(),
        dns: Some(plan.dns),
        gateway_port: plan.gateway_port,
        ..Default::default()
    };
    settings.network.token_file = layout.network_token();
    settings.network.key_file = layout.network_key();
    // Any free port: only the components of this process connect to it.
    settings.edge.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.database.url = sqlite_url(&layout.database())?;
    settings.artifacts.local = layout.artifacts();
    settings.uploads.folder = Some(layout.uploads());
    settings.accounts.admin = ADMIN.to_owned();
    // Somebody waits for this process to end.
    settings.jobs.stop_grace = DurationMs::from_secs(8);
    settings.accounts.initial_password_file = Some(layout.admin_password());
    settings.geo.locations = CLIENTS
        .iter()
        .map(|(prefix, lat, lon)| {
            Ok(ClientLocation {
                prefix: prefix.parse()?,
                lat: *lat,
                lon: *lon,
            })
        })
        .collect::<Result<_, CliError>>()?;
    Ok(settings)
}

/// A path in a database URL, with special characters escaped.
fn sqlite_url(path: &Path) -> Result<String, CliError> {
    let file = Url::from_file_path(path).map_err(|()| CliError::File {
        path: path.to_owned(),
        reason: "it is not an absolute path".to_owned(),
        code: ErrorCode::DataDirectory,
    })?;
    Ok(format!("sqlite://{}", file.path()))
}

/// The DNS server's settings.
#[must_use]
pub fn dns(plan: &Plan, layout: &Layout, edge: SocketAddr) -> fdn_dns::Settings {
    let mut settings = fdn_dns::Settings {
        data_dir: layout.dns(),
        listen: vec![plan.dns],
        admin: plan.dns_admin,
        ..Default::default()
    };
    settings.zone.name = plan.zone.clone();
    settings.centre = centre(edge);
    settings.udp.sockets = 1;
    if plan.dns.ip().is_unspecified() {
        // Gateways are on loopback here, and so is DNS, wherever else it listens.
        let address = match plan.dns.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let name = format!("ns1.{}", plan.zone).parse().ok();
        let server = name.map(|name| NameServer {
            name,
            addresses: vec![address],
        });
        settings.zone.servers = server.into_iter().collect();
    }
    settings
}

/// The settings for the only controller. Its restart needs no protection from reconnecting clients.
fn centre(edge: SocketAddr) -> ControllerLinkSettings {
    ControllerLinkSettings {
        controllers: vec![edge.to_string()],
        spread: DurationMs::from_millis(0),
        retry_first: DurationMs::from_millis(100),
        retry_max: DurationMs::from_secs(1),
        ..ControllerLinkSettings::default()
    }
}

/// A node's settings.
#[must_use]
pub fn agent(
    node: &NodePlan,
    layout: &Layout,
    controller: &Url,
    edge: SocketAddr,
) -> fdn_edge_agent::Settings {
    let identity = Identity::below(&layout.node(node));
    let mut settings = fdn_edge_agent::Settings {
        node: node.node.clone(),
        cluster: node.cluster.clone(),
        region: node.region.clone(),
        location: node.location,
        data: layout.node(node),
        ..Default::default()
    };
    settings.gateway.listen = node.gateway;
    settings.admin.listen = node.admin;
    settings.controller.url = controller.as_str().trim_end_matches('/').to_owned();
    settings.centre = centre(edge);
    settings.network.token_file = identity.token;
    settings.tls.ca = Some(identity.ca);
    settings.tls.certificate = Some(identity.certificate);
    settings.tls.key = Some(identity.key);
    // Regions call each other's stages on this machine only; the port is any free one, and is reported to the others.
    settings.workflows.enabled = true;
    settings.workflows.listen = SocketAddr::new(node.gateway.ip(), 0);
    // The latency between regions follows from their locations, not from the loopback interface.
    settings.reports.links = 0;
    if node.gateway.ip().is_loopback() {
        // Users of this network may use this machine anyway: functions are tested against services on it.
        let loopback = [
            (IpAddr::from(Ipv4Addr::LOCALHOST), 8),
            (IpAddr::from(Ipv6Addr::LOCALHOST), 128),
        ];
        settings.runtime.private_networks = loopback
            .map(|(address, length)| ClientPrefix::new(address, length))
            .into();
    }
    // All nodes share one disk.
    settings.cache.size = ByteSize::from_mib(1024);
    // Nodes on the same machine must not each report its GPUs as theirs.
    settings.devices.enabled = false;
    // There is no need to announce the drain: DNS stops at the same time. Running calls still finish.
    settings.stop.drain = DurationMs::from_millis(0);
    settings.stop.grace = DurationMs::from_secs(3);
    settings
}

/// Lets a node run container images on this machine's engine, as one of `nodes` nodes that share both.
pub fn add_engine(
    settings: &mut fdn_edge_agent::Settings,
    engine: &Engine,
    layout: &Layout,
    nodes: usize,
) {
    let docker = &mut settings.docker;
    docker.enabled = true;
    docker.socket.clone_from(&engine.socket);
    if !engine.isolates {
        // Whoever starts this network also deploys to it: these are the user's own functions.
        docker.network = ContainerNetwork::Bridge;
        docker.trusted = true;
    }
    // Another network on this machine may have nodes with the same names.
    let folder = layout.folder.as_os_str().as_encoded_bytes();
    docker.scope = Some(Digest::of(folder).hex()[..SCOPE].to_owned());
    // After the network is stopped, nothing of it should keep running; and no idle containers are kept ready per node.
    docker.outlive_agent = false;
    docker.ahead = 0;
    // Containers keep the memory that they are given: no node may promise memory that another one has promised.
    let all = settings.capacity.resolve().memory_mib.get();
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX).max(1);
    settings.capacity.memory = ByteSize::from_mib((all / nodes).max(NODE_MEMORY_MIB));
    // The other nodes of a region share the engine, so asking them for room would be useless: `peers` stays off.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_survives_in_the_databases_address() {
        let url = sqlite_url(Path::new("/a b/fdn.db")).expect("url");
        assert_eq!(url, "sqlite:///a%20b/fdn.db");
        assert!(sqlite_url(Path::new("relative")).is_err());
    }

    #[test]
    fn nodes_that_share_an_engine_share_the_memory_and_are_told_from_those_of_other_networks() {
        let engine = Engine {
            socket: "/run/docker.sock".into(),
            isolates: false,
        };
        let with = |folder: &str, nodes| {
            let mut settings = fdn_edge_agent::Settings::default();
            settings.capacity.memory = ByteSize::from_mib(6000);
            let layout = Layout::of(Path::new(folder));
            add_engine(&mut settings, &engine, &layout, nodes);
            settings.check().expect("it can work");
            settings
        };
        let (one, other) = (with("/a", 6), with("/b", 6));
        assert_eq!(one.capacity.memory, ByteSize::from_mib(1000));
        assert_eq!(with("/a", 60).capacity.memory, ByteSize::from_mib(256));
        assert_ne!(one.docker.scope, other.docker.scope);
        assert_eq!(one.docker.scope, with("/a", 6).docker.scope);
        assert_eq!(one.docker.network, ContainerNetwork::Bridge);
        assert!(one.docker.trusted, "the user's own functions");
        assert!(one.docker.enabled && !one.docker.outlive_agent && !one.peers.enabled);
    }
}
