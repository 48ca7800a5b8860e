//! DNS over TLS (RFC 7858): the messages of [`super::tcp`] over TLS, and the handshakes of both encrypted transports.
//!
//! Versions before TLS 1.2 are not supported (RFC 9325, section 3.1.1). A client that offers ALPN protocols must offer the one used here
//! (RFC 7301, section 3.2); one that offers none is served. Sessions are resumed by tickets that the client keeps, so that the server stores
//! nothing. There is no early data, because it could be replayed (RFC 8446, section 8).
//!
//! A handshake costs the server more than its peer, and a peer may begin one and never finish it. So their number and duration are limited;
//! while most slots are in use, the time limit is a tenth.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Responder;
use super::streams::{self, Limits, loaded_timeout};
use super::tcp::converse;
use crate::metrics::Transport;

/// The ALPN protocol id (RFC 7858; IANA, TLS ALPN Protocol IDs).
pub const ALPN: &[u8] = b"dot";

/// Performs TLS handshakes, within limits.
#[derive(Clone)]
pub struct Handshakes {
    acceptor: TlsAcceptor,
    slots: Arc<Semaphore>,
    max: usize,
    time: Duration,
    failed: IntCounter,
    refused: IntCounter,
}

impl Handshakes {
    /// Allows at most `max` concurrent handshakes, each of at most `time`; `failed` counts those that do not succeed, and `refused` those
    /// beyond the limit.
    #[must_use]
    pub fn new(
        config: Arc<ServerConfig>,
        (max, time): (usize, Duration),
        (failed, refused): (IntCounter, IntCounter),
    ) -> Self {
        Self {
            acceptor: TlsAcceptor::from(config),
            slots: Arc::new(Semaphore::new(max)),
            max,
            time,
            failed,
            refused,
        }
    }

    /// Performs a handshake; `None` if there is no free slot, or if it fails or takes too long.
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let Ok(_slot) = self.slots.try_acquire() else {
            self.refused.inc();
            return None;
        };
        let used = self.max.saturating_sub(self.slots.available_permits());
        let time = loaded_timeout(self.time, used, self.max);
        let Ok(Ok(stream)) = timeout(time, self.acceptor.accept(stream)).await else {
            self.failed.inc();
            return None;
        };
        Some(stream)
    }
}

/// Accepts connections and answers until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    handshakes: Handshakes,
    responder: Arc<Responder>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let metrics = responder.metrics().encrypted.tls.connections();
    streams::accept(listener, limits, metrics, shutdown, |stream, peer, slot| {
        let (responder, handshakes) = (Arc::clone(&responder), handshakes.clone());
        async move {
            if let Some(stream) = handshakes.accept(stream).await {
                let from = (peer, Transport::Tls);
                converse(stream, from, &responder, limits.request, || slot.idle()).await;
            }
        }
    })
    .await;
}
