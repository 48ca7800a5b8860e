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
pub struct TlsListener {
    address: SocketAddr,
    listener: TcpListener,
    config: ServerConfig,
    certificates: Certificates,
}

/// Keeps the certificates up to date until it is dropped.
#[derive(Debug)]
pub struct CertificateReloader {
    address: SocketAddr,
    _stop: DropGuard,
}

impl CertificateReloader {
    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl TlsListener {
    /// Reads the certificates, then binds the listener. Errors name the settings: `address_setting` for the address, `certificates_setting` for the section of the
    /// certificates,
    /// whose files are checked every `every`.
    ///
    /// # Errors
    /// When the address is taken, or a certificate cannot be used.
    pub fn open(
        (address, address_setting): (SocketAddr, &str),
        (files, certificates_setting): (&[CertificateFiles], &'static str),
        every: Duration,
    ) -> Result<Self, ServiceError> {
        let certificates = Certificates::open(files.to_vec(), certificates_setting, every)?;
        let listener = listen::tcp(address, address_setting)?;
        let unusable = |source| ServiceError::Listen {
            address,
            setting: address_setting.to_owned(),
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
    pub fn split(self, unread: IntCounter) -> (TcpListener, ServerConfig, CertificateReloader) {
        let stop = CancellationToken::new();
        let reloader = CertificateReloader {
            address: self.address,
            _stop: stop.clone().drop_guard(),
        };
        tokio::spawn(self.certificates.run(unread, stop));
        (self.listener, self.config, reloader)
    }
}
