//! Errors of joining; each message says what to do.

use std::path::PathBuf;

use fdn_core::enrol::Machine;
use fdn_core::{Coded, ErrorCode, ParseError, Problem};

use crate::LinkError;

/// Why a machine did not become part of the network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The file does not contain a join token.
    #[error("the file of --token-file does not hold a join token")]
    Token(#[source] ParseError),
    /// The controller's address is not valid.
    #[error("{url:?} is no address of a controller: expected https://HOST or http://HOST:PORT")]
    Url {
        /// The given address.
        url: String,
    },
    /// The connection is not encrypted, so others could read what is sent.
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
        /// The cause.
        reason: String,
    },
    /// The controller refused the request.
    #[error("the controller refused: {}", .0.detail)]
    Refused(Box<Problem>),
    /// The request over the connection to a controller failed.
    #[error("no certificate came over the connection to a controller: {0}")]
    Connection(LinkError),
    /// The server presents an authority other than the one that the join token names.
    #[error(
        "what answers at {url} does not show the authority whose hash is in the join token, and was told nothing: it is not the controller, or the \
         certificate file of its API (or of the proxy in front of it) lacks the authority's certificate at its end; \
         --ca-file FILE names the authority itself"
    )]
    Impostor {
        /// The address.
        url: String,
    },
    /// The server is not a controller of this version.
    #[error("what answers at {url} is no controller of this version: {reason}")]
    Foreign {
        /// The address.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The machine's host name is not a valid node name.
    #[error("the host name {0:?} cannot be a node's name; give one with --node")]
    HostName(String),
    /// The machine already has the identity of another node.
    #[error(
        "{data} holds the identity of {} {} in cluster {}; give another --data, or remove that folder if that one is no more",
        .identity.role.noun(), .identity.name, .identity.cluster
    )]
    Another {
        /// The node that it is.
        identity: Machine,
        /// The data folder.
        data: PathBuf,
    },
    /// The configuration file belongs to another node.
    #[error("{path} configures {found}; give another --config, or remove the file")]
    Config {
        /// The file.
        path: PathBuf,
        /// The node and cluster that it configures.
        found: String,
    },
    /// The address of the proxy is not valid.
    #[error("--proxy {url:?} is no proxy: expected http://HOST:PORT")]
    Proxy {
        /// The given address.
        url: String,
    },
    /// An error with certificates, keys or files.
    #[error(transparent)]
    Service(#[from] fdn_service::ServiceError),
    /// The answer does not match the request.
    #[error("the controller's answer does not fit this machine's request: {0}")]
    Answer(String),
}

impl From<LinkError> for JoinError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Status {
                problem: Some(problem),
                ..
            } => Self::Refused(problem),
            error => Self::Connection(error),
        }
    }
}

impl Coded for JoinError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Token(_) | Self::Url { .. } | Self::Proxy { .. } | Self::HostName(_) => {
                ErrorCode::InputInvalid
            }
            Self::Connection(error) => error.code(),
            Self::Another { .. } => ErrorCode::NodeNameTaken,
            Self::Config { .. } => ErrorCode::ConfigInvalid,
            Self::Insecure { .. } => ErrorCode::JoinInsecure,
            Self::Unreachable { .. } | Self::Impostor { .. } => ErrorCode::ControllerUnreachable,
            Self::Refused(problem) => problem.code,
            Self::Service(error) => error.code(),
            Self::Foreign { .. } | Self::Answer(_) => ErrorCode::ControllerUnreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_controller_refuses_over_the_connection_is_said_in_its_words() {
        let words = "the node's clock is 3600 s away from the controller's; set it right";
        let refused = |problem: Option<Problem>| LinkError::Status {
            status: 403,
            detail: words.to_owned(),
            problem: problem.map(Box::new),
        };
        let problem = Problem::new(ErrorCode::CertificateRefused, words);
        let error = JoinError::from(refused(Some(problem)));
        assert_eq!(error.code(), ErrorCode::CertificateRefused);
        assert_eq!(
            error.to_string(),
            format!("the controller refused: {words}")
        );
        // An answer without an error code says nothing about the certificate.
        let error = JoinError::from(refused(None));
        assert_eq!(error.code(), ErrorCode::ControllerUnreachable);
        let error = JoinError::from(LinkError::Removed);
        assert_eq!(error.code(), ErrorCode::CertificateRefused);
    }
}
