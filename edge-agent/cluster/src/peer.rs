//! Requests between nodes beside the cluster's own streams: calls to instances on other nodes, and related requests.
//!
//! They use the same listener and the same identities: HTTP/2, each side shows a certificate of the cluster's authority, and the node that
//! answers must be the one that was asked for. This crate does not know the content: [`Peers`] answers, a [`PeerDialer`] connects.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use fdn_core::NodeId;
use fdn_core::enrol::NodeIdentity;
use http::header::HeaderName;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::link::{CONNECTION_WINDOW, Links, Peer, WINDOW, unwelcome};

/// The prefix of the paths of such requests.
pub const PREFIX: &str = "/fdn.peer.v1/";

/// The header that names the asking node, on connections without certificates.
pub const NODE: HeaderName = HeaderName::from_static("fdn-node");

/// The bytes of a request's body that may be in flight before the other side has read any of it.
pub const UNREAD: usize = WINDOW as usize;

/// The limit of the header fields of a request or answer between nodes or gateways, in bytes as HTTP/2 counts them (with 32 for each field). It is
/// above what a gateway takes from clients (128 KiB) and from instances (408 KiB), so that where a call runs decides nothing.
pub const HEAD_MAX: u32 = 512 << 10;

/// The body of a request or answer between nodes.
pub type PeerBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A pending answer.
pub type Answering = Pin<Box<dyn Future<Output = Response<PeerBody>> + Send>>;

/// Whether the node at the other end of a connection is still to be talked to, by the certificate that it has shown there.
pub type StillWelcome = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a node does for other nodes, and which ones it talks to.
pub trait Peers: Send + Sync + 'static {
    /// Whether to talk to a node with this certificate (DER): by streams, and by requests in both directions; `None` if not. The authority's
    /// signature has been verified. What is returned is asked for everything that the node begins on the connection, and every second while it
    /// is open: a connection does not outlast the permission.
    fn welcome(&self, peer: &NodeIdentity, certificate: &[u8]) -> Option<StillWelcome>;

    /// Answers a request under [`PREFIX`]. The future is dropped when the other side no longer wants the answer.
    fn answer(&self, peer: NodeId, request: Request<Incoming>) -> Answering;
}

/// Why a connection to a node could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The time limit has passed.
    #[error("connecting took too long")]
    Late,
    /// The connection was refused or lost, or the TLS handshake failed.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// The other side does not speak HTTP/2.
    #[error("no HTTP/2 connection: {0}")]
    Http(#[from] hyper::Error),
    /// Another node answers there, or one that is not to be talked to.
    #[error("whoever answers there is not node {wanted} of this cluster")]
    Identity {
        /// The node that should answer.
        wanted: NodeId,
    },
}

/// Connects to other nodes.
#[derive(Clone)]
pub struct PeerDialer(Arc<Links>);

impl std::fmt::Debug for PeerDialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerDialer").finish_non_exhaustive()
    }
}

/// A connection to a node. It ends, with all its pending requests, when `closer` is cancelled; if it ends otherwise,
/// `closer` is cancelled then.
#[derive(Clone, Debug)]
pub struct PeerConnection {
    /// Sends requests.
    pub sender: SendRequest<PeerBody>,
    /// Closes the connection when cancelled.
    pub closer: CancellationToken,
}

/// Runs what belongs to a client's connection until that is closed: open requests would otherwise keep it until they have ended.
#[derive(Clone, Debug)]
pub struct UntilClosed {
    closer: CancellationToken,
    running: TaskTracker,
}

impl UntilClosed {
    /// Until `closer` is cancelled.
    #[must_use]
    pub fn new(closer: CancellationToken) -> Self {
        Self {
            closer,
            running: TaskTracker::new(),
        }
    }

    /// Resolves once nothing of the connection runs any more, to be asked when its future has resolved: that does so as soon as no request can be
    /// begun, for example because the other side takes no more, while open requests go on.
    pub async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }
}

impl<F> Executor<F> for UntilClosed
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let closed = self.closer.clone();
        self.running
            .spawn(async move { closed.run_until_cancelled(future).await });
    }
}

impl PeerDialer {
    pub(crate) const fn new(links: Arc<Links>) -> Self {
        Self(links)
    }

    /// Connects to a node. The connection lives on the runtime on which this is called.
    ///
    /// # Errors
    /// When nobody answers in time, or another node does.
    pub async fn connect(
        &self,
        node: &NodeId,
        address: SocketAddr,
    ) -> Result<PeerConnection, PeerError> {
        let limit = self.0.connect_timeout();
        let connecting = self.try_connect(node, address);
        timeout(limit, connecting)
            .await
            .map_err(|_| PeerError::Late)?
    }

    async fn try_connect(
        &self,
        node: &NodeId,
        address: SocketAddr,
    ) -> Result<PeerConnection, PeerError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(source) = &self.0.tls else {
            return self.handshake(stream, None).await;
        };
        let connector = TlsConnector::from(source.current().client);
        let stream = connector
            .connect(ServerName::from(address.ip()), stream)
            .await?;
        match self.0.identify(stream.get_ref().1.peer_certificates()) {
            Some(peer)
                if peer.identity.node == *node && peer.identity.cluster == self.0.cluster =>
            {
                self.handshake(stream, Some(peer)).await
            }
            Some(_) | None => Err(PeerError::Identity {
                wanted: node.clone(),
            }),
        }
    }

    async fn handshake(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Option<Peer>,
    ) -> Result<PeerConnection, PeerError> {
        let keep_alive = self.0.settings.timing.keep_alive.as_duration();
        let closer = self.0.stop.child_token();
        let (sender, connection) = Builder::new(UntilClosed::new(closer.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD_MAX)
            .keep_alive_interval(keep_alive)
            .keep_alive_timeout(keep_alive)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io))
            .await?;
        let closed = closer.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        debug!(%error, "a connection to a node broke");
                    }
                }
                () = closed.cancelled() => {}
                () = unwelcome(peer.as_ref()) => {}
            }
            closed.cancel();
        });
        Ok(PeerConnection { sender, closer })
    }
}

/// Answers a request that is not one of the cluster's own streams.
pub(crate) async fn answer(
    links: &Links,
    identity: Option<NodeIdentity>,
    request: Request<Incoming>,
) -> Response<tonic::body::Body> {
    let Some(peers) = &links.peers else {
        return refused(StatusCode::NOT_FOUND);
    };
    let peer = match identity {
        Some(identity) if identity.cluster == links.cluster => Some(identity.node),
        None if links.tls.is_none() => request
            .headers()
            .get(&NODE)
            .and_then(|name| name.to_str().ok()?.parse().ok()),
        Some(_) | None => None,
    };
    match peer {
        Some(peer) if links.cuts.is_cut(&peer) => std::future::pending().await,
        Some(peer) => {
            let answer = peers.answer(peer, request).await;
            answer.map(tonic::body::Body::new)
        }
        None => refused(StatusCode::FORBIDDEN),
    }
}

/// An answer that has only a status.
pub(crate) fn refused(status: StatusCode) -> Response<tonic::body::Body> {
    let mut response = Response::new(tonic::body::Body::empty());
    *response.status_mut() = status;
    response
}
