//! Stage calls to gateways of other clusters: a few connections to each, made when they are needed.
//!
//! A cluster's gateways take turns, this one itself left out. One that was not reached is tried after the others for a while; as long as surely
//! nothing has run, the next one is tried within the same call: also where one says that it cannot run the stage.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fdn_cluster::tls::{TlsSource, identity};
use fdn_core::ClusterId;
use fdn_scheduling::prewarm::Answer;
use fdn_scheduling::run::{Failure, FailureKind};
use fdn_service::pki::Facts;
use fdn_service::secret::Secret;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus::IntGauge;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::call::{Output, StageCall};
use super::here::too_large;
use super::wire::{self, Announced};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::settings::{TlsSettings, WorkflowSettings};

/// Gateways of a cluster that one call tries.
const TRIED: usize = 4;
/// How long is waited for what a gateway says of a call that will come.
const ANNOUNCED: Duration = Duration::from_secs(2);
/// How long a gateway that does not know of such calls is told of none.
const OLDER: Duration = Duration::from_secs(300);
/// What may be on its way before the other side has read any of it: of one call, and of one connection.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);

type Sender = SendRequest<Full<Bytes>>;

/// The connections to one gateway.
struct Lines {
    slots: Vec<tokio::sync::Mutex<Option<Sender>>>,
    next: AtomicUsize,
}

/// Calls stages in other clusters.
pub struct StageClient {
    settings: WorkflowSettings,
    tls: Option<Arc<TlsSource>>,
    token: HeaderValue,
    fleet: Arc<Fleet>,
    /// Connections live on the agent's runtime, not on that of a gateway thread.
    runtime: Handle,
    lines: Mutex<BTreeMap<SocketAddr, Arc<Lines>>>,
    avoided: Mutex<BTreeMap<SocketAddr, Instant>>,
    /// Gateways that do not know what it is to be told of a call, and until when they are told of none.
    older: Mutex<BTreeMap<SocketAddr, Instant>>,
    turn: AtomicUsize,
    open: IntGauge,
    own: OnceLock<SocketAddr>,
}

/// A request that no gateway has answered.
pub(super) enum Unanswered {
    /// Nothing of it was handed over.
    NotSent(String),
    /// It may have been seen.
    Lost(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StageClient {
    /// Reads the certificates. Must be called on the runtime that outlives the gateway's threads.
    ///
    /// # Errors
    /// When one of them, or the token, cannot be used.
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
            lines: Mutex::default(),
            avoided: Mutex::default(),
            older: Mutex::default(),
            turn: AtomicUsize::new(0),
            open,
            own: OnceLock::new(),
        })
    }

    /// Calls a stage in `cluster`, `first` before its other gateways: the one that was told of the call.
    ///
    /// # Errors
    /// How it failed.
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
                Ok(response) => match output(cluster, response, call.most).await {
                    Err(failure) if failure.kind == FailureKind::NotStarted => failure,
                    settled => return settled,
                },
                Err(Unanswered::NotSent(reason)) => {
                    let told = format!("cluster {cluster} was not reached: {reason}");
                    Failure::new(FailureKind::NotStarted, told)
                }
                Err(Unanswered::Lost(reason)) => {
                    let told = format!("cluster {cluster} was lost: {reason}");
                    return Err(Failure::new(FailureKind::Lost, told));
                }
            };
        }
        Err(last)
    }

    /// Tells a gateway of `cluster`, `first` before the others, of a call that will come. What it has done, and which one it is; a call that is not
    /// expected anywhere comes all the same.
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
                // Another node of the cluster may run it.
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

    /// Whether a gateway did not know lately what it is to be told of a call.
    fn is_older(&self, address: SocketAddr) -> bool {
        let now = Instant::now();
        let mut older = lock(&self.older);
        older.retain(|_, until| *until > now);
        older.contains_key(&address)
    }

    /// Sends a request to one gateway of a cluster.
    ///
    /// # Errors
    /// Whether it may have been seen there.
    pub(super) async fn send_to(
        &self,
        cluster: &ClusterId,
        address: SocketAddr,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        if self.tls.is_none() {
            let token = self.token.clone();
            request.headers_mut().insert(wire::TOKEN, token);
        }
        let delay = self.settings.emulate_delay.get(cluster);
        if let Some(delay) = delay {
            sleep(delay.as_duration()).await;
        }
        let mut last = String::new();
        // A connection may have ended and not been noticed: the next one is new.
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
                return Err(Unanswered::Lost(format!("{address}: {last}")));
            };
            request = back;
        }
        self.avoid(address);
        Err(Unanswered::NotSent(format!("{address}: {last}")))
    }

    /// Where this node itself takes such calls; told once.
    pub fn is_at(&self, own: SocketAddr) {
        // A second time changes nothing.
        self.own.get_or_init(|| own);
    }

    /// The clusters of which gateways take such calls, by name.
    pub(super) fn clusters(&self) -> Vec<ClusterId> {
        self.fleet.view().clusters().cloned().collect()
    }

    /// Other gateways of a cluster in the order in which they are tried: those that were reached lately first.
    pub(super) fn others(&self, cluster: &ClusterId) -> Vec<SocketAddr> {
        self.in_order(cluster, None)
    }

    /// The same, with `first` before the others that were reached lately.
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
        let lines = self.lines_to(address);
        let turn = lines.next.fetch_add(1, Ordering::Relaxed);
        // One connects, the others wait for it.
        let mut slot = lines.slots[turn % lines.slots.len()].lock().await;
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

    fn lines_to(&self, address: SocketAddr) -> Arc<Lines> {
        let mut lines = lock(&self.lines);
        if !lines.contains_key(&address) {
            // As many as there are gateways at a time: those that nobody names any more go.
            let view = self.fleet.view();
            lines.retain(|known, _| view.takes_stage_calls(known));
        }
        let made = lines.entry(address).or_insert_with(|| {
            let slots = (0..self.settings.connections).map(|_| tokio::sync::Mutex::default());
            Arc::new(Lines {
                slots: slots.collect(),
                next: AtomicUsize::new(0),
            })
        });
        Arc::clone(made)
    }
}

/// What a gateway answered to a stage call, `most` bytes at most.
async fn output(
    cluster: &ClusterId,
    response: Response<Incoming>,
    most: usize,
) -> Result<Output, Failure> {
    let (mut parts, body) = response.into_parts();
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
    let whole = Limited::new(body, most).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            return too_large(most);
        }
        let told = format!("cluster {cluster}: its answer broke off: {error}");
        Failure::new(FailureKind::Lost, told)
    })?;
    let output = Output {
        status: parts.status,
        headers: parts.headers,
        body: whole.to_bytes(),
    };
    output.judged()
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
        return handshake(stream, keep_alive, open).await;
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
            handshake(stream, keep_alive, open).await
        }
        _ => Err(format!(
            "whoever answers there is no node of cluster {cluster}"
        )),
    }
}

async fn handshake(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    keep_alive: Duration,
    open: IntGauge,
) -> Result<Sender, String> {
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error: hyper::Error| chain(&error))?;
    open.inc();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(%error, "a connection to a gateway broke");
        }
        open.dec();
    });
    Ok(sender)
}

/// An error with its causes on one line.
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
