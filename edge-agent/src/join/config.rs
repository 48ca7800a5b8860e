//! The configuration file that a new node starts with.

use std::path::{Path, PathBuf};

use fdn_core::enrol::{EnrolResponse, NodeAddresses};
use fdn_core::{ClusterId, NodeId};
use fdn_link::join::controllers;
use serde::Serialize;

use super::{Controller, Identity, JoinArgs, JoinError};
use crate::disk;
use crate::error::Error;
use crate::settings::Settings;

/// The keys that a node must set; all others have defaults.
#[derive(Serialize)]
struct Document<'a> {
    node: &'a NodeId,
    cluster: &'a ClusterId,
    region: &'a fdn_core::RegionName,
    location: fdn_core::GeoPoint,
    data: &'a Path,
    gateway: Listener,
    admin: Listener,
    controller: Url,
    centre: ControllerLink<'a>,
    network: Network<'a>,
    tls: Tls<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Peers>,
    workflows: Workflows,
}

#[derive(Serialize)]
struct Workflows {
    enabled: bool,
    listen: std::net::SocketAddr,
}

#[derive(Serialize)]
struct Peers {
    enabled: bool,
    cluster: PeerCluster,
}

#[derive(Serialize)]
struct PeerCluster {
    listen: std::net::SocketAddr,
    seeds: Vec<std::net::SocketAddr>,
}

#[derive(Serialize)]
struct Listener {
    listen: std::net::SocketAddr,
}

#[derive(Serialize)]
struct Url {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Network<'a> {
    token_file: &'a Path,
}

#[derive(Serialize)]
struct ControllerLink<'a> {
    controllers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<&'a str>,
}

#[derive(Serialize)]
struct Tls<'a> {
    ca: &'a Path,
    certificate: &'a Path,
    key: &'a Path,
}

const HEADER: &str = "\
# Written by `fdn-edge-agent join`. Edit it as you like: joining again keeps it.
# deploy/config/edge-agent.toml explains every key and its default.

";

/// Refuses an existing configuration file of another node, because that one is still needed.
pub(super) fn check(path: &Path, node: &NodeId, cluster: Option<&ClusterId>) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    let found: Settings = fdn_service::config::load(Some(path), &[])?;
    if found.node == *node && cluster.is_none_or(|cluster| found.cluster == *cluster) {
        return Ok(());
    }
    Err(JoinError::Config {
        path: path.to_owned(),
        found: format!("node {} in cluster {}", found.node, found.cluster),
    }
    .into())
}

/// Returns the file of the authorities of the controllers' API, unless the configuration names it.
pub(super) fn unnamed(path: &Path, api_ca: Option<PathBuf>) -> Result<Option<PathBuf>, Error> {
    let Some(api_ca) = api_ca else {
        return Ok(None);
    };
    let found: Settings = fdn_service::config::load(Some(path), &[])?;
    let named = found.controller.ca_file.as_ref() == Some(&api_ca);
    Ok((!named).then_some(api_ca))
}

/// Writes the configuration file, unless there is one for this node.
pub(super) fn write(
    args: &JoinArgs,
    (controller, api_ca): (&Controller, Option<PathBuf>),
    identity: &Identity,
    addresses: &NodeAddresses,
    answer: &EnrolResponse,
) -> Result<(), Error> {
    check(&args.config, &answer.node, Some(&answer.cluster))?;
    if args.config.exists() {
        return Ok(());
    }
    let document = Document {
        node: &answer.node,
        cluster: &answer.cluster,
        region: &answer.region,
        location: answer.location,
        data: &args.data,
        gateway: Listener {
            listen: addresses.gateway,
        },
        admin: Listener {
            listen: addresses.admin,
        },
        controller: Url {
            url: controller.url(),
            ca_file: api_ca,
        },
        centre: ControllerLink {
            controllers: controllers(answer, &controller.host_and_port().0),
            proxy: args.proxy.as_deref(),
        },
        network: Network {
            token_file: &identity.token,
        },
        tls: Tls {
            ca: &identity.ca,
            certificate: &identity.certificate,
            key: &identity.key,
        },
        peers: addresses.peer.map(|listen| Peers {
            enabled: true,
            cluster: PeerCluster {
                listen,
                seeds: answer
                    .seeds
                    .iter()
                    .filter_map(|seed| seed.addresses.peer)
                    .collect(),
            },
        }),
        workflows: Workflows {
            enabled: args.stage_port.is_some(),
            listen: std::net::SocketAddr::new(
                addresses.gateway.ip(),
                args.stage_port.unwrap_or(args.controller_port),
            ),
        },
    };
    let text = fdn_service::config::print(&document)?;
    if let Some(folder) = args.config.parent().filter(|folder| !folder.exists()) {
        std::fs::create_dir_all(folder).map_err(|source| Error::Data {
            path: folder.to_owned(),
            source,
        })?;
    }
    Ok(disk::replace_public(
        &args.config,
        (HEADER.to_owned() + &text).as_bytes(),
    )?)
}
