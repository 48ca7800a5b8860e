//! Errors of the agent that do not belong to a call.

use std::path::PathBuf;

use fdn_core::{ByteSize, Coded, Digest, ErrorCode};

/// An error of the agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is not valid.
    #[error("configuration: {0}")]
    Settings(String),
    /// A component shared by all processes failed.
    #[error(transparent)]
    Service(#[from] fdn_service::ServiceError),
    /// The engine that runs functions could not be created.
    #[error(transparent)]
    Engine(#[from] fdn_runtime::EngineError),
    /// The connection to controllers cannot be kept.
    #[error("the connection to controllers")]
    Link(#[from] fdn_link::LinkError),
    /// A listener failed, or the async runtime or the signal handler could not be set up.
    #[error("the {what} listener failed")]
    Listener {
        /// Which one.
        what: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file of the data directory cannot be read or written.
    #[error("cannot use {path}; make `data` a directory that the agent may write")]
    Data {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The usage spool cannot be used.
    #[error("the usage spool")]
    Usage(#[from] fdn_spool::SpoolError),
    /// The allocation table of devices cannot be used.
    #[error("the allocation table of GPU devices")]
    Devices(#[from] fdn_devices::BindError),
    /// The engine that runs containers cannot be used.
    #[error("the container engine; see [docker] and [kubernetes] of the configuration")]
    Containers(#[from] fdn_instances::RuntimeError),
    /// The node cannot take part in its cluster.
    #[error("the cluster of nodes; see [peers] of the configuration")]
    Peers(#[from] fdn_cluster::ClusterError),
    /// The machine did not become a node, or its certificate was not renewed.
    #[error(transparent)]
    Join(#[from] crate::join::JoinError),
    /// A metric was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Settings(_) => ErrorCode::ConfigInvalid,
            Self::Service(error) => error.code(),
            Self::Engine(error) => error.code(),
            Self::Link(error) => error.code(),
            Self::Listener { .. } => ErrorCode::AddressTaken,
            Self::Data { .. } => ErrorCode::DataDirectory,
            Self::Usage(error) => error.code(),
            Self::Devices(error) => error.code(),
            Self::Containers(error) => error.code(),
            Self::Peers(error) => error.code(),
            Self::Join(error) => error.code(),
            Self::Metrics(_) => ErrorCode::Internal,
        }
    }
}

/// Why an app cannot be made ready; reported to the controller as the reason of the app's phase. The attempt is repeated after a pause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The controller could not be reached, or the transfer broke off.
    #[error("the artifact {digest} could not be fetched from the controller: {reason}")]
    Fetch {
        /// The artifact.
        digest: Digest,
        /// What was observed.
        reason: String,
    },
    /// The controller answered with something other than the artifact.
    #[error("the controller answered status {status} for artifact {digest}")]
    Answer {
        /// The artifact.
        digest: Digest,
        /// The HTTP status.
        status: u16,
    },
    /// The bytes do not match the artifact.
    #[error("the bytes fetched for artifact {digest} do not match: {reason}")]
    Corrupt {
        /// The artifact.
        digest: Digest,
        /// What does not match.
        reason: String,
    },
    /// The artifacts of the deployed apps do not fit into the cache.
    #[error(
        "the artifact cache is full: {wanted} more are needed, {needed} of {limit} are held by deployed apps; \
         raise cache.size or delete apps"
    )]
    CacheFull {
        /// How much more is needed.
        wanted: ByteSize,
        /// How much the deployed apps hold already.
        needed: ByteSize,
        /// The size limit of the cache.
        limit: ByteSize,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot read or write {path} in the artifact cache: {source}")]
    Disk {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The component cannot be compiled.
    #[error(transparent)]
    Compile(#[from] fdn_runtime::CompileError),
    /// The compiled component cannot be loaded.
    #[error(transparent)]
    Load(#[from] fdn_runtime::LoadError),
    /// The image cannot be used by this node's container engine.
    #[error(transparent)]
    Image(#[from] fdn_instances::StartError),
    /// The password of a registry cannot be read: the registry, and why.
    #[error("the password of the registry {0} (apps.registries): {1}")]
    Registry(String, String),
    /// The desired state cannot be run by this agent.
    #[error("the desired state cannot be run: {0}")]
    Spec(String),
    /// No device, here or in the cluster, can ever satisfy the function's request.
    #[error(
        "neither this node nor another one of its cluster has the devices that [gpu] of the manifest asks for: {0}; \
         let a node join that has them, or change [gpu]"
    )]
    Devices(String),
    /// A secret cannot be opened.
    #[error(
        "the secret {0} cannot be opened: this node's key for secrets (state/seal.key) was replaced"
    )]
    Secret(String),
    /// A bug of the agent.
    #[error("preparing the app failed: {0}")]
    Internal(String),
}

impl Coded for PrepareError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Fetch { .. } => ErrorCode::ControllerUnreachable,
            Self::Answer { .. } => ErrorCode::ArtifactStoreFailed,
            Self::Corrupt { .. } => ErrorCode::ArtifactCorrupt,
            Self::CacheFull { .. } | Self::Disk { .. } => ErrorCode::DataDirectory,
            Self::Compile(error) => error.code(),
            Self::Load(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Spec(_) => ErrorCode::WorkflowInvalid,
            Self::Devices(_) => ErrorCode::NoClusterFits,
            Self::Secret(_) | Self::Registry(..) => ErrorCode::ConfigInvalid,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }
}
