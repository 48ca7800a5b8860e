//! The state that queries are answered from. It is replaced as a whole, never changed in place.
//!
//! There are two pointers: the names with their bindings, and the clusters with their health. They change at different rates and hold no
//! indexes into each other. Readers load a pointer without blocking; the mutex here serializes the writers, and no query locks it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use fdn_core::ClusterId;
use hickory_proto::rr::RData;
use prometheus::IntCounter;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::policy::fleet::{Fleet, Network, Share};
use crate::policy::nearest_clusters::Locate;
use crate::policy::zone::Names;

/// The clusters, and a counter of answers for each.
#[derive(Debug, Default)]
pub struct Serving {
    /// The clusters.
    pub fleet: Fleet,
    /// The counter of answers that named each cluster, in the fleet's order.
    pub answers: Vec<IntCounter>,
}

/// The results of the health checks and of load shedding.
#[derive(Debug, Default)]
struct GatewayState {
    /// Gateways that fail their checks.
    down: BTreeSet<SocketAddr>,
    /// The loads that gateways reported with their last successful check.
    loads: BTreeMap<SocketAddr, f64>,
    /// The share of its clients that each cluster sends elsewhere.
    shares: BTreeMap<ClusterId, Share>,
}

/// The state that is published now.
pub struct Published {
    names: ArcSwap<Names>,
    serving: ArcSwap<Serving>,
    locate: Option<Box<dyn Locate>>,
    /// What is known of the gateways. Only writers lock this.
    gateways: Mutex<GatewayState>,
    networks: watch::Sender<Arc<Network>>,
    /// The zone's serial number.
    serials: watch::Sender<u32>,
    metrics: Arc<Metrics>,
}

impl Published {
    /// Starts with these names and no clusters.
    #[must_use]
    pub fn new(names: Names, locate: Option<Box<dyn Locate>>, metrics: Arc<Metrics>) -> Self {
        Self {
            serials: watch::Sender::new(serial(&names)),
            names: ArcSwap::from_pointee(names),
            serving: ArcSwap::from_pointee(Serving::default()),
            locate,
            gateways: Mutex::default(),
            networks: watch::Sender::new(Arc::default()),
            metrics,
        }
    }

    /// The published names.
    #[must_use]
    pub fn names(&self) -> Guard<Arc<Names>> {
        self.names.load()
    }

    /// The published clusters.
    #[must_use]
    pub fn serving(&self) -> Guard<Arc<Serving>> {
        self.serving.load()
    }

    /// The geographic database, if there is one.
    #[must_use]
    pub fn locate(&self) -> Option<&dyn Locate> {
        self.locate.as_deref()
    }

    /// A receiver of every change of the network, for its health checks.
    #[must_use]
    pub fn networks(&self) -> watch::Receiver<Arc<Network>> {
        self.networks.subscribe()
    }

    /// A receiver of every change of the zone's serial number.
    #[must_use]
    pub fn serials(&self) -> watch::Receiver<u32> {
        self.serials.subscribe()
    }

    /// Replaces the names, and returns the previous ones. Dropping the last reference frees their tables, which should not happen on a
    /// thread that answers queries.
    pub fn set_names(&self, names: Names) -> Arc<Names> {
        let next = serial(&names);
        let before = self.names.swap(Arc::new(names));
        self.serials.send_if_modified(|held| {
            let changed = *held != next;
            *held = next;
            changed
        });
        before
    }

    /// Replaces the network; gateways keep their health.
    pub fn set_network(&self, network: Arc<Network>) {
        let mut gateways = self.gateways();
        let present: BTreeSet<SocketAddr> =
            network.gateways().map(|(_, gateway, _)| gateway).collect();
        gateways.down.retain(|gateway| present.contains(gateway));
        gateways
            .loads
            .retain(|gateway, _| present.contains(gateway));
        self.metrics.forget_all_except(&network);
        self.refresh(Arc::clone(&network), &gateways);
        self.networks.send_replace(network);
    }

    /// Records whether a gateway passes its checks; what is known already changes nothing.
    pub fn set_health(&self, gateway: SocketAddr, up: bool) {
        let mut gateways = self.gateways();
        let changed = if up {
            gateways.down.remove(&gateway)
        } else {
            // The load of a gateway that does not answer is unknown.
            gateways.loads.remove(&gateway);
            gateways.down.insert(gateway)
        };
        if changed {
            let network = Arc::clone(self.serving.load().fleet.network());
            self.refresh(network, &gateways);
        }
    }

    /// Records the load that a gateway reported; `None` if it reported none.
    pub fn set_load(&self, gateway: SocketAddr, load: Option<f64>) {
        let mut gateways = self.gateways();
        match load {
            Some(load) => drop(gateways.loads.insert(gateway, load)),
            None => drop(gateways.loads.remove(&gateway)),
        }
    }

    /// The loads that gateways reported.
    #[must_use]
    pub fn loads(&self) -> BTreeMap<SocketAddr, f64> {
        self.gateways().loads.clone()
    }

    /// Replaces the share of its clients that each cluster sends elsewhere.
    pub fn set_shares(&self, shares: BTreeMap<ClusterId, Share>) {
        let mut gateways = self.gateways();
        if gateways.shares != shares {
            gateways.shares = shares;
            let network = Arc::clone(self.serving.load().fleet.network());
            self.refresh(network, &gateways);
        }
    }

    /// The gateways that fail their checks now.
    #[must_use]
    pub fn dead_gateways(&self) -> BTreeSet<SocketAddr> {
        self.gateways().down.clone()
    }

    fn gateways(&self) -> MutexGuard<'_, GatewayState> {
        // Each field is valid after every single change, so a panic elsewhere cannot have left it half changed.
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, network: Arc<Network>, gateways: &GatewayState) {
        let answers = network
            .clusters()
            .iter()
            .map(|spec| self.metrics.answers(&spec.cluster))
            .collect();
        self.serving.store(Arc::new(Serving {
            fleet: Fleet::new(network, &gateways.down).shedding(&gateways.shares),
            answers,
        }));
    }
}

/// The zone's serial number.
fn serial(names: &Names) -> u32 {
    match &names.negative().data {
        RData::SOA(soa) => soa.serial,
        _ => 0,
    }
}
