//! The operators' decisions, in a form for lookups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fdn_core::fleet::FleetDesired;
use fdn_core::{ClusterId, DeviceId, NodeId, Revision};

/// Whether a node may take new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It may take new work.
    Taken,
    /// An operator drains it: no new work.
    Cordoned,
    /// An operator removed it from the network.
    Removed,
}

/// The operators' decisions at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    revision: Revision,
    serial: Option<String>,
    work: Work,
    cordoned: BTreeSet<NodeId>,
    revoked: BTreeSet<String>,
    authorities: Vec<String>,
    stage_calls: BTreeMap<ClusterId, Vec<SocketAddr>>,
    /// The requests to put devices of this node back into service.
    restored: BTreeMap<DeviceId, Revision>,
}

impl FleetView {
    /// The view of `desired` for `node`, whose certificate has this serial number.
    #[must_use]
    pub fn new(node: &NodeId, serial: Option<String>, mut desired: FleetDesired) -> Self {
        let restored = desired.restored.remove(node).unwrap_or_default();
        let revoked = desired.revoked.into_iter().map(|one| one.serial).collect();
        let mut view = Self {
            revision: desired.revision,
            serial: None,
            work: Work::Taken,
            cordoned: desired.cordoned,
            revoked,
            authorities: desired.authorities,
            stage_calls: desired.stage_calls,
            restored,
        };
        view.decide(node, serial);
        view
    }

    /// The same view with another certificate of the node.
    #[must_use]
    pub fn with_serial(&self, node: &NodeId, serial: String) -> Self {
        let mut view = self.clone();
        view.decide(node, Some(serial));
        view
    }

    fn decide(&mut self, node: &NodeId, serial: Option<String>) {
        let revoked = serial
            .as_ref()
            .is_some_and(|own| self.revoked.contains(own));
        self.work = if revoked {
            Work::Removed
        } else if self.cordoned.contains(node) {
            Work::Cordoned
        } else {
            Work::Taken
        };
        self.serial = serial;
    }

    /// The revision of the decisions.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The serial number of this node's certificate, if it has one.
    #[must_use]
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// Whether this node may take new work.
    #[must_use]
    pub const fn work(&self) -> Work {
        self.work
    }

    /// The devices of this node that an operator put back into service, with the revision of the request.
    #[must_use]
    pub const fn restored(&self) -> &BTreeMap<DeviceId, Revision> {
        &self.restored
    }

    /// Whether a node may take no new work because an operator drains it.
    #[must_use]
    pub fn is_cordoned(&self, node: &NodeId) -> bool {
        self.cordoned.contains(node)
    }

    /// Whether a certificate was revoked; to be asked before a peer is trusted.
    #[must_use]
    pub fn is_revoked(&self, serial: &str) -> bool {
        self.revoked.contains(serial)
    }

    /// The addresses at which the nodes of a cluster accept calls of workflows' stages.
    #[must_use]
    pub fn stage_calls(&self, cluster: &ClusterId) -> &[SocketAddr] {
        self.stage_calls.get(cluster).map_or(&[], Vec::as_slice)
    }

    /// The clusters with nodes that accept calls of workflows' stages, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterId> {
        self.stage_calls.keys()
    }

    /// Whether a node of any cluster accepts stage calls at this address.
    #[must_use]
    pub fn takes_stage_calls(&self, address: &SocketAddr) -> bool {
        self.stage_calls.values().any(|all| all.contains(address))
    }

    /// The certificates (PEM) that peers are verified against.
    #[must_use]
    pub fn authorities(&self) -> &[String] {
        &self.authorities
    }
}
