//! Changes that machines are told of, as they are kept and sent. No I/O.

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

use super::used::Part;
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

/// What DNS answers for an app, so that a change of few of its bindings touches few.
#[derive(Clone, Debug)]
pub struct BindingsEntry {
    /// The app.
    pub app: AppName,
    /// Its revision.
    pub revision: Revision,
    /// Nothing if its name is to be gone.
    pub state: Option<BindingsState>,
}

/// What DNS answers for the name of an app.
#[derive(Clone, Debug)]
pub struct BindingsState {
    /// The name.
    pub host: HostName,
    /// The answer's time to live, in seconds.
    pub ttl_s: u32,
    /// Which cluster clients of a prefix are sent to.
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
    /// As DNS servers are told of it.
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

/// Something that changed.
#[derive(Clone, Debug)]
pub enum Change {
    /// An app.
    App(Arc<AppEntry>),
    /// Machines.
    Fleet(Arc<FleetEntry>),
    /// What is used of quotas.
    Used(Arc<Part>),
    /// What DNS answers for an app.
    Bindings(Arc<BindingsEntry>),
    /// How that changed.
    BindingsChanged(Arc<BindingsChanged>),
    /// The clusters and the latency map.
    Network(Arc<NetworkDesired>),
    /// Text records of a name.
    Txt(Arc<TxtDesired>),
}

impl Change {
    /// Its revision; none of what has none.
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

    /// Bytes that it takes, about.
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
        Change::Used(part) => return part.frame(),
        Change::Bindings(one) => Frame::Bindings(one.desired()),
        Change::BindingsChanged(one) => Frame::BindingsChanged((**one).clone()),
        Change::Network(one) => Frame::Network((**one).clone()),
        Change::Txt(one) => Frame::Txt((**one).clone()),
    };
    Ok(frame.encode()?.into())
}
