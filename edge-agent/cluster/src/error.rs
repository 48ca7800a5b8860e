//! What can go wrong with a cluster as a whole.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode};

/// An error of the cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A setting cannot be used.
    #[error("cluster settings: {0}")]
    Settings(String),
    /// The address for other nodes cannot be listened on.
    #[error("cannot listen for other nodes on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("cannot use the certificate file {path}: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
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
