//! What can go wrong when the server starts. Once it runs, it goes on with what it has.

use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode};
use fdn_service::ServiceError;

use crate::dnssec::file::KeyError;

/// An error of the DNS server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting has a value that cannot work.
    #[error("configuration: {key} {reason}")]
    Setting {
        /// The key.
        key: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// The data directory cannot be used.
    #[error(
        "the data directory {path} cannot be used; make it writable or choose another with data_dir"
    )]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The geographic database cannot be used.
    #[error(
        "the geographic database {path} cannot be used; geo.database takes a file in MaxMind DB format"
    )]
    GeoDatabase {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: maxminddb::MaxMindDbError,
    },
    /// A socket could not be handed to the runtime.
    #[error("a bound socket cannot be used")]
    Socket(#[source] std::io::Error),
    /// The keys of the zone cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The shell failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The connection to controllers cannot be kept.
    #[error(transparent)]
    Link(#[from] fdn_link::LinkError),
    /// The machine is no DNS server of a network.
    #[error(transparent)]
    Join(#[from] fdn_link::join::JoinError),
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Setting { .. } | Self::GeoDatabase { .. } => ErrorCode::ConfigInvalid,
            Self::DataDirectory { .. } => ErrorCode::DataDirectory,
            Self::Socket(_) => ErrorCode::Internal,
            Self::Keys(cause) => cause.code(),
            Self::Service(cause) => cause.code(),
            Self::Link(cause) => cause.code(),
            Self::Join(cause) => cause.code(),
        }
    }
}
