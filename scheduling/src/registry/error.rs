//! Why the registry does not take something in.

use fdn_core::{Coded, ErrorCode, InstanceId};

use super::lifecycle::OutOfPlace;
use super::profile::FunctionIndex;
use crate::NodeIndex;

/// Why something was not taken in. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is no room for more of these.
    #[error("{max} {what} are known, the most that may be")]
    Full {
        /// Functions, nodes or instances.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// No such function is registered.
    #[error("function {} is not registered", .0.get())]
    UnknownFunction(FunctionIndex),
    /// No such node is there.
    #[error("node {0} is not there")]
    UnknownNode(NodeIndex),
    /// No such instance is known.
    #[error("instance {0} is not known")]
    UnknownInstance(InstanceId),
    /// The event does not belong to an instance in its state.
    #[error("instance {instance}")]
    OutOfPlace {
        /// The instance.
        instance: InstanceId,
        /// Its state and the event.
        #[source]
        source: OutOfPlace,
    },
    /// The instance is another function's, or on another node that has confirmed it.
    #[error("instance {0} belongs to another function or node")]
    Elsewhere(InstanceId),
    /// What was said of the instance holds for none that is on a node, or names no node where one is needed.
    #[error("instance {0} needs a node to be in this state")]
    NotOnNode(InstanceId),
    /// The function still has instances.
    #[error("function {} still has instances", .0.get())]
    InUse(FunctionIndex),
}

impl Coded for RegistryError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Full { .. } => ErrorCode::Overloaded,
            Self::UnknownFunction(_) | Self::UnknownNode(_) | Self::UnknownInstance(_) => {
                ErrorCode::NotFound
            }
            Self::OutOfPlace { source, .. } => source.code(),
            Self::Elsewhere(_) | Self::InUse(_) => ErrorCode::Conflict,
            Self::NotOnNode(_) => ErrorCode::BadRequest,
        }
    }
}
