//! Errors from loading a compiled file to the last byte of a response.

use std::path::PathBuf;

use fdn_core::{ByteSize, Coded, ErrorCode, Fault};

/// Why an [`crate::Engine`] could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The settings do not fit this machine.
    #[error(
        "cannot set up the WebAssembly engine for {instances} instances; lower max_instances or check `ulimit -v`: {reason}"
    )]
    Settings {
        /// The requested number of instances.
        instances: u32,
        /// The engine's message.
        reason: String,
    },
    /// A thread of the engine could not be started.
    #[error("cannot start a thread of the WebAssembly engine")]
    Thread(#[source] std::io::Error),
}

impl Coded for EngineError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Settings { .. } => ErrorCode::ConfigInvalid,
            Self::Thread(_) => ErrorCode::Internal,
        }
    }
}

/// Why a compiled component could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file or its checksum cannot be read.
    #[error("cannot read the compiled component {path}")]
    Read {
        /// The compiled file or its checksum file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what was compiled, or was compiled for another engine: compile the component again.
    #[error("the compiled component {path} cannot be trusted: {reason}; compile it again")]
    Untrusted {
        /// The compiled file.
        path: PathBuf,
        /// What does not match.
        reason: String,
    },
    /// The component cannot be linked against what the network offers.
    #[error("the component cannot be linked: {reason}")]
    Link {
        /// What is missing, in the engine's words.
        reason: String,
    },
}

impl Coded for LoadError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Read { .. } | Self::Untrusted { .. } => ErrorCode::ArtifactCorrupt,
            Self::Link { .. } => ErrorCode::UploadForeignImport,
        }
    }
}

/// Why a call did not end with a complete response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The guest trapped or exited before it had answered.
    #[error("the function trapped: {reason}")]
    Trapped {
        /// The trap and the first frames of the guest's stack.
        reason: String,
    },
    /// The guest did not finish in time.
    #[error("the function did not finish within its timeout of {limit:?}")]
    Timeout {
        /// The limit.
        limit: std::time::Duration,
    },
    /// The guest used too much CPU time.
    #[error("the function used more than its {limit:?} of CPU time")]
    CpuLimit {
        /// The limit.
        limit: std::time::Duration,
    },
    /// The guest requested more memory than allowed and did not survive the refusal.
    #[error(
        "the function asked for more than its {limit} of memory; raise `memory` in fdn.toml: {reason}"
    )]
    MemoryLimit {
        /// The limit.
        limit: ByteSize,
        /// How the guest ended.
        reason: String,
    },
    /// The response body is larger than allowed.
    #[error("the response body is larger than {limit}; raise `response_limit` in fdn.toml")]
    ResponseTooLarge {
        /// The limit.
        limit: ByteSize,
    },
    /// The request body is larger than allowed.
    #[error("the request body is larger than {limit}")]
    RequestTooLarge {
        /// The limit.
        limit: ByteSize,
    },
    /// The guest returned without an answer, or answered with an error of its own.
    #[error("the function ended without an answer: {reason}")]
    NoResponse {
        /// What it did instead.
        reason: String,
    },
    /// There is no room for one more instance or one more long-running call.
    #[error("the node has no room for this call now: {reason}")]
    Overloaded {
        /// The bound that was reached.
        reason: String,
    },
    /// The caller's request cannot be passed to a guest.
    #[error("the request cannot be handed to the function: {reason}")]
    BadRequest {
        /// The cause.
        reason: String,
    },
    /// The call was dropped before its end, for example because the client went away.
    #[error("the call was cancelled")]
    Cancelled,
    /// An internal error: a bug of this crate.
    #[error("the WebAssembly engine failed: {reason}")]
    Internal {
        /// What was observed.
        reason: String,
    },
}

impl Coded for CallError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Trapped { .. } => ErrorCode::FunctionTrapped,
            Self::Timeout { .. } => ErrorCode::FunctionTimeout,
            Self::CpuLimit { .. } => ErrorCode::FunctionCpuLimit,
            Self::MemoryLimit { .. } => ErrorCode::FunctionMemoryLimit,
            Self::ResponseTooLarge { .. } => ErrorCode::ResponseTooLarge,
            Self::RequestTooLarge { .. } => ErrorCode::BodyTooLarge,
            Self::NoResponse { .. } => ErrorCode::NoResponse,
            Self::Overloaded { .. } => ErrorCode::Overloaded,
            Self::BadRequest { .. } => ErrorCode::BadRequest,
            Self::Cancelled | Self::Internal { .. } => ErrorCode::Internal,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Cancelled => Fault::Caller,
            other => other.code().fault(),
        }
    }
}
