//! Errors of the code that all processes share.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode};

/// An error of the shared service code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The configuration is not valid.
    #[error("configuration: {0}")]
    Config(String),
    /// Another program listens on the address already.
    #[error(
        "{address} is already taken by another program; stop it or choose another address with {setting}"
    )]
    AddressTaken {
        /// The address.
        address: SocketAddr,
        /// The flag or setting that changes it.
        setting: String,
    },
    /// The address cannot be bound for another reason.
    #[error("cannot listen on {address} ({setting}): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag or setting that changes it.
        setting: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A file or folder cannot be used.
    #[error("cannot use {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause, and what to do about it.
        reason: String,
    },
    /// A sealed value was not sealed with this key, or was tampered with.
    #[error("a sealed value cannot be opened: the key differs, or the value was changed")]
    Sealed,
    /// The operating system provided no random numbers.
    #[error("the operating system gave no random numbers")]
    Random,
    /// A certificate or key could not be created or read.
    #[error("certificates: {0}")]
    Certificate(String),
    /// The files of a certificate cannot be used.
    #[error(
        "the certificate {certificate} with the key {key} cannot be used: {reason}; {setting}.certificate_file and {setting}.key_file take files \
         in PEM form that belong together"
    )]
    CertificateFiles {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of its private key.
        key: PathBuf,
        /// The section of the settings that names them.
        setting: &'static str,
        /// The cause.
        reason: String,
    },
    /// A file of authorities cannot be used.
    #[error("{path} must hold the certificates of authorities in PEM form: {reason}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A process that should run does not answer its health check.
    #[error("the process that should listen on {address} is not healthy")]
    Unhealthy {
        /// The address that was asked.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The HTTP client could not be created.
    #[error("the HTTP client could not be made")]
    HttpClient(#[source] reqwest::Error),
    /// A metric was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl Coded for ServiceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Config(_) | Self::CertificateFiles { .. } | Self::Authorities { .. } => {
                ErrorCode::ConfigInvalid
            }
            Self::AddressTaken { .. } | Self::Listen { .. } => ErrorCode::AddressTaken,
            Self::File { .. } => ErrorCode::DataDirectory,
            Self::Sealed
            | Self::Random
            | Self::Certificate(_)
            | Self::Unhealthy { .. }
            | Self::HttpClient(_)
            | Self::Metrics(_) => ErrorCode::Internal,
        }
    }
}
