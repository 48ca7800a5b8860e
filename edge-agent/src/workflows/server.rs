//! The listener for stage calls of other clusters' gateways, and for controllers: HTTP/2 and mutual TLS with the network's certificates.
//!
//! A node of any cluster of the network may make stage calls only: what nodes of one cluster request of each other goes to another listener. A
//! controller may request what [`super::controllers`] answers; a DNS server is refused. A revoked or expired certificate is refused from the next
//! call on, and what is open goes on for a second at most after the revocation. Calls run on threads of their own, because a gateway's call cannot
//! leave the thread that it began on.
//!
//! A node that stops accepts no new connections, tells open ones to send no more calls, and lets running calls end: otherwise a stage that may
//! not run twice would fail its whole run.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fdn_cluster::peer::HEAD_MAX;
use fdn_cluster::tls::TlsSource;
use fdn_core::enrol::Machine;
use fdn_service::CancellationToken;
use fdn_service::pki::Facts;
use fdn_service::secret::Secret;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::controllers::{self, AnswerSources, Bearer};
use super::serve::{self, StageBody};
use super::{forward, wire};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::gateway::service::Gateway;
use crate::settings::{TlsSettings, WorkflowSettings, cores};

/// The number of connections that may wait for a thread.
const QUEUE: usize = 64;
/// The default maximum of threads.
const THREADS: usize = 4;
/// HTTP/2 flow-control windows in bytes: of a stream, and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);

/// How long calls may go on whose caller's certificate was revoked.
const LAST: Duration = Duration::from_secs(1);

/// The largest flow-control window of HTTP/2 (RFC 9113, section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// What the listener is made of.
pub struct StageServerParts {
    /// The settings of workflows.
    pub settings: WorkflowSettings,
    /// The node's certificate.
    pub tls: TlsSettings,
    /// The network's token, for connections without certificates.
    pub token: Secret,
    /// The fleet, which knows the revoked certificates.
    pub fleet: Arc<Fleet>,
    /// The gateway that answers calls.
    pub gateway: Arc<Gateway>,
    /// The sources of the answers to controllers.
    pub sources: AnswerSources,
}

/// A running listener.
pub struct StageServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// State shared by the listener's threads.
struct Shared {
    settings: WorkflowSettings,
    tls: Option<TlsSource>,
    token: Secret,
    fleet: Arc<Fleet>,
    gateway: Arc<Gateway>,
    sources: AnswerSources,
    /// One permit per connection.
    room: Arc<Semaphore>,
    /// Cancelled: no more calls are accepted; running ones go on.
    closing: CancellationToken,
    /// Cancelled: everything ends now.
    stop: CancellationToken,
}

impl StageServer {
    /// Accepts calls on `listener` until `stop` is cancelled, or until [`StageServer::stop`].
    ///
    /// # Errors
    /// When the certificates or the listener are not usable.
    pub fn start(
        parts: StageServerParts,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listener {
            what: "workflows",
            source,
        };
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let source = parts
            .settings
            .tls(&parts.tls)
            .map(|files| TlsSource::open(&files));
        let tls = source
            .transpose()
            .map_err(|e| Error::Settings(e.to_string()))?;
        let room = parts
            .settings
            .served_connections
            .min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            room: Arc::new(Semaphore::new(room)),
            closing: stop.child_token(),
            settings: parts.settings,
            tls,
            token: parts.token,
            fleet: parts.fleet,
            gateway: parts.gateway,
            sources: parts.sources,
            stop,
        });
        let threads = match shared.settings.workers {
            0 => cores().min(THREADS),
            set => set,
        };
        let mut workers = Vec::with_capacity(threads);
        for n in 0..threads {
            workers.push(worker(n, &shared).map_err(failed)?);
        }
        let task = tokio::spawn(accept(Arc::clone(&shared), listener, workers));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more calls and waits at most `grace` for running ones to end; cancelling the `stop` token of [`Self::start`] cuts off the rest.
    pub async fn stop(self, grace: Duration) {
        self.shared.closing.cancel();
        if let Err(failure) = self.task.await {
            warn!(%failure, "the listener for stage calls ended badly");
        }
        let all = self.shared.settings.served_connections;
        let all = u32::try_from(all.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        if timeout(grace, self.shared.room.acquire_many(all))
            .await
            .is_err()
        {
            warn!("stage calls of other clusters are cut: they took longer than stop.grace");
        }
    }
}

type Accepted = (std::net::TcpStream, tokio::sync::OwnedSemaphorePermit);

async fn accept(
    shared: Arc<Shared>,
    listener: tokio::net::TcpListener,
    workers: Vec<mpsc::Sender<Accepted>>,
) {
    let turn = AtomicUsize::new(0);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.closing.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of file descriptors: accepting again at once would spin.
                warn!(%error, "a stage connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&shared.room).try_acquire_owned() else {
            let served = &shared.gateway.workflows.metrics.served;
            served.with_label_values(&["not_started"]).inc();
            continue;
        };
        let next = turn.fetch_add(1, Ordering::Relaxed) % workers.len();
        match stream.into_std() {
            Ok(stream) => drop(workers[next].send((stream, permit)).await),
            Err(error) => debug!(%error, "a stage connection broke at once"),
        }
    }
}

/// Starts a thread for stage calls; returns the queue of its connections.
fn worker(n: usize, shared: &Arc<Shared>) -> std::io::Result<mpsc::Sender<Accepted>> {
    let (sender, mut connections) = mpsc::channel::<Accepted>(QUEUE);
    let shared = Arc::clone(shared);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = move || {
        let local = LocalSet::new();
        runtime.block_on(local.run_until(async move {
            let running = TaskTracker::new();
            // The loop ends when the listener accepts no more.
            while let Some((stream, permit)) = connections.recv().await {
                let shared = Arc::clone(&shared);
                running.spawn_local(async move {
                    serve_one(shared, stream).await;
                    drop(permit);
                });
            }
            running.close();
            tokio::select! {
                () = running.wait() => {}
                () = shared.stop.cancelled() => {}
            }
        }));
    };
    std::thread::Builder::new()
        .name(format!("fdn-stage-{n}"))
        .spawn(work)?;
    Ok(sender)
}

async fn serve_one(shared: Arc<Shared>, stream: std::net::TcpStream) {
    let from = stream.peer_addr().map(|peer| peer.ip()).ok();
    let stream = stream
        .set_nodelay(true)
        .and_then(|()| TcpStream::from_std(stream));
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return debug!(%error, "a stage connection broke at once"),
    };
    let Some(source) = &shared.tls else {
        return serve_requests(shared, stream, Peer { bearer: None, from }).await;
    };
    let acceptor = TlsAcceptor::from(source.current().server);
    let limit = shared.settings.connect.as_duration();
    let forbidden = || {
        let served = &shared.gateway.workflows.metrics.served;
        served.with_label_values(&["forbidden"]).inc();
    };
    let stream = match timeout(limit, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "a stage connection without a good certificate was refused");
            return forbidden();
        }
        Err(_) => return forbidden(),
    };
    let chain = stream.get_ref().1.peer_certificates();
    let shown = chain.and_then(|chain| chain.first());
    match shown.and_then(Bearer::of) {
        Some(bearer) => {
            let bearer = Some(bearer);
            serve_requests(shared, stream, Peer { bearer, from }).await;
        }
        None => {
            let facts = shown.and_then(|shown| Facts::<Machine>::of_der(shown).ok());
            let machine = facts.map(|facts| facts.identity.to_string());
            warn!(?machine, ?from, "neither a node nor a controller: refused");
            forbidden();
        }
    }
}

/// The peer of a connection.
struct Peer {
    /// Its certificate, if it presented one.
    bearer: Option<Bearer>,
    /// Its address.
    from: Option<IpAddr>,
}

/// Runs the futures of a connection on the connection's own thread.
#[derive(Clone, Copy)]
struct OnThread;

impl<F: Future + 'static> hyper::rt::Executor<F> for OnThread {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

async fn serve_requests(
    shared: Arc<Shared>,
    io: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Peer,
) {
    let keep_alive = shared.settings.keep_alive.as_duration();
    let calls = shared.settings.served_calls;
    let window = match &peer.bearer {
        // Its calls are jobs of many apps: one that does not read its input must not hold up the others.
        Some(Bearer::Controller(_)) => WINDOWS.0.saturating_mul(calls).clamp(WINDOWS.1, WINDOW_MAX),
        Some(Bearer::Node(_)) | None => WINDOWS.1,
    };
    let (closing, stop) = (shared.closing.clone(), shared.stop.clone());
    let peer = Arc::new(peer);
    let (fleet, shown) = (Arc::clone(&shared.fleet), Arc::clone(&peer));
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, peer) = (Arc::clone(&shared), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(answer(&shared, &peer, request).await) }
    });
    let connection = Builder::new(OnThread)
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(window)
        .max_header_list_size(HEAD_MAX)
        .max_concurrent_streams(calls)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .serve_connection(TokioIo::new(io), service);
    let revoked = revocation(&fleet, &shown);
    tokio::pin!(connection, revoked);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = revoked.as_mut() => None,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => Some(ended),
                () = revoked.as_mut() => None,
                () = stop.cancelled() => Some(Ok(())),
            }
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(LAST, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a stage connection broke");
    }
}

/// Resolves once the certificate of a connection is revoked.
async fn revocation(fleet: &Fleet, peer: &Peer) {
    match &peer.bearer {
        Some(bearer) => fleet.revocation(bearer.serial_and_expiry().0).await,
        None => std::future::pending().await,
    }
}

/// Answers a request if the peer may make it.
async fn answer(shared: &Shared, peer: &Peer, request: Request<Incoming>) -> Response<StageBody> {
    let metrics = &shared.gateway.workflows.metrics;
    let is_between = wire::is_one(request.uri()) || forward::is_one(request.uri());
    let is_authenticated = is_authenticated(shared, peer, &request);
    if let Some(Bearer::Controller(facts)) = &peer.bearer {
        let about = controllers::about(&request);
        let count = |outcome| {
            let requests = &metrics.controller_requests;
            requests.with_label_values(&[about, outcome]).inc();
        };
        if !is_authenticated {
            warn!(controller = %facts.identity, about, "a certificate that was revoked or has ended: refused");
            count("forbidden");
            return serve::forbidden();
        }
        count("answered");
        let parts = (&*shared.gateway, &shared.sources);
        // Boxed to keep the future of stage calls small.
        let answering = controllers::answer(parts, peer.from, request, &shared.closing);
        return Box::pin(answering).await;
    }
    if is_between && is_authenticated && shared.settings.enabled {
        return serve::answer(&shared.gateway, request).await;
    }
    if is_between {
        metrics.served.with_label_values(&["forbidden"]).inc();
    } else {
        let (about, node) = (
            controllers::about(&request),
            peer.bearer.as_ref().map(Bearer::name),
        );
        warn!(?node, about, "only controllers may ask that: refused");
        let requests = &metrics.controller_requests;
        requests.with_label_values(&[about, "forbidden"]).inc();
    }
    serve::forbidden()
}

/// Whether a request is authenticated: by the certificate of its connection, or without one by the network's token.
fn is_authenticated(shared: &Shared, peer: &Peer, request: &Request<Incoming>) -> bool {
    match &peer.bearer {
        Some(bearer) => {
            let (serial, ends) = bearer.serial_and_expiry();
            !shared.fleet.view().is_revoked(serial) && fdn_service::now() < ends
        }
        None => {
            let shown = request.headers().get(wire::TOKEN);
            shown.is_some_and(|shown| {
                shown
                    .to_str()
                    .is_ok_and(|shown| shared.token.matches(shown))
            })
        }
    }
}
