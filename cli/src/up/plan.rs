//! Determines what `fdn up` starts, and on which addresses, before anything is changed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fdn_core::{ClusterId, GeoPoint, HostName, NodeId, RegionName};

use super::args::UpArgs;
use crate::error::CliError;

/// The most nodes that are useful in one process.
const NODES_MAX: usize = 64;

/// A node to start.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Its name: region and number.
    pub node: NodeId,
    /// Its cluster: one per region, with the same name.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Its location.
    pub location: GeoPoint,
    /// The address of its gateway.
    pub gateway: SocketAddr,
    /// The address of its admin listener.
    pub admin: SocketAddr,
}

/// Everything to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The zone of the apps' host names.
    pub zone: HostName,
    /// The address of API and console.
    pub listen: SocketAddr,
    /// The address of DNS.
    pub dns: SocketAddr,
    /// The address of health and metrics of DNS.
    pub dns_admin: SocketAddr,
    /// The port of all gateways.
    pub gateway_port: u16,
    /// The number of nodes per region.
    pub nodes_per_region: u8,
    /// All nodes, grouped by region.
    pub nodes: Vec<NodePlan>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: SocketAddr,
    /// The flag that changes it.
    pub flag: &'static str,
    /// Whether UDP is needed too.
    pub udp: bool,
}

impl Plan {
    /// Creates the plan.
    ///
    /// # Errors
    /// When two regions have the same name, there are too many nodes, or two listeners would have the same address.
    pub fn of(args: &UpArgs) -> Result<Self, CliError> {
        let count = args.regions.len() * usize::from(args.nodes);
        if count > NODES_MAX || args.regions.len() > 254 {
            return Err(CliError::Usage(format!(
                "{count} nodes in one process are too many ({NODES_MAX} at most); use fewer with --nodes or --region"
            )));
        }
        let mut nodes = Vec::new();
        for (region, n) in args.regions.iter().zip(1u8..) {
            for k in 1..=args.nodes {
                let ip = IpAddr::V4(Ipv4Addr::new(127, 0, n, k));
                nodes.push(NodePlan {
                    node: format!("{}-{k}", region.name).parse()?,
                    cluster: region.name.as_str().parse()?,
                    region: region.name.clone(),
                    location: region.location,
                    gateway: SocketAddr::new(ip, args.gateway_port),
                    admin: SocketAddr::new(ip, args.admin_port),
                });
            }
        }
        let plan = Self {
            zone: args.zone.clone(),
            listen: args.listen,
            dns: args.dns,
            dns_admin: args.dns_admin,
            gateway_port: args.gateway_port,
            nodes_per_region: args.nodes,
            nodes,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Every address to listen on, with its flag.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listener> {
        let tcp = |address, flag| Listener {
            address,
            flag,
            udp: false,
        };
        let mut all = vec![
            tcp(self.listen, "--listen"),
            Listener {
                udp: true,
                ..tcp(self.dns, "--dns")
            },
            tcp(self.dns_admin, "--dns-admin"),
        ];
        for node in &self.nodes {
            all.push(tcp(node.gateway, "--gateway-port"));
            all.push(tcp(node.admin, "--admin-port"));
        }
        all
    }

    /// The first node of each region, for the banner.
    pub fn first_nodes(&self) -> impl Iterator<Item = &NodePlan> {
        self.nodes
            .iter()
            .step_by(usize::from(self.nodes_per_region))
    }

    fn check(&self) -> Result<(), CliError> {
        let mut names = BTreeMap::new();
        for node in self.first_nodes() {
            if names.insert(&node.region, ()).is_some() {
                return Err(CliError::Usage(format!(
                    "region {} is given twice",
                    node.region
                )));
            }
        }
        let mut taken: BTreeMap<SocketAddr, &str> = BTreeMap::new();
        for listener in self.listeners() {
            if listener.address.port() == 0 {
                return Err(CliError::Usage(format!(
                    "{} needs a port of its own choice: 0 would change at each start",
                    listener.flag
                )));
            }
            if let Some(other) = taken.insert(listener.address, listener.flag) {
                return Err(CliError::Usage(format!(
                    "{other} and {} both want {}; change one",
                    listener.flag, listener.address
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(flags: &[&str]) -> Result<Plan, CliError> {
        let all = ["fdn", "up"].iter().chain(flags);
        let Command::Up(args) = Cli::try_parse_from(all).expect("arguments").command else {
            panic!("another command")
        };
        Plan::of(&args)
    }

    #[test]
    fn the_defaults_are_the_documented_network() {
        let plan = plan(&[]).expect("plan");
        let nodes: Vec<String> = plan
            .nodes
            .iter()
            .map(|n| format!("{} {} {}", n.node, n.gateway, n.admin))
            .collect();
        assert_eq!(
            nodes,
            [
                "eu-west-1 127.0.1.1:8080 127.0.1.1:8081",
                "eu-west-2 127.0.1.2:8080 127.0.1.2:8081",
                "us-east-1 127.0.2.1:8080 127.0.2.1:8081",
                "us-east-2 127.0.2.2:8080 127.0.2.2:8081",
                "ap-south-1 127.0.3.1:8080 127.0.3.1:8081",
                "ap-south-2 127.0.3.2:8080 127.0.3.2:8081",
            ]
        );
        assert_eq!(plan.listeners().len(), 3 + 12);
    }

    #[test]
    fn regions_given_replace_the_defaults() {
        let plan = plan(&["--region", "south=-33.9,18.4", "--nodes", "1"]).expect("plan");
        assert_eq!(plan.nodes.len(), 1);
        assert_eq!(plan.nodes[0].location.lat(), -33.9);
    }

    #[test]
    fn contradictions_are_named() {
        for (flags, expected) in [
            (
                &["--gateway-port", "8081"][..],
                "--gateway-port and --admin-port",
            ),
            (&["--listen", "127.0.0.1:5300"], "--listen and --dns"),
            (
                &["--region", "a=1,1", "--region", "a=2,2"],
                "region a is given twice",
            ),
            (&["--nodes", "60"], "180 nodes"),
            (&["--dns", "127.0.0.1:0"], "--dns"),
        ] {
            let error = plan(flags).expect_err("contradiction").to_string();
            assert!(error.contains(expected), "{flags:?}: {error}");
        }
    }
}
