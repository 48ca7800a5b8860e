//! DNS over TLS (RFC 7858): the messages of [`super::tcp`] inside TLS, and the handshakes of both encrypted transports.
//!
//! Versions before TLS 1.2 are not spoken (RFC 9325, section 3.1.1). A client that names protocols must name the one that is spoken here
//! (RFC 7301, section 3.2); one that names none is served. Sessions are resumed by tickets that the client keeps, so that nothing is held for
//! those who have left. There is no early data: it could be replayed (RFC 8446, section 8).
//!
//! A handshake costs the server more than its peer, and a peer may begin one and say no more. So many are under way at once and for
//! so long; while most of these places are taken, for a tenth of that.

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
use super::streams::{self, Limits, in_crowd};
use super::tcp::converse;
use crate::metrics::Transport;

/// The protocol as TLS names it (RFC 7858; IANA, TLS ALPN Protocol IDs).
pub const ALPN: &[u8] = b"dot";

/// What begins encrypted connections.
#[derive(Clone)]
pub struct Handshakes {
    acceptor: TlsAcceptor,
    places: Arc<Semaphore>,
    most: usize,
    time: Duration,
    failed: IntCounter,
    refused: IntCounter,
}

impl Handshakes {
    /// So many at once, none of which takes longer than `time`; `failed` and `refused` count those that do not succeed and those that are
    /// too many.
    #[must_use]
    pub fn new(
        config: Arc<ServerConfig>,
        (most, time): (usize, Duration),
        (failed, refused): (IntCounter, IntCounter),
    ) -> Self {
        Self {
            acceptor: TlsAcceptor::from(config),
            places: Arc::new(Semaphore::new(most)),
            most,
            time,
            failed,
            refused,
        }
    }

    /// Shakes hands, if there is room and the peer does it right and in time.
    pub(super) async fn shake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let Ok(_place) = self.places.try_acquire() else {
            self.refused.inc();
            return None;
        };
        let used = self.most.saturating_sub(self.places.available_permits());
        let time = in_crowd(self.time, used, self.most);
        let Ok(Ok(stream)) = timeout(time, self.acceptor.accept(stream)).await else {
            self.failed.inc();
            return None;
        };
        Some(stream)
    }
}

/// Accepts and answers until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    handshakes: Handshakes,
    responder: Arc<Responder>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let counts = responder.metrics().encrypted.tls.counts();
    streams::accept(listener, limits, counts, shutdown, |stream, peer, place| {
        let (responder, handshakes) = (Arc::clone(&responder), handshakes.clone());
        async move {
            if let Some(stream) = handshakes.shake(stream).await {
                let from = (peer, Transport::Tls);
                converse(stream, from, &responder, limits.request, || place.idle()).await;
            }
        }
    })
    .await;
}
