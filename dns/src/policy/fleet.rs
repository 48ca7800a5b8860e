//! The clusters as answers need them: which addresses each has, and which of them pass their health checks.
//!
//! A [`Network`] is built when the controller changes it; a [`Fleet`] is a network seen through the health of this moment, and is
//! the only thing that a change of health rebuilds. Bindings name clusters, never addresses, so they are not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fdn_core::ClusterId;
use fdn_core::message::{ClusterSpec, NetworkDesired};

use super::atlas::Atlas;

/// Which kind of address is asked for.
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

/// The clusters and the latency map, as the controller last described them.
#[derive(Debug, Default)]
pub struct Network {
    clusters: Vec<ClusterSpec>,
    by_id: BTreeMap<ClusterId, usize>,
    /// How far the clusters are from whom.
    pub atlas: Atlas,
}

impl Network {
    /// Builds tables from the controller's description. A cluster listed twice counts once.
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
        let atlas = Atlas::new(&clusters, &desired.locations, &desired.measured);
        Self {
            clusters,
            by_id,
            atlas,
        }
    }

    /// The clusters, by name.
    #[must_use]
    pub fn clusters(&self) -> &[ClusterSpec] {
        &self.clusters
    }

    /// Every gateway with the place where it tells its health, if it has one.
    pub fn gateways(&self) -> impl Iterator<Item = (&ClusterId, SocketAddr, Option<SocketAddr>)> {
        self.clusters.iter().flat_map(|spec| {
            spec.gateways
                .iter()
                .enumerate()
                .map(|(i, gateway)| (&spec.cluster, *gateway, spec.health.get(i).copied()))
        })
    }
}

/// One cluster's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    all: [Vec<IpAddr>; 2],
    live: [Vec<IpAddr>; 2],
}

impl Addresses {
    /// Addresses of the gateways that pass their checks.
    #[must_use]
    pub fn live(&self, family: Family) -> &[IpAddr] {
        &self.live[family as usize]
    }

    /// Addresses of all gateways.
    #[must_use]
    pub fn all(&self, family: Family) -> &[IpAddr] {
        &self.all[family as usize]
    }
}

/// A network seen through the health of this moment.
#[derive(Debug, Default)]
pub struct Fleet {
    network: Arc<Network>,
    clusters: Vec<Addresses>,
    live: [bool; 2],
    any: [bool; 2],
}

impl Fleet {
    /// The network with the gateways in `down` taken out. A gateway that nobody has checked yet counts as alive.
    #[must_use]
    pub fn new(network: Arc<Network>, down: &BTreeSet<SocketAddr>) -> Self {
        let families = [Family::V4, Family::V6];
        let addresses = |spec: &ClusterSpec, family: Family, live_only: bool| {
            let mut out: Vec<IpAddr> = Vec::new();
            for gateway in &spec.gateways {
                let addr = gateway.ip().to_canonical();
                if family.has(addr)
                    && !(live_only && down.contains(gateway))
                    && !out.contains(&addr)
                {
                    out.push(addr);
                }
            }
            out
        };
        let clusters: Vec<Addresses> = network
            .clusters
            .iter()
            .map(|spec| Addresses {
                all: families.map(|family| addresses(spec, family, false)),
                live: families.map(|family| addresses(spec, family, true)),
            })
            .collect();
        let live = families.map(|family| clusters.iter().any(|c| !c.live(family).is_empty()));
        let any = families.map(|family| clusters.iter().any(|c| !c.all(family).is_empty()));
        Self {
            network,
            clusters,
            live,
            any,
        }
    }

    /// The network.
    #[must_use]
    pub const fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// How many clusters there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Whether there are none.
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

    /// Where the cluster of this name stands, if it exists.
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
