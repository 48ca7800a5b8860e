//! A listener with TLS: bound, and its certificates read, before anything else starts.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::certificate::{CertificateFiles, Certificates};
use crate::error::ServiceError;
use crate::listen;

/// A bound listener with what it shows.
pub struct Secure {
    address: SocketAddr,
    listener: TcpListener,
    config: ServerConfig,
    certificates: Certificates,
}

/// The certificates are looked at as long as this lives.
#[derive(Debug)]
pub struct Kept {
    address: SocketAddr,
    _looking: DropGuard,
}

impl Kept {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Secure {
    /// Reads the certificates, then binds the listener. Errors name the settings: `listens` the address, `shows` the section of the certificates, whose
    /// files are looked at again after `every`.
    ///
    /// # Errors
    /// When the address is taken or a certificate cannot be used.
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
            // The server names the protocols that it speaks.
            config: certificates.config(&[])?,
            certificates,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to look after the certificates, and counts the looks that fail; what is left is to be served.
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
