//! Why a machine was not let in; each says what to do.

use std::path::PathBuf;

use fdn_core::enrol::Machine;
use fdn_core::{Coded, ErrorCode, ParseError, Problem};

/// Why a machine did not become a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The file holds no join token.
    #[error("the file of --token-file does not hold a join token")]
    Token(#[source] ParseError),
    /// The controller's address makes no sense.
    #[error("{url:?} is no address of a controller: expected https://HOST or http://HOST:PORT")]
    Url {
        /// What was given.
        url: String,
    },
    /// What is sent could be read on the way.
    #[error(
        "{url} is not encrypted, and joining sends keys: use the controller's https:// address \
         (or --allow-plain-http on a network that nobody else can read)"
    )]
    Insecure {
        /// The address.
        url: String,
    },
    /// The controller cannot be reached.
    #[error(
        "the controller at {url} cannot be reached: {reason}; check the address, and that it runs"
    )]
    Unreachable {
        /// The address.
        url: String,
        /// What was seen.
        reason: String,
    },
    /// The controller says no.
    #[error("the controller refused: {}", .0.detail)]
    Refused(Box<Problem>),
    /// What answers is no controller.
    #[error("what answers at {url} is no controller of this version: {reason}")]
    Foreign {
        /// The address.
        url: String,
        /// What was seen.
        reason: String,
    },
    /// The machine's host name is no node name.
    #[error("the host name {0:?} cannot be a node's name; give one with --node")]
    HostName(String),
    /// The machine is another node already.
    #[error(
        "{data} holds the identity of {} {} in cluster {}; give another --data, or remove that folder if that one is no more",
        .identity.role.noun(), .identity.name, .identity.cluster
    )]
    Another {
        /// Which node.
        identity: Machine,
        /// The folder.
        data: PathBuf,
    },
    /// The configuration is another node's.
    #[error("{path} configures {found}; give another --config, or remove the file")]
    Config {
        /// The file.
        path: PathBuf,
        /// Which node in which cluster.
        found: String,
    },
    /// Certificates, keys or files.
    #[error(transparent)]
    Service(#[from] fdn_service::ServiceError),
    /// The answer does not fit what was asked for.
    #[error("the controller's answer does not fit this machine's request: {0}")]
    Answer(String),
}

impl Coded for JoinError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Token(_) | Self::Url { .. } | Self::HostName(_) => ErrorCode::InputInvalid,
            Self::Another { .. } => ErrorCode::NodeNameTaken,
            Self::Config { .. } => ErrorCode::ConfigInvalid,
            Self::Insecure { .. } => ErrorCode::JoinInsecure,
            Self::Unreachable { .. } => ErrorCode::ControllerUnreachable,
            Self::Refused(problem) => problem.code,
            Self::Service(error) => error.code(),
            Self::Foreign { .. } | Self::Answer(_) => ErrorCode::ControllerUnreachable,
        }
    }
}
