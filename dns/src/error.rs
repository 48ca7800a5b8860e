//! Errors that stop the server from starting. Once it runs, it goes on with the state it has.

use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode};
use fdn_service::ServiceError;

use crate::dnssec::file::KeyError;

/// An error of the DNS server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting has an invalid value.
    #[error("configuration: {key} {reason}")]
    Setting {
        /// The name of the setting.
        key: &'static str,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// The data directory cannot be used.
    #[error(
        "the data directory {path} cannot be used; make it writable or choose another with data_dir"
    )]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// The cause.
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
        /// The cause.
        #[source]
        source: maxminddb::MaxMindDbError,
    },
    /// A bound socket could not be registered with the runtime.
    #[error("a bound socket cannot be used")]
    Socket(#[source] std::io::Error),
    /// The keys of the zone cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The shared service code failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The connection to the controllers cannot be set up.
    #[error(transparent)]
    Link(#[from] fdn_link::LinkError),
    /// This machine is not a DNS server of a network.
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
