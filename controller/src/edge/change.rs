//! Changes that machines are told of, as they are kept and sent. No I/O.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fdn_core::enrol::{Machine, Role};
use fdn_core::feed::{FeedError, Frame};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{BindingsChanged, BindingsDesired, Holders, NetworkDesired, TxtDesired};
use fdn_core::policy::quota::AppUsed;
use fdn_core::{AppName, ClusterId, Digest, Revision};

use super::view;

/// An app as nodes are told of it.
#[derive(Debug)]
pub struct AppEntry {
    /// The app.
    pub app: AppName,
    /// Its revision.
    pub revision: Revision,
    /// Who is told; nobody of an app that is gone.
    pub holders: Holders,
    /// Its artifacts.
    pub digests: Vec<Digest>,
    /// The frame for those who hold it; of an app that is gone, for those who held it.
    pub frame: Bytes,
    /// The frame for those who held it and do not any more.
    pub gone: Bytes,
    /// Whether it exists.
    pub exists: bool,
}

impl AppEntry {
    /// Whether a cluster is to serve it.
    #[must_use]
    pub fn is_seen_by(&self, cluster: &ClusterId) -> bool {
        self.exists && self.holders.has(cluster)
    }
}

/// Something that changed.
#[derive(Clone, Debug)]
pub enum Change {
    /// An app.
    App(Arc<AppEntry>),
    /// Machines.
    Fleet(Arc<FleetEntry>),
    /// What is used of quotas.
    Used(Arc<Vec<AppUsed>>),
    /// What DNS answers for an app.
    Bindings(Arc<BindingsDesired>),
    /// How that changed.
    BindingsChanged(Arc<BindingsChanged>),
    /// The clusters and the latency map.
    Network(Arc<NetworkDesired>),
    /// Text records of a name.
    Txt(Arc<TxtDesired>),
}

/// Machines, as each of them is told of all.
#[derive(Debug, Default)]
pub struct FleetEntry {
    /// All.
    pub fleet: FleetDesired,
    /// The frame for nodes of whom operators have said nothing: nearly all.
    plain: OnceLock<Bytes>,
}

impl FleetEntry {
    /// Machines of which nobody was told yet.
    #[must_use]
    pub const fn new(fleet: FleetDesired) -> Self {
        Self {
            fleet,
            plain: OnceLock::new(),
        }
    }

    fn frame(&self, machine: &Machine) -> Result<Bytes, FeedError> {
        let fleet = &self.fleet;
        let named = fleet.restored.contains_key(&machine.name) || machine.role == Role::Dns;
        if let Some(plain) = self.plain.get().filter(|_| !named) {
            return Ok(plain.clone());
        }
        let frame: Bytes = Frame::Fleet(view::fleet_for(machine, fleet))
            .encode()?
            .into();
        if !named {
            // Another feed may have been faster, with the same.
            drop(self.plain.set(frame.clone()));
        }
        Ok(frame)
    }
}

/// Whether machines of a role are told of such changes.
#[must_use]
pub const fn is_for(role: Role, change: &Change) -> bool {
    match change {
        Change::Fleet(_) => true,
        Change::App(_) | Change::Used(_) => matches!(role, Role::Node),
        Change::Bindings(_) | Change::BindingsChanged(_) | Change::Network(_) | Change::Txt(_) => {
            matches!(role, Role::Dns)
        }
    }
}

/// The frame of a change that is for a machine.
///
/// # Errors
/// When it cannot be written, which would be a bug.
pub fn encode(machine: &Machine, change: &Change) -> Result<Bytes, FeedError> {
    let frame = match change {
        Change::App(app) => return Ok(app.frame.clone()),
        Change::Fleet(one) => return one.frame(machine),
        Change::Used(used) => Frame::Used(used.to_vec()),
        Change::Bindings(one) => Frame::Bindings((**one).clone()),
        Change::BindingsChanged(one) => Frame::BindingsChanged((**one).clone()),
        Change::Network(one) => Frame::Network((**one).clone()),
        Change::Txt(one) => Frame::Txt((**one).clone()),
    };
    Ok(frame.encode()?.into())
}
