//! The sockets of DNS over TLS and over HTTPS, with their certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use fdn_service::certificate::Certificates;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::handler::tls::Handshakes;
use crate::handler::{Responder, https, tls};
use crate::metrics::encrypted::TransportMetrics;
use crate::settings::Settings;

/// The bound sockets and their certificate.
pub(super) struct Encrypted {
    certificates: Certificates,
    tls: (Arc<ServerConfig>, Vec<TcpListener>),
    https: (Arc<ServerConfig>, Vec<TcpListener>),
}

impl Encrypted {
    /// Reads the certificate, if any of these transports is configured.
    pub(super) fn open(
        settings: &Settings,
        (for_tls, for_https): (Vec<std::net::TcpListener>, Vec<std::net::TcpListener>),
    ) -> Result<Option<Self>, Error> {
        let Some(files) = settings.encrypted.source()? else {
            return Ok(None);
        };
        let every = settings.encrypted.check_interval.as_duration();
        let certificates = Certificates::open(vec![files], "encrypted", every)?;
        let ready = |listeners: Vec<std::net::TcpListener>| {
            let listeners = listeners.into_iter().map(TcpListener::from_std);
            listeners.collect::<Result<_, _>>().map_err(Error::Socket)
        };
        Ok(Some(Self {
            tls: (
                Arc::new(certificates.config(&[tls::ALPN])?),
                ready(for_tls)?,
            ),
            https: (
                Arc::new(certificates.config(&[https::ALPN])?),
                ready(for_https)?,
            ),
            certificates,
        }))
    }

    /// The first address of TLS, and that of HTTPS.
    pub(super) fn addresses(&self) -> [Option<SocketAddr>; 2] {
        [&self.tls, &self.https].map(|(_, listeners)| listeners.first()?.local_addr().ok())
    }

    /// Starts to serve the sockets.
    pub(super) fn serve(
        self,
        responder: &Arc<Responder>,
        settings: &Settings,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        let metrics = &responder.metrics().encrypted;
        let limits = settings.encrypted_limits();
        let handshakes = |config: &Arc<ServerConfig>, metrics: &TransportMetrics| {
            let bounds = (
                settings.encrypted.handshakes,
                settings.encrypted.handshake.as_duration(),
            );
            let counters = (metrics.failed.clone(), metrics.refused.clone());
            Handshakes::new(Arc::clone(config), bounds, counters)
        };
        let (config, listeners) = self.tls;
        for listener in listeners {
            let handshakes = handshakes(&config, &metrics.tls);
            let (responder, shutdown) = (Arc::clone(responder), shutdown.clone());
            tasks.spawn(tls::serve(
                listener, handshakes, responder, limits, shutdown,
            ));
        }
        let (config, listeners) = self.https;
        for listener in listeners {
            let handshakes = handshakes(&config, &metrics.https);
            let (responder, shutdown) = (Arc::clone(responder), shutdown.clone());
            let bounds = (limits, settings.encrypted.streams);
            tasks.spawn(https::serve(
                listener, handshakes, responder, bounds, shutdown,
            ));
        }
        let unread = metrics.unread.clone();
        tasks.spawn(self.certificates.run(unread, shutdown.clone()));
    }
}
