//! The state that queries are answered from, swapped as a whole, never changed in place.
//!
//! Two pointers: the names with their bindings, and the clusters with their health. They change at different paces and hold no
//! indexes into one another. Readers load a pointer and go on; the mutex here orders those who write, and no query touches it.

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

/// The clusters, and beside each its counter of answers.
#[derive(Debug, Default)]
pub struct Serving {
    /// The clusters.
    pub fleet: Fleet,
    /// Answers that named each cluster, in the fleet's order.
    pub answers: Vec<IntCounter>,
}

/// What the checks have found.
#[derive(Debug, Default)]
struct Seen {
    /// Gateways that fail their checks.
    down: BTreeSet<SocketAddr>,
    /// The loads that gateways told with their last check that passed.
    loads: BTreeMap<SocketAddr, f64>,
    /// What clusters give away of their clients.
    shares: BTreeMap<ClusterId, Share>,
}

/// What is published at this moment.
pub struct Published {
    names: ArcSwap<Names>,
    serving: ArcSwap<Serving>,
    locate: Option<Box<dyn Locate>>,
    /// What is known of the gateways. Only writers lock this.
    seen: Mutex<Seen>,
    networks: watch::Sender<Arc<Network>>,
    /// The zone's serial number.
    serials: watch::Sender<u32>,
    metrics: Arc<Metrics>,
}

impl Published {
    /// Begins with these names and no clusters.
    #[must_use]
    pub fn new(names: Names, locate: Option<Box<dyn Locate>>, metrics: Arc<Metrics>) -> Self {
        Self {
            serials: watch::Sender::new(serial(&names)),
            names: ArcSwap::from_pointee(names),
            serving: ArcSwap::from_pointee(Serving::default()),
            locate,
            seen: Mutex::default(),
            networks: watch::Sender::new(Arc::default()),
            metrics,
        }
    }

    /// The names.
    #[must_use]
    pub fn names(&self) -> Guard<Arc<Names>> {
        self.names.load()
    }

    /// The clusters.
    #[must_use]
    pub fn serving(&self) -> Guard<Arc<Serving>> {
        self.serving.load()
    }

    /// The geographic database.
    #[must_use]
    pub fn locate(&self) -> Option<&dyn Locate> {
        self.locate.as_deref()
    }

    /// Tells of every change of the network, for whoever checks its gateways.
    #[must_use]
    pub fn networks(&self) -> watch::Receiver<Arc<Network>> {
        self.networks.subscribe()
    }

    /// Tells of every change of the zone's serial number.
    #[must_use]
    pub fn serials(&self) -> watch::Receiver<u32> {
        self.serials.subscribe()
    }

    /// Replaces the names, and gives back those that were there. Whoever drops the last of them frees their tables: that should be
    /// nobody who answers.
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

    /// Replaces the network; gateways keep the health they had.
    pub fn set_network(&self, network: Arc<Network>) {
        let mut seen = self.seen();
        let present: BTreeSet<SocketAddr> =
            network.gateways().map(|(_, gateway, _)| gateway).collect();
        seen.down.retain(|gateway| present.contains(gateway));
        seen.loads.retain(|gateway, _| present.contains(gateway));
        self.metrics.forget_all_except(&network);
        self.refresh(Arc::clone(&network), &seen);
        self.networks.send_replace(network);
    }

    /// Records that a gateway passes its checks, or that it does not.
    pub fn set_health(&self, gateway: SocketAddr, up: bool) {
        let mut seen = self.seen();
        let changed = if up {
            seen.down.remove(&gateway)
        } else {
            // Nothing is known of the load of what does not answer.
            seen.loads.remove(&gateway);
            seen.down.insert(gateway)
        };
        if changed {
            let network = Arc::clone(self.serving.load().fleet.network());
            self.refresh(network, &seen);
        }
    }

    /// Records what a gateway said of its load, if it did.
    pub fn set_load(&self, gateway: SocketAddr, load: Option<f64>) {
        let mut seen = self.seen();
        match load {
            Some(load) => drop(seen.loads.insert(gateway, load)),
            None => drop(seen.loads.remove(&gateway)),
        }
    }

    /// The loads that gateways told.
    #[must_use]
    pub fn loads(&self) -> BTreeMap<SocketAddr, f64> {
        self.seen().loads.clone()
    }

    /// Replaces what clusters give away of their clients.
    pub fn set_shares(&self, shares: BTreeMap<ClusterId, Share>) {
        let mut seen = self.seen();
        if seen.shares != shares {
            seen.shares = shares;
            let network = Arc::clone(self.serving.load().fleet.network());
            self.refresh(network, &seen);
        }
    }

    /// Gateways that fail their checks now.
    #[must_use]
    pub fn dead_gateways(&self) -> BTreeSet<SocketAddr> {
        self.seen().down.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Each part is valid after every single change, so a panic elsewhere cannot have left it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, network: Arc<Network>, seen: &Seen) {
        let answers = network
            .clusters()
            .iter()
            .map(|spec| self.metrics.answers(&spec.cluster))
            .collect();
        self.serving.store(Arc::new(Serving {
            fleet: Fleet::new(network, &seen.down).shedding(&seen.shares),
            answers,
        }));
    }
}

/// The serial number of the zone.
fn serial(names: &Names) -> u32 {
    match &names.negative().data {
        RData::SOA(soa) => soa.serial,
        _ => 0,
    }
}
