//! Errors of the cluster as a whole.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode};

/// An error of the cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A setting is not valid.
    #[error("cluster settings: {0}")]
    Settings(String),
    /// The node cannot listen on its address for other nodes.
    #[error("cannot listen for other nodes on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("cannot use the certificate file {path}: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Metrics could not be registered.
    #[error("cannot register the metrics of the cluster")]
    Metrics(#[from] prometheus::Error),
    /// The node has stopped.
    #[error("this node of the cluster has stopped")]
    Stopped,
}

impl Coded for ClusterError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Settings(_) | Self::Certificate { .. } => ErrorCode::ConfigInvalid,
            Self::Listen { .. } => ErrorCode::AddressTaken,
            Self::Metrics(_) => ErrorCode::Internal,
            Self::Stopped => ErrorCode::NotReady,
        }
    }
}
