//! The state that queries are answered from, swapped as a whole, never changed in place.
//!
//! Two pointers: the names with their bindings, and the clusters with their health. They change at different paces and hold no
//! indexes into one another. Readers load a pointer and go on; the mutex here orders those who write, and no query touches it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use prometheus::IntCounter;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::policy::atlas::Locate;
use crate::policy::fleet::{Fleet, Network};
use crate::policy::zone::Names;

/// The clusters, and beside each its counter of answers.
#[derive(Debug, Default)]
pub struct Serving {
    /// The clusters.
    pub fleet: Fleet,
    /// Answers that named each cluster, in the fleet's order.
    pub answers: Vec<IntCounter>,
}

/// What is published at this moment.
pub struct Published {
    names: ArcSwap<Names>,
    serving: ArcSwap<Serving>,
    locate: Option<Box<dyn Locate>>,
    /// Gateways that fail their checks. Only writers lock this.
    down: Mutex<BTreeSet<SocketAddr>>,
    networks: watch::Sender<Arc<Network>>,
    metrics: Arc<Metrics>,
}

impl Published {
    /// Begins with these names and no clusters.
    #[must_use]
    pub fn new(names: Names, locate: Option<Box<dyn Locate>>, metrics: Arc<Metrics>) -> Self {
        Self {
            names: ArcSwap::from_pointee(names),
            serving: ArcSwap::from_pointee(Serving::default()),
            locate,
            down: Mutex::default(),
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

    /// Replaces the names.
    pub fn set_names(&self, names: Names) {
        self.names.store(Arc::new(names));
    }

    /// Replaces the network; gateways keep the health they had.
    pub fn set_network(&self, network: Arc<Network>) {
        let mut down = self.down();
        let present: BTreeSet<SocketAddr> =
            network.gateways().map(|(_, gateway, _)| gateway).collect();
        down.retain(|gateway| present.contains(gateway));
        self.metrics.forget_all_except(&network);
        self.refresh(Arc::clone(&network), &down);
        self.networks.send_replace(network);
    }

    /// Records that a gateway passes its checks, or that it does not.
    pub fn set_health(&self, gateway: SocketAddr, up: bool) {
        let mut down = self.down();
        let changed = if up {
            down.remove(&gateway)
        } else {
            down.insert(gateway)
        };
        if changed {
            let network = Arc::clone(self.serving.load().fleet.network());
            self.refresh(network, &down);
        }
    }

    /// Gateways that fail their checks now.
    #[must_use]
    pub fn dead_gateways(&self) -> BTreeSet<SocketAddr> {
        self.down().clone()
    }

    fn down(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        // The set is valid after every single change, so a panic elsewhere cannot have left it half changed.
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, network: Arc<Network>, down: &BTreeSet<SocketAddr>) {
        let answers = network
            .clusters()
            .iter()
            .map(|spec| self.metrics.answers(&spec.cluster))
            .collect();
        self.serving.store(Arc::new(Serving {
            fleet: Fleet::new(network, down),
            answers,
        }));
    }
}
