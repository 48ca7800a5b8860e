//! Where the test network's regions and their clients are.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};

use crate::Cli;

/// A region: its name, where it is, and a client subnet that is close to it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its name, which is also its cluster's.
    pub name: &'static str,
    /// Latitude and longitude.
    pub location: (f64, f64),
    /// Clients near it.
    pub subnet: &'static str,
    /// Where those clients are.
    pub clients: (f64, f64),
}

/// Three regions on three continents.
pub const REGIONS: [Region; 3] = [
    Region {
        name: "eu-west",
        location: (53.35, -6.26),
        subnet: "192.0.2.0/24",
        clients: (48.86, 2.35),
    },
    Region {
        name: "us-east",
        location: (39.04, -77.49),
        subnet: "198.51.100.0/24",
        clients: (40.71, -74.01),
    },
    Region {
        name: "ap-south",
        location: (19.08, 72.88),
        subnet: "203.0.113.0/24",
        clients: (1.35, 103.82),
    },
];

/// Makes a cluster of its own region, unless there is one of this name.
pub(crate) fn create_cluster(cli: &Cli, name: &str, (lat, lon): (f64, f64)) -> Result<()> {
    let location = format!("{lat},{lon}");
    let args = ["cluster", "create", name, "--region", name, "--location"];
    let typed = cli.run(args.iter().copied().chain([location.as_str()]));
    ensure!(
        typed.code == 0 || typed.err.contains("FDN-2004"),
        "{}",
        typed.err
    );
    Ok(())
}

/// 127.0.REGION.NODE: on Linux all of 127/8 is this machine.
pub(crate) fn gateway(region: usize, node: usize) -> IpAddr {
    let byte = |n: usize| u8::try_from(n + 1).expect("few regions and nodes");
    IpAddr::V4(Ipv4Addr::new(127, 0, byte(region), byte(node)))
}
