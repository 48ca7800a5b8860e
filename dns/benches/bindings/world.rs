//! The bindings, and queries for them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use fdn_core::message::{ClusterSpec, NetworkDesired};
use fdn_core::{ClientPrefix, GeoPoint, Revision};

/// The hidden argument that makes this program run as a server.
pub(crate) const CHILD: &str = "__server";
/// The number of clusters.
const CLUSTERS: u32 = 8;

/// The size of the world.
#[derive(Clone, Copy)]
pub(crate) struct World {
    /// The number of apps.
    pub(crate) apps: u32,
    /// The number of bindings per app.
    pub(crate) each: u32,
}

impl World {
    /// A world with this many bindings, distributed evenly.
    pub(crate) fn of(bindings: u32, apps: u32) -> Self {
        let each = bindings / apps;
        assert!(each >= 10, "an app's bindings are changed ten at a time");
        let world = Self { apps, each };
        assert!(
            world.step() > 1,
            "{each} prefixes of an app would be adjacent"
        );
        world
    }

    pub(crate) const fn bindings(self) -> u32 {
        self.each * self.apps
    }

    /// The distance between consecutive prefixes of an app, in /24s: no two are adjacent.
    fn step(self) -> u32 {
        (1 << 24) / self.each.max(60_000)
    }

    /// A prefix of an app: a /24, spread over the address space.
    pub(crate) fn prefix(self, app: u32, index: u32) -> ClientPrefix {
        let block = (index * self.step() + app) & 0x00ff_ffff;
        ClientPrefix::new(Ipv4Addr::from_bits(block << 8).into(), 24)
    }

    /// The cluster of an app's prefix after this many changes.
    #[allow(clippy::unused_self, reason = "it is a property of the world")]
    pub(crate) const fn cluster(self, app: u32, index: u32, round: u32) -> u32 {
        app.wrapping_add(index).wrapping_add(round) % CLUSTERS
    }
}

pub(crate) fn app(app: u32) -> String {
    format!("app-{app}")
}

pub(crate) fn cluster_name(cluster: u32) -> String {
    format!("cluster-{cluster}")
}

/// Cluster `n` has the gateway 127.1.0.n.
pub(crate) fn network() -> NetworkDesired {
    let cluster = |n: u32| ClusterSpec {
        cluster: cluster_name(n).parse().expect("cluster"),
        region: "region".parse().expect("region"),
        location: GeoPoint::new(10.0 + f64::from(n), 20.0).expect("point"),
        gateways: vec![SocketAddr::from((
            Ipv4Addr::from_bits(0x7f01_0000 + n),
            8080,
        ))],
        health: vec![],
        weights: vec![],
    };
    NetworkDesired {
        revision: Revision(1),
        clusters: (0..CLUSTERS).map(cluster).collect(),
        locations: vec![],
        measured: vec![],
    }
}

/// An A query for an app from a client's /24 (RFC 1035, section 4.1; RFC 6891, section 6.1.2; RFC 7871, section 6).
pub(crate) fn query(id: u16, n: u32, client: ClientPrefix) -> Vec<u8> {
    let [i0, i1] = id.to_be_bytes();
    let mut message = vec![i0, i1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in [app(n).as_str(), "fn", "test"] {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message.extend([
        0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0,
    ]);
    let std::net::IpAddr::V4(addr) = client.addr() else {
        panic!("an IPv4 client")
    };
    message.extend(&addr.octets()[..3]);
    message
}

pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("time-out");
    socket
}

/// The cluster that a client is sent to; `None` if there is no answer.
pub(crate) fn ask(
    socket: &UdpSocket,
    server: SocketAddr,
    app: u32,
    client: ClientPrefix,
) -> Option<u32> {
    // Before the server listens, sending results in an error.
    socket.send_to(&query(7, app, client), server).ok()?;
    let mut buffer = [0; 512];
    let (len, _) = socket.recv_from(&mut buffer).ok()?;
    let answers = u16::from_be_bytes([buffer[6], buffer[7]]);
    if answers != 1 {
        return None;
    }
    // The address is at the end of the answer record, followed by the OPT record with the client subnet: 11 and 11 bytes.
    let at = len.checked_sub(22 + 4)?;
    Some(u32::from(buffer[at + 3]))
}
