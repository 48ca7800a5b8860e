//! The addresses and the name of this machine.

use std::net::SocketAddr;

use fdn_core::NodeId;
use fdn_core::enrol::NodeAddresses;

use super::{Controller, JoinArgs, JoinError};
use crate::error::Error;

/// The machine's host name as a node's name: its first label in lower case.
pub(super) fn host_name() -> Result<NodeId, JoinError> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    node_name(&name)
}

fn node_name(host: &str) -> Result<NodeId, JoinError> {
    let label = host.split('.').next().unwrap_or_default();
    label
        .to_ascii_lowercase()
        .parse()
        .map_err(|_| JoinError::HostName(host.to_owned()))
}

/// The addresses at which others reach this machine.
pub(super) fn addresses(args: &JoinArgs, controller: &Controller) -> Result<NodeAddresses, Error> {
    let ip = match args.address {
        Some(ip) => ip,
        None => controller.own_address()?,
    };
    let at = |port| SocketAddr::new(ip, port);
    let addresses = NodeAddresses {
        gateway: at(args.gateway_port),
        admin: at(args.admin_port),
        peer: (!args.no_peers).then(|| at(args.peer_port)),
        names: args.names.clone(),
    };
    addresses
        .check()
        .map_err(|error| Error::Settings(error.to_string()))?;
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_becomes_a_node_name_if_it_can() {
        for (host, node) in [
            ("Edge-7.example.org", Some("edge-7")),
            ("edge", Some("edge")),
            ("my_host", None),
            ("", None),
        ] {
            let found = node_name(host).ok().map(|node| node.to_string());
            assert_eq!(found.as_deref(), node, "{host}");
        }
    }
}
