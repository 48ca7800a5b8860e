//! What the head of a cluster knows: functions, their instances, and the nodes.
//!
//! **Problem.** The autoscaler asks for `ceil(demand) - (running + pending)` more instances of each function, the global scheduler for
//! what is free; both at every event. What they go by is spread over the nodes, each of which alone knows what is true of it,
//! and says so in messages that are lost, doubled or late.
//!
//! **Source.** The patent "Highly scalable distributed scheduling system for serverless computing": the head's registry of
//! functions, instances and resources. How copies are kept current is not in it.
//!
//! **Rules.**
//! - The head's own decisions go through the instance's life cycle ([`State::apply`]): [`Registry::request`],
//!   [`Registry::place`], [`Registry::apply`].
//! - What nodes say is copied. Each message has a [`Stamp`]: the node's start (epoch) and its count of changes since then. What is
//!   not newer than what is held is ignored; a newer epoch means that the node has started anew and all that was on it is lost.
//! - An instance that has gone is forgotten. So that an old message cannot bring it back, a node's instance that is not known is
//!   taken in only if the message is newer than the last from that node that said of any instance that it is gone. A new
//!   instance whose first message is overtaken that way is seen with its next message, or with the next full report.
//! - [`Registry::reconcile`] takes a node's full report: whatever the messages before it did, the copy is what the node says.
//!   An instance that was placed there by the head, and of which the node has not said anything yet, stays: its start may
//!   still be under way.
//! - A node that is lost takes its instances with it; they are returned, so that others can be asked for. If it was only cut off,
//!   its next report brings it back.
//!
//! **Complexity.** O(log m) for m instances per message or event; O(k log m) for a report of k instances or the loss of k. Counts
//! are kept, not computed: O(1).
//!
//! **Bounds.** Functions, nodes and instances each have one ([`Limits`]); at the bound, more are refused with
//! [`RegistryError::Full`].
//!
//! **Invariants.** The counts of a function are those of its instances; an instance that is gone stays gone; what is held of a node
//! and of each instance only becomes newer; after a full report and nothing else under way, the copy of a node is the node.

mod counts;
mod error;
mod instances;
mod lifecycle;
mod observe;
mod profile;
mod stamp;

use fdn_core::{InstanceId, Revision};

pub use counts::Counts;
pub use error::RegistryError;
pub use instances::{Instance, Lost};
pub use lifecycle::{Event, OutOfPlace, State};
pub use observe::InstanceReport;
pub use profile::{FunctionIndex, Profile, ProfileError};
pub use stamp::{News, NodeReport, Stamp};

use crate::NodeIndex;
use instances::Instances;

/// How much a registry may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Functions: their numbers are below this.
    pub functions: usize,
    /// Nodes: their places are below this.
    pub nodes: usize,
    /// Instances.
    pub instances: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            functions: 100_000,
            nodes: 10_000,
            instances: 1_000_000,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Function {
    revision: Revision,
    profile: Profile,
}

/// A node that has reported at least once.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Its last report; none while it counts as lost.
    report: Option<NodeReport>,
    stamp: Stamp,
    /// Instances of it that are not known must be newer than this.
    floor: Stamp,
}

/// The registry.
#[derive(Debug, Default)]
pub struct Registry {
    limits: Limits,
    functions: Vec<Option<Function>>,
    nodes: Vec<Option<Node>>,
    instances: Instances,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Registers a function, or what is new of it.
    ///
    /// # Errors
    /// When the function's number is beyond the bound.
    pub fn register(
        &mut self,
        function: FunctionIndex,
        revision: Revision,
        profile: Profile,
    ) -> Result<News, RegistryError> {
        let max = self.limits.functions;
        if function.get() >= max {
            return Err(RegistryError::Full {
                what: "functions",
                max,
            });
        }
        if function.get() >= self.functions.len() {
            self.functions.resize(function.get() + 1, None);
        }
        let held = &mut self.functions[function.get()];
        if held.is_some_and(|held| held.revision >= revision) {
            return Ok(News::Stale);
        }
        *held = Some(Function { revision, profile });
        Ok(News::Taken)
    }

    /// Forgets a function. Says whether it was there.
    ///
    /// # Errors
    /// When it still has instances.
    pub fn unregister(&mut self, function: FunctionIndex) -> Result<bool, RegistryError> {
        if self.counts(function).all() > 0 {
            return Err(RegistryError::InUse(function));
        }
        let held = self.functions.get_mut(function.get());
        Ok(held.is_some_and(|held| held.take().is_some()))
    }

    /// What is registered of a function.
    #[must_use]
    pub fn profile(&self, function: FunctionIndex) -> Option<&Profile> {
        let function = self.functions.get(function.get())?.as_ref()?;
        Some(&function.profile)
    }

    /// How many instances a function has.
    #[must_use]
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        self.instances.counts(function)
    }

    /// What a node said last; none if there is no such node.
    #[must_use]
    pub fn node(&self, node: NodeIndex) -> Option<&NodeReport> {
        self.nodes.get(node.get())?.as_ref()?.report.as_ref()
    }

    /// The nodes that are there, by place.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, &NodeReport)> {
        (0u32..).zip(&self.nodes).filter_map(|(place, node)| {
            let report = node.as_ref()?.report.as_ref()?;
            Some((NodeIndex::new(place), report))
        })
    }

    /// An instance.
    #[must_use]
    pub fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// All instances, by id.
    pub fn instances(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter()
    }

    /// The instances on a node, by id.
    pub fn instances_on(&self, node: NodeIndex) -> impl Iterator<Item = InstanceId> {
        self.instances.on(node)
    }

    /// An instance has been asked for. Asking for it again does nothing.
    ///
    /// # Errors
    /// When the function is not registered, the id is another function's, or there are too many instances.
    pub fn request(
        &mut self,
        id: InstanceId,
        function: FunctionIndex,
    ) -> Result<News, RegistryError> {
        if let Some(held) = self.instances.get(id) {
            return if held.function == function {
                Ok(News::Stale)
            } else {
                Err(RegistryError::Elsewhere(id))
            };
        }
        self.admit(function)?;
        let pending = Instance {
            function,
            state: State::Pending,
            node: None,
            stamp: None,
        };
        self.instances.set(id, pending);
        Ok(News::Taken)
    }

    /// An instance goes to a node.
    ///
    /// # Errors
    /// When the node or the instance is not known, or the instance is not pending.
    pub fn place(&mut self, id: InstanceId, node: NodeIndex) -> Result<State, RegistryError> {
        if self.node(node).is_none() {
            return Err(RegistryError::UnknownNode(node));
        }
        self.advance(id, Event::Placed, Some(node))
    }

    /// Something happens to an instance, by decision or knowledge of the head. [`Registry::place`] is for [`Event::Placed`].
    ///
    /// # Errors
    /// When the instance is not known, or the event does not belong to its state.
    pub fn apply(&mut self, id: InstanceId, event: Event) -> Result<State, RegistryError> {
        if event == Event::Placed {
            return Err(RegistryError::NotOnNode(id));
        }
        self.advance(id, event, None)
    }

    fn advance(
        &mut self,
        id: InstanceId,
        event: Event,
        node: Option<NodeIndex>,
    ) -> Result<State, RegistryError> {
        let held = *self
            .instances
            .get(id)
            .ok_or(RegistryError::UnknownInstance(id))?;
        let state = held
            .state
            .apply(event)
            .map_err(|source| RegistryError::OutOfPlace {
                instance: id,
                source,
            })?;
        let node = node.or(held.node);
        self.instances.set(
            id,
            Instance {
                state,
                node,
                ..held
            },
        );
        Ok(state)
    }

    /// Whether one more instance of a function can be taken in.
    fn admit(&self, function: FunctionIndex) -> Result<(), RegistryError> {
        if self.profile(function).is_none() {
            return Err(RegistryError::UnknownFunction(function));
        }
        let max = self.limits.instances;
        if self.instances.len() >= max {
            return Err(RegistryError::Full {
                what: "instances",
                max,
            });
        }
        Ok(())
    }
}
