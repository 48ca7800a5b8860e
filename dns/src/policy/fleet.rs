//! The clusters as needed for answers: their addresses, and which of them pass their health checks.
//!
//! A [`Network`] is built when the controller changes it; a [`Fleet`] is a network combined with the current health, and is
//! the only thing that a change of health rebuilds. Bindings name clusters, never addresses, so they are not affected.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fdn_core::message::{ClusterSpec, NetworkDesired};
use fdn_core::{ClusterId, GatewayWeight};

use super::nearest_clusters::NearestClusters;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

impl Family {
    const fn has(self, addr: IpAddr) -> bool {
        match self {
            Self::V4 => addr.is_ipv4(),
            Self::V6 => addr.is_ipv6(),
        }
    }
}

/// The clusters and the latency map, as last received from the controller.
#[derive(Debug, Default)]
pub struct Network {
    clusters: Vec<ClusterSpec>,
    by_id: HashMap<ClusterId, usize>,
    /// A hash of each cluster's name that is the same on every server, so that all servers shed the same clients.
    salts: Vec<u64>,
    /// The clusters by latency from each client.
    pub nearest: NearestClusters,
}

impl Network {
    /// Builds the tables from the controller's description. If a cluster is listed twice, the last entry wins.
    #[must_use]
    pub fn new(desired: &NetworkDesired) -> Self {
        let by_name: BTreeMap<_, _> = desired
            .clusters
            .iter()
            .map(|spec| (spec.cluster.clone(), spec))
            .collect();
        let clusters: Vec<ClusterSpec> = by_name.into_values().cloned().collect();
        let by_id = clusters
            .iter()
            .enumerate()
            .map(|(index, spec)| (spec.cluster.clone(), index))
            .collect();
        let salts = clusters
            .iter()
            .map(|spec| salt(spec.cluster.as_str()))
            .collect();
        let nearest = NearestClusters::new(&clusters, &desired.locations, &desired.measured);
        Self {
            clusters,
            by_id,
            salts,
            nearest,
        }
    }

    /// The clusters, sorted by name.
    #[must_use]
    pub fn clusters(&self) -> &[ClusterSpec] {
        &self.clusters
    }

    /// Every gateway with its health address, if it has one.
    pub fn gateways(&self) -> impl Iterator<Item = (&ClusterId, SocketAddr, Option<SocketAddr>)> {
        self.clusters.iter().flat_map(|spec| {
            spec.gateways
                .iter()
                .enumerate()
                .map(|(i, gateway)| (&spec.cluster, *gateway, spec.health.get(i).copied()))
        })
    }
}

/// FNV-1a (Fowler, Noll, Vo): good enough to distinguish clusters, and the same in every build.
fn salt(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit affects every output bit.
const fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// 65536 divided by the golden ratio, made odd so that multiplication maps no two turns to the same value (Knuth, The Art of Computer
/// Programming 3, section 6.4).
const GOLDEN: u16 = 40_503;

/// A share of a cluster's clients, in 65536ths.
pub type Share = u16;

/// The addresses of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    all: [Vec<IpAddr>; 2],
    live: [Vec<IpAddr>; 2],
    records: [Vec<u8>; 2],
    /// The cumulative weights of the live addresses.
    weights: [Vec<u32>; 2],
}

/// The encoded address records of an answer, with a TTL of 0 (RFC 1035, section 4.1.3). The owner is a pointer to the name in
/// the question, 12 bytes from the beginning of the message.
fn records(addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::new();
    for addr in addresses {
        let (kind, bytes): (u8, &[u8]) = match addr {
            IpAddr::V4(v4) => (1, &v4.octets()),
            IpAddr::V6(v6) => (28, &v6.octets()),
        };
        let length = u8::try_from(bytes.len()).unwrap_or(0);
        out.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, length]);
        out.extend_from_slice(bytes);
    }
    out
}

impl Addresses {
    /// The offset of the TTL in a record.
    pub const TTL_AT: usize = 6;

    /// The length of a record in bytes.
    #[must_use]
    pub const fn record_size(family: Family) -> usize {
        match family {
            Family::V4 => 12 + 4,
            Family::V6 => 12 + 16,
        }
    }

    /// The encoded records of the gateways that pass their checks, concatenated, with a TTL of 0.
    #[must_use]
    pub fn records(&self, family: Family) -> &[u8] {
        &self.records[family as usize]
    }

    /// The addresses of the gateways that pass their checks.
    #[must_use]
    pub fn live(&self, family: Family) -> &[IpAddr] {
        &self.live[family as usize]
    }

    /// The index of the live gateway that comes first in an answer; 0 if there is none. Over all turns, each gateway comes first in proportion to
    /// its
    /// weight; the others follow in their order.
    ///
    /// A turn is the id of a query. Resolvers choose ids at random (RFC 5452, section 9.2), so each answer is an independent draw; consecutive
    /// ids are distributed as evenly, since multiples of the golden ratio fill an interval without gaps.
    ///
    /// The client deliberately has no influence. An order per client would be valid for fewer clients than the scope says, and so would the set of
    /// gateways where an answer does not name all of them. It would also send everybody behind a resolver without client subnets to one gateway
    /// permanently, so that a large resolver, rather than the weights, would decide a gateway's load.
    #[must_use]
    pub fn first(&self, family: Family, turn: u16) -> usize {
        let sums = &self.weights[family as usize];
        let whole = sums.last().copied().unwrap_or(0);
        let part = (u64::from(turn.wrapping_mul(GOLDEN)) * u64::from(whole)) >> u16::BITS;
        sums.partition_point(|sum| u64::from(*sum) <= part)
    }

    /// The weight of the live gateway at `index`.
    #[must_use]
    pub fn weight(&self, family: Family, index: usize) -> u32 {
        let sums = &self.weights[family as usize];
        let before = index.checked_sub(1).and_then(|before| sums.get(before));
        let sum = sums.get(index).copied().unwrap_or(0);
        sum.saturating_sub(before.copied().unwrap_or(0))
    }

    /// The addresses of all gateways.
    #[must_use]
    pub fn all(&self, family: Family) -> &[IpAddr] {
        &self.all[family as usize]
    }
}

/// A network combined with the current health.
#[derive(Debug, Default)]
pub struct Fleet {
    network: Arc<Network>,
    clusters: Vec<Addresses>,
    /// The share of its clients that each cluster sends elsewhere.
    shed: Vec<Share>,
    live: [bool; 2],
    any: [bool; 2],
}

impl Fleet {
    /// The network without the gateways in `down`. A gateway that was not checked yet counts as alive.
    #[must_use]
    pub fn new(network: Arc<Network>, down: &BTreeSet<SocketAddr>) -> Self {
        let families = [Family::V4, Family::V6];
        let addresses = |spec: &ClusterSpec, family: Family, live_only: bool| {
            let mut out: (Vec<IpAddr>, Vec<u32>) = (Vec::new(), Vec::new());
            for (i, gateway) in spec.gateways.iter().enumerate() {
                let addr = gateway.ip().to_canonical();
                if family.has(addr)
                    && !(live_only && down.contains(gateway))
                    && !out.0.contains(&addr)
                {
                    let weight: GatewayWeight = spec.weights.get(i).copied().unwrap_or_default();
                    let before = out.1.last().copied().unwrap_or(0);
                    out.0.push(addr);
                    out.1.push(before.saturating_add(weight.get().into()));
                }
            }
            out
        };
        let clusters: Vec<Addresses> = network
            .clusters
            .iter()
            .map(|spec| {
                let [(v4, of_v4), (v6, of_v6)] =
                    families.map(|family| addresses(spec, family, true));
                Addresses {
                    all: families.map(|family| addresses(spec, family, false).0),
                    records: [records(&v4), records(&v6)],
                    live: [v4, v6],
                    weights: [of_v4, of_v6],
                }
            })
            .collect();
        let live = families.map(|family| clusters.iter().any(|c| !c.live(family).is_empty()));
        let any = families.map(|family| clusters.iter().any(|c| !c.all(family).is_empty()));
        let shed = vec![0; clusters.len()];
        Self {
            network,
            clusters,
            shed,
            live,
            any,
        }
    }

    /// The same fleet with clusters that send a share of their clients elsewhere.
    #[must_use]
    pub fn shedding(mut self, shares: &BTreeMap<ClusterId, Share>) -> Self {
        for (share, spec) in self.shed.iter_mut().zip(&self.network.clusters) {
            *share = shares.get(&spec.cluster).copied().unwrap_or(0);
        }
        self
    }

    /// Whether the cluster at `index` is overloaded and sends clients elsewhere.
    #[must_use]
    pub fn is_shedding(&self, index: usize) -> bool {
        self.shed.get(index).is_some_and(|share| *share > 0)
    }

    /// Whether the clients of a block, given by the bits of its first address, are among those that the cluster at `index` sends elsewhere.
    ///
    /// A larger share includes all blocks of a smaller one, so that no client goes back and forth while the share grows or shrinks.
    #[must_use]
    pub fn diverts(&self, index: usize, block: u128) -> bool {
        let Some((share, salt)) = self.shed.get(index).zip(self.network.salts.get(index)) else {
            return false;
        };
        // Blocks differ only in the upper half of the bits.
        let upper = u64::try_from(block >> 64).unwrap_or(0);
        mixed(upper ^ salt) >> 48 < u64::from(*share)
    }

    /// The network.
    #[must_use]
    pub const fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The number of clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Whether there are no clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// The addresses of the cluster at `index`.
    ///
    /// # Panics
    /// When `index` did not come from this fleet.
    #[must_use]
    pub fn cluster(&self, index: usize) -> &Addresses {
        &self.clusters[index]
    }

    /// The name of the cluster at `index`.
    ///
    /// # Panics
    /// When `index` did not come from this fleet.
    #[must_use]
    pub fn id(&self, index: usize) -> &ClusterId {
        &self.network.clusters[index].cluster
    }

    /// The index of the cluster with this name, if it exists.
    #[must_use]
    pub fn index_of(&self, id: &ClusterId) -> Option<usize> {
        self.network.by_id.get(id).copied()
    }

    /// Whether any gateway with an address of the family is alive.
    #[must_use]
    pub const fn has_live(&self, family: Family) -> bool {
        self.live[family as usize]
    }

    /// Whether any gateway at all is alive.
    #[must_use]
    pub const fn has_any_live(&self) -> bool {
        self.live[0] || self.live[1]
    }

    /// Whether any gateway has an address of the family.
    #[must_use]
    pub const fn has_address(&self, family: Family) -> bool {
        self.any[family as usize]
    }
}
