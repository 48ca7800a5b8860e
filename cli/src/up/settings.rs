//! The settings of each part of the embedded network: their own defaults, and what follows from the plan and the data directory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use fdn_controller::settings::ClientLocation;
use fdn_core::{ByteSize, ClientPrefix, DurationMs, ErrorCode};
use fdn_dns::settings::NameServer;
use url::Url;

use super::plan::{NodePlan, Plan};
use crate::error::CliError;

/// The first user.
pub const ADMIN: &str = "admin";
/// Where clients with addresses of the documentation are said to be, so that the network can be tried from one machine (RFC 5737,
/// RFC 3849): Paris, New York, Singapore.
const CLIENTS: [(&str, f64, f64); 6] = [
    ("192.0.2.0/24", 48.86, 2.35),
    ("198.51.100.0/24", 40.71, -74.01),
    ("203.0.113.0/24", 1.35, 103.82),
    ("2001:db8:1::/48", 48.86, 2.35),
    ("2001:db8:2::/48", 40.71, -74.01),
    ("2001:db8:3::/48", 1.35, 103.82),
];

/// The files and folders of the network in its data directory.
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

    /// The token that the network's processes show each other.
    #[must_use]
    pub fn network_token(&self) -> PathBuf {
        self.folder.join("network.token")
    }

    /// The key that seals secrets.
    #[must_use]
    pub fn network_key(&self) -> PathBuf {
        self.folder.join("network.key")
    }

    /// The first user's password.
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

    fn node(&self, node: &NodePlan) -> PathBuf {
        self.folder.join("nodes").join(node.node.as_str())
    }

    /// Makes the folders and, at the first start, token and key.
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
/// When the data directory's path cannot stand in the address of a database.
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
    settings.database.url = sqlite_url(&layout.database())?;
    settings.artifacts.local = layout.artifacts();
    settings.uploads.folder = Some(layout.uploads());
    settings.accounts.admin = ADMIN.to_owned();
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

/// A path as it stands in a URL: with spaces and the like escaped.
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
pub fn dns(plan: &Plan, layout: &Layout, controller: &Url) -> fdn_dns::Settings {
    let mut settings = fdn_dns::Settings {
        data_dir: layout.dns(),
        listen: vec![plan.dns],
        admin: plan.dns_admin,
        ..Default::default()
    };
    settings.zone.name = plan.zone.clone();
    settings.network.controller = Some(controller.clone());
    settings.network.token_file = Some(layout.network_token());
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

/// A node's settings.
#[must_use]
pub fn agent(node: &NodePlan, layout: &Layout, controller: &Url) -> fdn_edge_agent::Settings {
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
    settings.network.token_file = layout.network_token();
    settings.network.key_file = layout.network_key();
    // Regions call each other's stages on this machine only; the port is whatever is free, and told to the others.
    settings.workflows.enabled = true;
    settings.workflows.plaintext = true;
    settings.workflows.listen = SocketAddr::new(node.gateway.ip(), 0);
    // And are as far from each other as their places say, not as loopback is.
    settings.reports.links = 0;
    if node.gateway.ip().is_loopback() {
        // Whoever reaches the network may use this machine anyway: functions are tried against what listens on it.
        let loopback = [
            (IpAddr::from(Ipv4Addr::LOCALHOST), 8),
            (IpAddr::from(Ipv6Addr::LOCALHOST), 128),
        ];
        settings.runtime.private_networks = loopback
            .map(|(address, length)| ClientPrefix::new(address, length))
            .into();
    }
    // All nodes share one machine's disk.
    settings.cache.size = ByteSize::from_mib(1024);
    // Six nodes of one machine must not each count its GPUs as theirs.
    settings.devices.enabled = false;
    // Nobody else learns of the drain: DNS stops at the same time. Running calls still end.
    settings.stop.drain = DurationMs::from_millis(0);
    settings.stop.grace = DurationMs::from_secs(3);
    settings
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
}
