//! A TLS listener: its certificates are read and its address is bound before anything else starts.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::certificate::{CertificateFiles, Certificates};
use crate::error::ServiceError;
use crate::listen;

/// A bound listener with its certificates.
pub struct Secure {
    address: SocketAddr,
    listener: TcpListener,
    config: ServerConfig,
    certificates: Certificates,
}

/// Keeps the certificates up to date until it is dropped.
#[derive(Debug)]
pub struct Kept {
    address: SocketAddr,
    _looking: DropGuard,
}

impl Kept {
    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Secure {
    /// Reads the certificates, then binds the listener. Errors name the settings: `listens` for the address, `shows` for the section of the
    /// certificates,
    /// whose files are checked every `every`.
    ///
    /// # Errors
    /// When the address is taken, or a certificate cannot be used.
    pub fn open(
        (address, listens): (SocketAddr, &str),
        (files, shows): (&[CertificateFiles], &'static str),
        every: Duration,
    ) -> Result<Self, ServiceError> {
        let certificates = Certificates::open(files.to_vec(), shows, every)?;
        let listener = listen::tcp(address, listens)?;
        let unusable = |source| ServiceError::Listen {
            address,
            setting: listens.to_owned(),
            source,
        };
        Ok(Self {
            address: listener.local_addr().map_err(unusable)?,
            listener,
            // The caller sets the ALPN protocols of its server.
            config: certificates.config(&[])?,
            certificates,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the task that keeps the certificates up to date and counts failed checks in `unread`; returns what the caller must serve.
    #[must_use]
    pub fn split(self, unread: IntCounter) -> (TcpListener, ServerConfig, Kept) {
        let stop = CancellationToken::new();
        let kept = Kept {
            address: self.address,
            _looking: stop.clone().drop_guard(),
        };
        tokio::spawn(self.certificates.run(unread, stop));
        (self.listener, self.config, kept)
    }
}
