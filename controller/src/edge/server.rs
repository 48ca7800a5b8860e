//! The listener for machines: accepts connections, checks certificates, and serves HTTP/2 until a connection's certificate is revoked or expires.

use std::convert::Infallible;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use fdn_core::enrol::Machine;
use fdn_service::pki::{Facts, PublicKey};
use fdn_service::{CancellationToken, listen};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::admission::UNKNOWN_MACHINE;
use super::machines::ConnectionGuard;
use super::{admission, requests};
use crate::settings::EdgeSettings;
use crate::state::State;
use crate::store::enrolment::CertificateRow;

/// HTTP/2 flow-control windows in bytes: of a request, and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);
/// The most bytes of a request's header fields.
const HEADERS_MAX: u32 = 16 << 10;
/// How long running requests may take to end when the controller stops.
const GRACE: Duration = Duration::from_secs(5);
/// How long a refused connection may take to close.
const LINGER: Duration = Duration::from_secs(1);
/// The interval of keep-alive pings to a silent machine. A machine that is gone, or whose network is, is detected by the kernel, from heartbeats
/// without acknowledgement; the pings are for intermediaries, such as a proxy that keeps a connection whose other side is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// State shared by the connections.
pub(super) struct Shared {
    pub(super) state: Arc<State>,
    /// This controller's certificate, and which machines are admitted.
    pub(super) tls: RwLock<Arc<ServerConfig>>,
    /// Cancelled at shutdown: no new connections, and the open ones end.
    pub(super) stop: CancellationToken,
}

impl Shared {
    fn count(&self, result: &str) {
        let accepted = &self.state.metrics.edge.accepted;
        accepted.with_label_values(&[result]).inc();
    }

    fn tls(&self) -> Arc<ServerConfig> {
        let tls = self.tls.read();
        Arc::clone(&tls.unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The machine at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) machine: Machine,
    pub(super) certificate: CertificateRow,
    /// Whether the store knows it; `None` if the store did not answer when it connected.
    pub(super) known: Option<bool>,
    /// The machine's permits to send bodies.
    pub(super) body_permits: Arc<Semaphore>,
    /// Cancelled when it does not read what it asked for.
    pub(super) stalled: CancellationToken,
}

/// Accepts connections until shutdown, and then waits for the open ones to end.
pub(super) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let settings = &shared.state.settings.edge;
    let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let (room, handshakes) = (
        semaphore(settings.connections),
        semaphore(settings.handshakes),
    );
    let running = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // File descriptors have run out, most likely: accepting again at once would be a busy loop.
                warn!(%error, "a machine's connection cannot be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Handshakes have a limit of their own, so that connections without a certificate take no machine's place.
        let Ok(handshake) = Arc::clone(&handshakes).try_acquire_owned() else {
            shared.count("busy");
            continue;
        };
        let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
        running.spawn(connection(shared, stream, handshake, room));
    }
    drop(listener);
    running.close();
    running.wait().await;
}

/// Serves one connection from its handshake to its end.
async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    handshake: OwnedSemaphorePermit,
    room: Arc<Semaphore>,
) {
    let from = stream.peer_addr().ok();
    // Small frames must not be delayed (Nagle's algorithm).
    drop(stream.set_nodelay(true));
    let gone = ack_timeout(&shared.state.settings.edge) * 2;
    if let Err(error) = listen::set_liveness_timeout(&stream, gone) {
        debug!(%error, "a dead machine's connection is found late");
    }
    let limit = shared.state.settings.edge.handshake.as_duration();
    let handshake_done = TlsAcceptor::from(shared.tls())
        .accept(stream)
        .into_fallible();
    let handshake_done = tokio::select! {
        handshake_done = timeout(limit, handshake_done) => handshake_done,
        () = shared.stop.cancelled() => return,
    };
    let stream = match handshake_done {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, stream))) => {
            shared.count("handshake");
            debug!(?from, %error, "a connection without a good certificate was refused");
            return linger(stream).await;
        }
        Err(_) => return shared.count("handshake"),
    };
    let chain = stream.get_ref().1.peer_certificates();
    let read = chain.and_then(|chain| {
        let leaf = chain.first()?;
        let facts = Facts::<Machine>::of_der(leaf).ok()?;
        Some((facts, PublicKey::of_certificate(leaf).ok()?))
    });
    let Some((facts, key)) = read else {
        return shared.count("handshake");
    };
    let state = &shared.state;
    let (settings, machines) = (&state.settings.edge, &state.edge.machines);
    let guard = machines.open(&facts.identity, &facts.serial, settings, &state.metrics);
    let Some(guard) = guard else {
        let most = settings.per_machine;
        warn!(machine = %facts.identity, most, "a machine has as many connections as it may; the next one is refused");
        return shared.count("machine");
    };
    let Ok(place) = room.try_acquire_owned() else {
        return shared.count("full");
    };
    drop(handshake);
    shared.count("open");
    let left = facts.expires_at.since(fdn_service::now());
    let certificate = admission::presented(&facts, &key);
    let peer = Arc::new(Peer {
        known: admission::is_known(state, &facts.identity, &certificate).await,
        machine: facts.identity,
        certificate,
        body_permits: Arc::clone(&guard.body_permits),
        stalled: CancellationToken::new(),
    });
    debug!(machine = %peer.machine, ?from, "a machine is connected");
    serve(&shared, stream, peer, guard, left).await;
    drop(place);
}

/// How long sent data may remain unacknowledged.
fn ack_timeout(settings: &EdgeSettings) -> Duration {
    let heartbeat = settings.heartbeat.as_duration();
    heartbeat.max(Duration::from_secs(5))
}

/// Closes a connection so that the other end can still read why: data that it sent meanwhile would cause a reset.
async fn linger(mut stream: TcpStream) {
    let over = async {
        drop(stream.shutdown().await);
        let mut bytes = [0; 1024];
        while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    drop(timeout(LINGER, over).await);
}

async fn serve(
    shared: &Arc<Shared>,
    stream: TlsStream<TcpStream>,
    peer: Arc<Peer>,
    guard: ConnectionGuard,
    left: Duration,
) {
    let settings = &shared.state.settings.edge;
    let end = guard.cut.child_token();
    let service = {
        let (state, peer, end) = (Arc::clone(&shared.state), Arc::clone(&peer), end.clone());
        service_fn(move |request: Request<Incoming>| {
            let (state, peer, end) = (Arc::clone(&state), Arc::clone(&peer), end.clone());
            async move { Ok::<_, Infallible>(requests::answer(state, peer, end, request).await) }
        })
    };
    let connection = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_concurrent_streams(settings.requests)
        .max_header_list_size(HEADERS_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(ack_timeout(settings))
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = guard.cut.cancelled() => {
            shared.state.metrics.edge.cut.inc();
            info!(machine = %peer.machine, "the connection of a machine was cut: its certificate no longer counts");
            return;
        }
        () = Box::pin(admission::turns_out_unknown(&shared.state, &peer)) => {
            shared.state.metrics.edge.cut.inc();
            drop(requests::refused(&shared.state, &peer.machine, UNKNOWN_MACHINE));
            return;
        }
        () = peer.stalled.cancelled() => {
            shared.state.metrics.edge.stalled.inc();
            warn!(machine = %peer.machine, "the connection of a machine was cut: it asked for an artifact and took nothing of it for edge.stall");
            return;
        }
        () = tokio::time::sleep(left) => {
            shared.state.metrics.edge.cut.inc();
            info!(machine = %peer.machine, "the connection of a machine was cut: its certificate has ended");
            return;
        }
        () = shared.stop.cancelled() => {
            // Feeds end, so that their machines connect elsewhere; running requests may finish.
            end.cancel();
            connection.as_mut().graceful_shutdown();
            match timeout(GRACE, connection).await {
                Ok(ended) => ended,
                Err(_) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        debug!(machine = %peer.machine, %error, "the connection of a machine broke");
    }
}
