//! The client for stage calls to gateways of other clusters: a few connections to each gateway, opened on demand.
//!
//! Calls go to a cluster's gateways in turn, except to this node itself. A gateway that could not be reached is tried last for a while. As long
//! as certainly nothing has run, the same call tries the next gateway, also when one answers that it cannot run the stage.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use fdn_cluster::peer::{HEAD_MAX, UntilClosed};
use fdn_cluster::tls::{TlsSource, identity};
use fdn_core::ClusterId;
use fdn_scheduling::prewarm::Answer;
use fdn_scheduling::run::{Failure, FailureKind};
use fdn_service::CancellationToken;
use fdn_service::pki::Facts;
use fdn_service::secret::Secret;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::IntGauge;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::budget::{Budget, too_large};
use super::call::{Output, StageCall};
use super::wire::{self, Announced};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::settings::{TlsSettings, WorkflowSettings};

/// The number of gateways of a cluster that one call tries.
const TRIED: usize = 4;
/// The timeout of an announcement.
const ANNOUNCED: Duration = Duration::from_secs(2);
/// How long no announcements are sent to a gateway that does not support them.
const OLDER: Duration = Duration::from_secs(300);
/// HTTP/2 flow-control windows in bytes: of a stream, and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);

type Sender = SendRequest<Full<Bytes>>;

/// The connections to one gateway, used in turn.
struct ConnectionSlots {
    slots: Vec<tokio::sync::Mutex<Option<Sender>>>,
    next: AtomicUsize,
}

/// The client for stage calls in other clusters.
pub struct StageClient {
    settings: WorkflowSettings,
    tls: Option<Arc<TlsSource>>,
    token: HeaderValue,
    fleet: Arc<Fleet>,
    /// The agent's runtime: connections live there, not on that of a gateway thread.
    runtime: Handle,
    connections: Mutex<BTreeMap<SocketAddr, Arc<ConnectionSlots>>>,
    avoided: Mutex<BTreeMap<SocketAddr, Instant>>,
    /// Gateways that do not support announcements, and until when none are sent to them.
    older: Mutex<BTreeMap<SocketAddr, Instant>>,
    turn: AtomicUsize,
    open: IntGauge,
    own: OnceLock<SocketAddr>,
}

/// Why a request got no response.
pub(super) enum SendError {
    /// Nothing of it was sent.
    NotSent(String),
    /// The other side may have seen it.
    Lost(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StageClient {
    /// Reads the certificates. Must be called on a runtime that outlives the gateway's threads.
    ///
    /// # Errors
    /// When a certificate or the token is not usable.
    pub fn new(
        settings: &WorkflowSettings,
        tls: &TlsSettings,
        token: &Secret,
        fleet: Arc<Fleet>,
        open: IntGauge,
    ) -> Result<Self, Error> {
        let source = settings.tls(tls).map(|files| TlsSource::open(&files));
        let source = source
            .transpose()
            .map_err(|e| Error::Settings(e.to_string()))?;
        let mut token = HeaderValue::from_str(token.expose())
            .map_err(|_| Error::Settings("the network's token cannot be sent".to_owned()))?;
        token.set_sensitive(true);
        Ok(Self {
            settings: settings.clone(),
            tls: source.map(Arc::new),
            token,
            fleet,
            runtime: Handle::current(),
            connections: Mutex::default(),
            avoided: Mutex::default(),
            older: Mutex::default(),
            turn: AtomicUsize::new(0),
            open,
            own: OnceLock::new(),
        })
    }

    /// Calls a stage in `cluster`. `first`, the gateway that got the announcement, is tried before the others.
    ///
    /// # Errors
    /// How the call failed.
    pub(super) async fn call(
        &self,
        cluster: &ClusterId,
        call: StageCall,
        first: Option<SocketAddr>,
    ) -> Result<Output, Failure> {
        let told =
            format!("cluster {cluster} was not reached: it has no gateway that takes stage calls");
        let mut last = Failure::new(FailureKind::NotStarted, told);
        for address in self.in_order(cluster, first) {
            let request = wire::request(&call)?;
            last = match self.send_to(cluster, address, request).await {
                Ok(response) => match output(cluster, response, &call.budget).await {
                    Err(failure) if failure.kind == FailureKind::NotStarted => failure,
                    settled => return settled,
                },
                Err(SendError::NotSent(reason)) => {
                    let told = format!("cluster {cluster} was not reached: {reason}");
                    Failure::new(FailureKind::NotStarted, told)
                }
                Err(SendError::Lost(reason)) => {
                    let told = format!("cluster {cluster} was lost: {reason}");
                    return Err(Failure::new(FailureKind::Lost, told));
                }
            };
        }
        Err(last)
    }

    /// Announces a call to a gateway of `cluster`, to `first` before the others. Returns the answer and the gateway that gave it; the call itself
    /// is sent even if no gateway accepted the announcement.
    pub(super) async fn announce(
        &self,
        cluster: &ClusterId,
        call: &Announced,
        first: Option<SocketAddr>,
    ) -> (Answer, Option<SocketAddr>) {
        let mut last = Answer::Lost;
        for address in self.in_order(cluster, first) {
            if self.is_older(address) {
                last = Answer::Unknown;
                continue;
            }
            let Ok(request) = wire::announcement(call) else {
                return (Answer::Unknown, None);
            };
            let sending = self.send_to(cluster, address, request);
            let Ok(Ok(response)) = timeout(ANNOUNCED, sending).await else {
                return (Answer::Lost, None);
            };
            match wire::ahead(response.headers()) {
                // Another node of the cluster may be able to run it.
                Some(Answer::Unknown) => last = Answer::Unknown,
                Some(answer) => return (answer, Some(address)),
                None => {
                    let until = Instant::now() + OLDER;
                    lock(&self.older).insert(address, until);
                    last = Answer::Unknown;
                }
            }
        }
        (last, None)
    }

    /// Whether this gateway recently did not support announcements.
    fn is_older(&self, address: SocketAddr) -> bool {
        let now = Instant::now();
        let mut older = lock(&self.older);
        older.retain(|_, until| *until > now);
        older.contains_key(&address)
    }

    /// Sends a request to one gateway of a cluster.
    ///
    /// # Errors
    /// Whether the gateway may have seen the request.
    pub(super) async fn send_to(
        &self,
        cluster: &ClusterId,
        address: SocketAddr,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        if self.tls.is_none() {
            let token = self.token.clone();
            request.headers_mut().insert(wire::TOKEN, token);
        }
        let delay = self.settings.emulate_delay.get(cluster);
        if let Some(delay) = delay {
            sleep(delay.as_duration()).await;
        }
        let mut last = String::new();
        // A connection may have ended unnoticed; the second attempt opens a new one.
        for _ in 0..2 {
            let mut sender = match self.connection(cluster, address).await {
                Ok(sender) => sender,
                Err(reason) => {
                    last = reason;
                    break;
                }
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => {
                    if let Some(delay) = delay {
                        sleep(delay.as_duration()).await;
                    }
                    return Ok(response);
                }
                Err(failed) => failed,
            };
            let back = failed.take_message();
            last = chain(&failed.into_error());
            let Some(back) = back else {
                self.avoid(address);
                return Err(SendError::Lost(format!("{address}: {last}")));
            };
            request = back;
        }
        self.avoid(address);
        Err(SendError::NotSent(format!("{address}: {last}")))
    }

    /// Sets this node's own address of the stage listener; only the first call counts.
    pub fn set_own_address(&self, own: SocketAddr) {
        // A second call changes nothing.
        self.own.get_or_init(|| own);
    }

    /// The clusters with gateways that accept stage calls, by name.
    pub(super) fn clusters(&self) -> Vec<ClusterId> {
        self.fleet.view().clusters().cloned().collect()
    }

    /// The gateways of a cluster except this node, in the order in which to try them: those that failed recently come last.
    pub(super) fn others(&self, cluster: &ClusterId) -> Vec<SocketAddr> {
        self.in_order(cluster, None)
    }

    /// Like [`Self::others`], with `first` before the other gateways that did not fail recently.
    fn in_order(&self, cluster: &ClusterId, first: Option<SocketAddr>) -> Vec<SocketAddr> {
        let view = self.fleet.view();
        let mut all = view.stage_calls(cluster).to_vec();
        all.retain(|address| self.own.get() != Some(address));
        if !all.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % all.len();
            all.rotate_left(turn);
        }
        let now = Instant::now();
        let mut avoided = lock(&self.avoided);
        avoided.retain(|_, until| *until > now);
        all.sort_by_key(|address| (avoided.contains_key(address), Some(*address) != first));
        all.truncate(TRIED);
        all
    }

    fn avoid(&self, address: SocketAddr) {
        let until = Instant::now() + self.settings.avoid.as_duration();
        lock(&self.avoided).insert(address, until);
    }

    async fn connection(&self, cluster: &ClusterId, address: SocketAddr) -> Result<Sender, String> {
        let pool = self.slots_to(address);
        let turn = pool.next.fetch_add(1, Ordering::Relaxed);
        // One caller connects, the others wait for it.
        let mut slot = pool.slots[turn % pool.slots.len()].lock().await;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let limit = self.settings.connect.as_duration();
        let connecting = connect(
            self.tls.clone(),
            Arc::clone(&self.fleet),
            cluster.clone(),
            address,
            self.settings.keep_alive.as_duration(),
            self.open.clone(),
        );
        let connecting = self.runtime.spawn(timeout(limit, connecting));
        let sender = match connecting.await {
            Ok(Ok(connected)) => connected?,
            Ok(Err(_)) => return Err(format!("no connection within {limit:?}")),
            Err(error) => return Err(error.to_string()),
        };
        *slot = Some(sender.clone());
        Ok(sender)
    }

    fn slots_to(&self, address: SocketAddr) -> Arc<ConnectionSlots> {
        let mut connections = lock(&self.connections);
        if !connections.contains_key(&address) {
            // Entries of gateways that are no longer in the fleet are removed, which bounds the map.
            let view = self.fleet.view();
            connections.retain(|known, _| view.takes_stage_calls(known));
        }
        let made = connections.entry(address).or_insert_with(|| {
            let slots = (0..self.settings.connections).map(|_| tokio::sync::Mutex::default());
            Arc::new(ConnectionSlots {
                slots: slots.collect(),
                next: AtomicUsize::new(0),
            })
        });
        Arc::clone(made)
    }
}

/// Reads a gateway's response to a stage call. Each piece of the body is taken from `budget` as it arrives.
async fn output(
    cluster: &ClusterId,
    response: Response<Incoming>,
    budget: &Budget,
) -> Result<Output, Failure> {
    let (mut parts, mut body) = response.into_parts();
    let outcome = parts.headers.remove(wire::OUTCOME);
    let reason = parts.headers.remove(wire::REASON);
    if outcome.as_ref() != Some(&wire::ANSWERED) {
        let text = |value: Option<HeaderValue>| {
            value.and_then(|value| value.to_str().ok().map(str::to_owned))
        };
        let kind = wire::kind(&text(outcome).unwrap_or_default());
        let told = text(reason).unwrap_or_else(|| format!("it answered {}", parts.status));
        return Err(Failure::new(kind, format!("cluster {cluster}: {told}")));
    }
    let (mut whole, mut held) = (BytesMut::new(), budget.nothing());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let told = format!("cluster {cluster}: its answer broke off: {error}");
            Failure::new(FailureKind::Lost, told)
        })?;
        // Trailers say nothing here.
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if !held.grow(piece.len()) {
            return Err(too_large("output", held.most()));
        }
        whole.extend_from_slice(&piece);
    }
    let output = Output {
        status: parts.status,
        headers: parts.headers,
        body: whole.freeze(),
        held,
    };
    output.check_status()
}

async fn connect(
    tls: Option<Arc<TlsSource>>,
    fleet: Arc<Fleet>,
    cluster: ClusterId,
    address: SocketAddr,
    keep_alive: Duration,
    open: IntGauge,
) -> Result<Sender, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let Some(source) = tls else {
        return handshake(stream, keep_alive, open, None).await;
    };
    let connector = TlsConnector::from(source.current().client);
    let name = ServerName::from(address.ip());
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|e| e.to_string())?;
    let chain = stream.get_ref().1.peer_certificates();
    let serial = chain
        .and_then(|chain| <Facts>::of_der(chain.first()?).ok())
        .map(|facts| facts.serial);
    match (identity(chain), serial) {
        (Some(found), Some(serial))
            if found.cluster == cluster && !fleet.view().is_revoked(&serial) =>
        {
            handshake(stream, keep_alive, open, Some((fleet, serial))).await
        }
        _ => Err(format!(
            "whoever answers there is no node of cluster {cluster}"
        )),
    }
}

/// Makes a connection of a stream. `shown` is the serial number of the certificate at its other end: if that is revoked, everything on it ends.
async fn handshake(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    keep_alive: Duration,
    open: IntGauge,
    shown: Option<(Arc<Fleet>, String)>,
) -> Result<Sender, String> {
    let closer = CancellationToken::new();
    let running = UntilClosed::new(closer.clone());
    let (sender, connection) = Builder::new(running.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_header_list_size(HEAD_MAX)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error: hyper::Error| chain(&error))?;
    open.inc();
    tokio::spawn(async move {
        let revoked = async {
            match &shown {
                // Also if that was between the look at the certificate and now.
                Some((fleet, serial)) => fleet.revoked(serial).await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            if let Err(error) = connection.await {
                debug!(%error, "a connection to a gateway broke");
            }
            // A gateway that stops takes no more calls; those that are open go on, and a revocation ends them too.
            running.ended().await;
        };
        tokio::select! {
            () = ended => {}
            () = revoked => closer.cancel(),
        }
        open.dec();
    });
    Ok(sender)
}

/// The text of an error and its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fdn_core::fleet::{FleetDesired, Revoked};
    use fdn_core::{NodeId, Revision, Timestamp};
    use fdn_testkit::wait;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::DuplexStream;
    use tokio::sync::mpsc;

    use super::*;

    /// A gateway that answers no call, and takes no more once `closing` is cancelled. Returns what tells of each call that arrives.
    fn silent_gateway(io: DuplexStream, closing: CancellationToken) -> mpsc::UnboundedReceiver<()> {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let service = service_fn(move |_: Request<Incoming>| {
            arrived.send(()).expect("the test listens");
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        });
        let builder = http2::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(io), service);
        tokio::spawn(async move {
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => drop(ended),
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    drop(connection.await);
                }
            }
        });
        arrivals
    }

    #[tokio::test]
    async fn a_revocation_ends_calls_that_are_open_to_a_gateway_that_takes_no_more() {
        let folder = tempfile::tempdir().expect("folder");
        let node: NodeId = "n-1".parse().expect("node");
        let state = folder.path().to_owned();
        let fleet = Fleet::open(state, node.clone(), TlsSettings::default()).expect("opened");
        let fleet = Arc::new(fleet);
        let open = IntGauge::new("open", "open connections").expect("a gauge");
        let (here, there) = tokio::io::duplex(64 << 10);
        let closing = CancellationToken::new();
        let mut arrivals = silent_gateway(there, closing.clone());
        let shown = Some((Arc::clone(&fleet), "ab".to_owned()));
        let connecting = handshake(here, Duration::from_secs(3600), open.clone(), shown);
        let mut sender = connecting.await.expect("connected");
        let request = || {
            let request = Request::post("http://gateway/").body(Full::<Bytes>::default());
            request.expect("a request")
        };
        let call = tokio::spawn(sender.send_request(request()));
        arrivals.recv().await.expect("the call arrives");
        closing.cancel();
        wait::until("the gateway to take no more", async || {
            // The connection notices with the next call; this one is given up at once.
            drop(sender.send_request(request()));
            if sender.is_closed() {
                Ok(())
            } else {
                Err("it does")
            }
        })
        .await;
        assert!(!call.is_finished(), "it goes on");
        assert_eq!(open.get(), 1);
        let revoked = FleetDesired {
            revision: Revision(1),
            revoked: vec![Revoked {
                serial: "ab".to_owned(),
                node,
                expires_at: Timestamp(u64::MAX),
            }],
            ..FleetDesired::default()
        };
        assert!(fleet.apply(revoked).expect("kept"));
        let ended = timeout(wait::PATIENCE, call).await.expect("it is cut");
        assert!(ended.expect("no panic").is_err());
        assert_eq!(open.get(), 0);
    }
}
