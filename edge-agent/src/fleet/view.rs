//! What operators said, ready to be looked up.

use std::collections::BTreeSet;

use fdn_core::fleet::FleetDesired;
use fdn_core::{NodeId, Revision};

/// Whether a node may take new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It may.
    Taken,
    /// An operator drains it.
    Cordoned,
    /// An operator removed it.
    Removed,
}

/// One state of what operators said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    revision: Revision,
    serial: Option<String>,
    work: Work,
    cordoned: BTreeSet<NodeId>,
    revoked: BTreeSet<String>,
    authorities: Vec<String>,
}

impl FleetView {
    /// What `desired` says to `node`, whose certificate has this serial number.
    #[must_use]
    pub fn new(node: &NodeId, serial: Option<String>, desired: FleetDesired) -> Self {
        let revoked = desired.revoked.into_iter().map(|one| one.serial).collect();
        let mut view = Self {
            revision: desired.revision,
            serial: None,
            work: Work::Taken,
            cordoned: desired.cordoned,
            revoked,
            authorities: desired.authorities,
        };
        view.decide(node, serial);
        view
    }

    /// The same for another certificate of the node.
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

    /// The version of this state.
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

    /// Whether another node is to take no new work.
    #[must_use]
    pub fn is_cordoned(&self, node: &NodeId) -> bool {
        self.cordoned.contains(node)
    }

    /// Whether a certificate no longer counts although it has not ended: for whoever checks a peer.
    #[must_use]
    pub fn is_revoked(&self, serial: &str) -> bool {
        self.revoked.contains(serial)
    }

    /// The certificates (PEM) that peers are checked against.
    #[must_use]
    pub fn authorities(&self) -> &[String] {
        &self.authorities
    }
}
