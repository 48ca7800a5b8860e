//! Changes for machines, as the change log keeps and feeds send them. No I/O.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fdn_core::enrol::{Machine, Role};
use fdn_core::feed::{FeedError, Frame};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{
    AppBindings, BindingsChanged, BindingsDesired, Holders, NetworkDesired, TxtDesired,
};
use fdn_core::{AppName, ClientPrefix, ClusterId, Digest, HostName, Revision};

use super::used::ClusterUsage;
use super::view;

/// An app, as nodes are told it.
#[derive(Debug)]
pub struct AppEntry {
    /// The app.
    pub app: AppName,
    /// Its revision.
    pub revision: Revision,
    /// The clusters that hold it; of no use for a deleted app, which nobody holds.
    pub holders: Holders,
    /// The digests of its artifacts.
    pub digests: Vec<Digest>,
    /// The frame for clusters that hold it; of a deleted app, for those that held it.
    pub frame: Bytes,
    /// The frame for clusters that held it and no longer do.
    pub gone: Bytes,
    /// Whether it exists.
    pub exists: bool,
}

impl AppEntry {
    /// Whether a cluster has to serve it.
    #[must_use]
    pub fn is_seen_by(&self, cluster: &ClusterId) -> bool {
        self.exists && self.holders.has(cluster)
    }
}

/// The bindings of an app, in a form that makes a change of few bindings cheap.
#[derive(Clone, Debug)]
pub struct BindingsEntry {
    /// The app.
    pub app: AppName,
    /// Its revision.
    pub revision: Revision,
    /// `None` if its name has to be removed.
    pub state: Option<BindingsState>,
}

/// The name of an app and its bindings.
#[derive(Clone, Debug)]
pub struct BindingsState {
    /// The host name.
    pub host: HostName,
    /// The TTL of answers, in seconds.
    pub ttl_s: u32,
    /// The cluster that clients of each prefix are sent to.
    pub bindings: BTreeMap<ClientPrefix, ClusterId>,
    /// The clusters that clients may be sent to.
    pub holders: Holders,
}

impl From<BindingsDesired> for BindingsEntry {
    fn from(desired: BindingsDesired) -> Self {
        Self {
            app: desired.app,
            revision: desired.revision,
            state: desired.state.map(|state| BindingsState {
                host: state.host,
                ttl_s: state.ttl_s,
                bindings: state.bindings.into_iter().collect(),
                holders: state.holders,
            }),
        }
    }
}

impl BindingsEntry {
    /// The bindings as DNS servers are told them.
    #[must_use]
    pub fn desired(&self) -> BindingsDesired {
        let list = |state: &BindingsState| {
            let bindings = state.bindings.iter();
            bindings
                .map(|(prefix, cluster)| (*prefix, cluster.clone()))
                .collect()
        };
        BindingsDesired {
            app: self.app.clone(),
            revision: self.revision,
            state: self.state.as_ref().map(|state| AppBindings {
                host: state.host.clone(),
                ttl_s: state.ttl_s,
                bindings: list(state),
                holders: state.holders.clone(),
            }),
        }
    }
}

/// A change that machines are told.
#[derive(Clone, Debug)]
pub enum Change {
    /// An app.
    App(Arc<AppEntry>),
    /// The machines.
    Fleet(Arc<FleetEntry>),
    /// The calls counted towards quotas.
    Used(Arc<ClusterUsage>),
    /// The bindings of an app.
    Bindings(Arc<BindingsEntry>),
    /// Changes of an app's bindings.
    BindingsChanged(Arc<BindingsChanged>),
    /// The clusters and the latency map.
    Network(Arc<NetworkDesired>),
    /// Text records of a name.
    Txt(Arc<TxtDesired>),
}

impl Change {
    /// Its revision; [`Revision::NONE`] for a change without one.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Self::App(app) => app.revision,
            Self::Fleet(one) => one.fleet.revision,
            Self::Used(_) => Revision::NONE,
            Self::Bindings(one) => one.revision,
            Self::BindingsChanged(one) => one.revision,
            Self::Network(network) => network.revision,
            Self::Txt(text) => text.revision,
        }
    }

    /// The memory that it takes, in bytes, approximately.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::App(app) => app.frame.len() + app.gone.len(),
            Self::Fleet(_) => 4096,
            Self::Used(part) => part.used.len() * 128,
            Self::Bindings(one) => one.state.as_ref().map_or(0, |of| of.bindings.len() * 40),
            Self::BindingsChanged(one) => one.changes.len() * 40,
            Self::Network(network) => (network.locations.len() + network.measured.len()) * 40,
            Self::Txt(_) => 1024,
        }
    }
}

/// The machines; each machine is told the part that concerns it.
#[derive(Debug, Default)]
pub struct FleetEntry {
    /// All machines.
    pub fleet: FleetDesired,
    /// The frame for nodes without restored devices, which is nearly all.
    plain: OnceLock<Bytes>,
}

impl FleetEntry {
    /// The machines, not encoded for anybody yet.
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
            // Another feed may have set the same frame first.
            drop(self.plain.set(frame.clone()));
        }
        Ok(frame)
    }
}

/// Whether machines of a role are told changes of this kind.
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

/// The frame of a change, for one machine.
///
/// # Errors
/// When it cannot be serialized, which would be a bug.
pub fn encode(machine: &Machine, change: &Change) -> Result<Bytes, FeedError> {
    let frame = match change {
        Change::App(app) => return Ok(app.frame.clone()),
        Change::Fleet(one) => return one.frame(machine),
        Change::Used(part) => return part.frame(),
        Change::Bindings(one) => Frame::Bindings(one.desired()),
        Change::BindingsChanged(one) => Frame::BindingsChanged((**one).clone()),
        Change::Network(one) => Frame::Network((**one).clone()),
        Change::Txt(one) => Frame::Txt((**one).clone()),
    };
    Ok(frame.encode()?.into())
}
