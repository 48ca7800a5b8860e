//! The gateway's listener with TLS: bound and its certificates read before anything else starts.

use std::net::{SocketAddr, TcpListener};

use fdn_service::certificate::Certificates;
use fdn_service::listen;
use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::Error;
use crate::settings::GatewayTlsSettings;

/// What the settings call the certificates.
const SETTING: &str = "gateway.tls.certificates";

/// A bound listener with what it shows.
pub struct Secure {
    listener: TcpListener,
    config: ServerConfig,
    certificates: Certificates,
}

/// The certificates are looked at as long as this lives.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) address: SocketAddr,
    _looking: DropGuard,
}

impl Secure {
    /// Binds the listener, if the settings name one.
    ///
    /// # Errors
    /// When the address is taken or a certificate cannot be used.
    pub fn open(settings: &GatewayTlsSettings) -> Result<Option<Self>, Error> {
        let Some(address) = settings.listen else {
            return Ok(None);
        };
        let every = settings.check_interval.as_duration();
        let certificates = Certificates::open(settings.certificates.clone(), SETTING, every)?;
        Ok(Some(Self {
            // The server names the protocols that it speaks.
            config: certificates.config(&[])?,
            certificates,
            listener: listen::tcp(address, "gateway.tls.listen")?,
        }))
    }

    /// Begins to look after the certificates; what is left is to be served.
    pub(super) fn split(
        self,
        unread: IntCounter,
    ) -> std::io::Result<(TcpListener, ServerConfig, Kept)> {
        let stop = CancellationToken::new();
        let kept = Kept {
            address: self.listener.local_addr()?,
            _looking: stop.clone().drop_guard(),
        };
        tokio::spawn(self.certificates.run(unread, stop));
        Ok((self.listener, self.config, kept))
    }
}
