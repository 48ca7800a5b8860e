//! The interface of runtimes, which make instances.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use fdn_core::{ClusterId, InstanceId, NodeId};
use serde::{Deserialize, Serialize};

use crate::error::{RuntimeError, StartError};
use crate::instance::Instance;
use crate::spec::{Image, StartSpec};

/// The technology behind a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// WebAssembly components in this process.
    Wasm,
    /// Containers of a Docker engine on this node.
    Docker,
    /// Pods of a Kubernetes cluster, bound to this node.
    Kubernetes,
    /// No technology on this node: other nodes run the instances.
    Elsewhere,
    /// The scripted runtime of tests.
    Fake,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wasm => "wasm",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
            Self::Elsewhere => "elsewhere",
            Self::Fake => "fake",
        })
    }
}

/// The owner of instances: written on everything that outlives the agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node whose agent made it.
    pub node: NodeId,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.node)
    }
}

/// Optional capabilities of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether [`Instance::pause`] and [`Instance::resume`] are supported.
    pub pause: bool,
    /// Whether instances continue while the agent restarts, and [`Runtime::adopt`] finds them.
    pub survives_agent: bool,
    /// Whether GPU devices can be granted.
    pub devices: bool,
}

/// The result of [`Runtime::collect`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Instances that were removed.
    pub removed: BTreeSet<InstanceId>,
    /// Instances that could not be removed now, and why; the next round tries again.
    pub failed: Vec<(InstanceId, String)>,
}

/// Keeps something prepared for as long as it lives.
pub type Expectation = Option<Box<dyn Any + Send + Sync>>;

/// Makes instances, finds them again, and cleans up after itself.
#[async_trait]
pub trait Runtime: Send + Sync + fmt::Debug {
    /// The technology behind it.
    fn kind(&self) -> Kind;

    /// The owner of the instances that it makes.
    fn owner(&self) -> &Owner;

    /// Its optional capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Checks whether the engine answers now; cheap enough for a readiness check.
    ///
    /// # Errors
    /// When it does not answer.
    async fn check(&self) -> Result<(), RuntimeError>;

    /// Makes the image available on this node: pulled by digest, loaded from an archive, or loaded as a component. Idempotent,
    /// and cheap if the image is already there; concurrent calls for one image do the work once. `start` does it as well, so
    /// this is for fetching ahead.
    ///
    /// # Errors
    /// When the image cannot be obtained, or does not match its digest.
    async fn prepare(&self, image: &Image) -> Result<(), StartError>;

    /// Starts an instance and returns when it answers.
    ///
    /// The id must be new: an existing id gives [`StartError::Exists`]. After an error nothing of the instance is left, except that after
    /// [`StartError::Remains`] the caller must hold what it has reserved until the remains are gone. Dropping the future leaves nothing either,
    /// though perhaps a moment later.
    ///
    /// # Errors
    /// Every way in which a start can fail, with the instance's last log lines if it wrote any.
    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError>;

    /// Announces that starts of this specification are expected, until the returned value is dropped: the parts of a start that take no CPU and
    /// no memory of the node may be done ahead. The id in `spec` has no meaning. `None` from a runtime that does nothing ahead.
    fn expect(&self, spec: &StartSpec) -> Expectation {
        let _ = spec;
        None
    }

    /// The id under which a start of exactly this specification has been prepared, if any. It is returned once, to a caller who starts it
    /// immediately under this id.
    fn take_precreated(&self, spec: &StartSpec) -> Option<InstanceId> {
        let _ = spec;
        None
    }

    /// The instances of this owner that are already running: for use after the agent's restart. Instances that this object knows already are
    /// returned as well (the same handles); ended ones are not. Does not restart, signal or change any of them.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError>;

    /// Removes what this owner left behind and that serves nobody: ended instances, unfinished ones of a start that a crash
    /// interrupted, ones whose description cannot be read. It does not touch what [`Runtime::adopt`] would return (stop it by
    /// its handle), nor what this object is starting, nor anything that has another owner or none.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn collect(&self) -> Result<Collected, RuntimeError>;
}
