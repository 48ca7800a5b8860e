//! Where this machine is to others.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

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

/// Where others reach this machine.
pub(super) fn addresses(args: &JoinArgs, controller: &Controller) -> Result<NodeAddresses, Error> {
    let ip = match args.address {
        Some(ip) => ip,
        None => towards(controller)?,
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

/// The address that packets to the controller leave from. Nothing is sent: connecting a datagram socket only looks the way up.
fn towards(controller: &Controller) -> Result<IpAddr, JoinError> {
    let (host, port) = controller.host_and_port();
    let unreachable = |reason: String| JoinError::Unreachable {
        url: controller.url(),
        reason,
    };
    let found = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|e| unreachable(e.to_string()))?;
    let mut last = "its name has no address".to_owned();
    for address in found {
        let any: SocketAddr = if address.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0u16; 8], 0).into()
        };
        let way = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match way {
            Ok(local) => return Ok(local.ip()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(unreachable(last))
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

    #[test]
    fn the_way_to_the_controller_says_who_we_are() {
        let controller = Controller::new("http://127.0.0.1:9").expect("an address");
        assert_eq!(
            towards(&controller).expect("loopback"),
            IpAddr::from([127, 0, 0, 1])
        );
    }
}
