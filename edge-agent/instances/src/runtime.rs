//! What makes instances.

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
    /// None here: other nodes run them.
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

/// To whom instances belong: written on everything that outlives the agent.
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

/// What a runtime can do beyond the least that the trait asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Instance::pause`] and [`Instance::resume`] work.
    pub pause: bool,
    /// Instances go on while the agent restarts, and [`Runtime::adopt`] finds them.
    pub survives_agent: bool,
    /// GPU devices can be granted.
    pub devices: bool,
}

/// What [`Runtime::collect`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Removed.
    pub removed: BTreeSet<InstanceId>,
    /// Could not be removed now, and why; the next round tries again.
    pub failed: Vec<(InstanceId, String)>,
}

/// Has something prepared for as long as it lives.
pub type Expectation = Option<Box<dyn Any + Send + Sync>>;

/// Makes instances, finds them again, and cleans up after itself.
#[async_trait]
pub trait Runtime: Send + Sync + fmt::Debug {
    /// What is behind it.
    fn kind(&self) -> Kind;

    /// Whose instances it makes.
    fn owner(&self) -> &Owner;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether the engine answers now; cheap enough for a readiness check.
    ///
    /// # Errors
    /// When it does not.
    async fn check(&self) -> Result<(), RuntimeError>;

    /// Has the image ready on this node: pulled by digest, or loaded from an archive, or loaded as a component. Idempotent
    /// and cheap when it is there already; concurrent calls for one image do the work once. `start` does it as well, so
    /// this is for fetching ahead.
    ///
    /// # Errors
    /// When the image cannot be had, or is not what its digest says.
    async fn prepare(&self, image: &Image) -> Result<(), StartError>;

    /// Starts an instance and returns when it answers.
    ///
    /// The id must be new: starting an id that exists is [`StartError::Exists`]. On an error nothing of the instance is left.
    /// Dropping the future leaves nothing either, though perhaps a moment later.
    ///
    /// # Errors
    /// Every way in which a start can fail, with the instance's last log lines where it wrote any.
    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError>;

    /// Says that starts of this are to be expected, until the answer is dropped: whatever of a start takes no CPU and no memory of the node
    /// may be done ahead. The id in `spec` means nothing. A runtime that does nothing ahead answers with nothing.
    fn expect(&self, spec: &StartSpec) -> Expectation {
        let _ = spec;
        None
    }

    /// The id under which a start of exactly this has been prepared, if one has. It is handed out once, to who starts it at once under this
    /// id.
    fn ahead(&self, spec: &StartSpec) -> Option<InstanceId> {
        let _ = spec;
        None
    }

    /// What of this owner's runs already: after the agent's restart. Instances that are known to this object already are
    /// returned as well (the same handles), those that have ended are not. Does not restart, signal or change any of them.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError>;

    /// Removes what this owner left behind and that serves nobody: ended instances, half-made ones of a start that a crash
    /// cut short, ones whose description cannot be read. What [`Runtime::adopt`] would return is not touched (stop it by
    /// its handle), nor what this object is starting, nor anything that has another owner or none.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn collect(&self) -> Result<Collected, RuntimeError>;
}
