//! Maintains the connection to a controller: tries one after another, with pauses, until one answers, then reads its feed until that ends.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::Revision;
use fdn_core::feed::{Decoder, Frame, SCHEMA};
use fdn_service::CancellationToken;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use rand::RngExt as _;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::{debug, error, info, warn};

use crate::backoff::moment;
use crate::request::refusal;
use crate::rotation::ControllerRotation;
use crate::settings::host_of;
use crate::{
    Body, Connection, ControllerLink, ControllerLinkSettings, Feed, FeedEvent, IdentityFiles,
    LinkError, pause, proxy,
};

/// The HTTP/2 flow-control windows, in bytes: of one stream, and of the connection.
const WINDOWS: (u32, u32) = (1 << 20, 16 << 20);
/// How many feed events are buffered before they are handled; beyond that the controller has to wait.
const FEED_BUFFER: usize = 64;
/// The longest silence until a controller has announced its heartbeat; also the time limit for the feed's response head.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a broken connection's own error.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(500);

type Sender = SendRequest<Full<Bytes>>;
/// Yields the connection's error once it breaks.
type ErrorReceiver = oneshot::Receiver<LinkError>;

/// Metrics of the connection.
#[derive(Clone)]
pub struct LinkMetrics {
    /// 1 while a controller is connected.
    pub connected: IntGauge,
    /// Connections by result: `connected`, `failed`, `ended`, `silent`, `removed`.
    pub connections: IntCounterVec,
    /// Snapshots received.
    pub snapshots: IntCounter,
    /// Frames received.
    pub frames: IntCounter,
    /// The revision up to which everything was received.
    pub revision: IntGauge,
}

impl LinkMetrics {
    /// Metrics whose names begin with `prefix`, such as `fdn_agent`.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry, prefix: &str) -> Result<Self, prometheus::Error> {
        let name = |rest: &str| format!("{prefix}_centre_{rest}");
        let metrics = Self {
            connected: IntGauge::new(name("connected"), "1 while a controller is connected")?,
            connections: IntCounterVec::new(
                Opts::new(
                    name("connections_total"),
                    "Connections to controllers by how they went",
                ),
                &["result"],
            )?,
            snapshots: IntCounter::new(name("snapshots_total"), "Snapshots that were heard")?,
            frames: IntCounter::new(name("frames_total"), "Frames of the feed that were heard")?,
            revision: IntGauge::new(
                name("revision"),
                "The revision up to which all was heard from controllers",
            )?,
        };
        registry.register(Box::new(metrics.connected.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.snapshots.clone()))?;
        registry.register(Box::new(metrics.frames.clone()))?;
        registry.register(Box::new(metrics.revision.clone()))?;
        Ok(metrics)
    }

    fn count(&self, result: &str) {
        self.connections.with_label_values(&[result]).inc();
    }
}

/// The connection of one machine to the controllers.
pub struct Link {
    sender: ArcSwapOption<Sender>,
    settings: ControllerLinkSettings,
    files: IdentityFiles,
    metrics: LinkMetrics,
    connected: watch::Sender<bool>,
    resync: Arc<Notify>,
}

/// How a feed ended.
enum FeedEnd {
    /// The controller ended the feed, or the connection broke.
    Broken(String),
    /// The controller was silent for too long.
    Silent,
    /// A snapshot was requested.
    Resync,
    /// The receiver of the feed is gone.
    Done,
}

impl Link {
    /// Maintains a connection until `stop` is cancelled. The first connection begins with a snapshot, whatever an earlier process had received.
    ///
    /// # Errors
    /// When a setting or the machine's identity cannot be used. An unreachable controller is not an error.
    pub fn start(
        settings: &ControllerLinkSettings,
        files: IdentityFiles,
        metrics: LinkMetrics,
        stop: CancellationToken,
    ) -> Result<Connection, LinkError> {
        settings.check()?;
        if settings.controllers.is_empty() {
            return Err(LinkError::Settings(
                "centre.controllers must name at least one controller's edge listener".to_owned(),
            ));
        }
        // An unusable identity needs an operator: report it at the start.
        files.read()?.client()?;
        let (sender, events) = mpsc::channel(FEED_BUFFER);
        let (up, connected) = watch::channel(false);
        let resync = Arc::new(Notify::new());
        let link = Arc::new(Self {
            sender: ArcSwapOption::empty(),
            settings: settings.clone(),
            files,
            metrics,
            connected: up,
            resync: Arc::clone(&resync),
        });
        let running = Arc::clone(&link);
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = running.maintain(sender) => {}
            }
            running.disconnected();
        });
        Ok(Connection {
            controllers: link,
            feed: Feed {
                events,
                connected,
                resync,
            },
        })
    }

    fn disconnected(&self) {
        self.sender.store(None);
        self.metrics.connected.set(0);
        self.connected.send_replace(false);
    }

    async fn maintain(&self, events: mpsc::Sender<FeedEvent>) {
        let mut rotation = ControllerRotation::new(self.settings.controllers.len());
        let (mut failures, mut since) = (0_u32, Revision::NONE);
        let mut stay = false;
        loop {
            if !std::mem::take(&mut stay) {
                rotation.next(rand::rng().random_range(0.0..1.0));
            }
            let Some(controller) = self.settings.controllers.get(rotation.current()) else {
                return;
            };
            let mut complete = false;
            let ended = match self.connect(controller).await {
                Ok((sender, error_receiver)) => {
                    let progress = (&mut since, &mut complete);
                    match self.read_feed(sender, controller, progress, &events).await {
                        Err(error) => Err(cause(error_receiver, error).await),
                        ended => ended,
                    }
                }
                Err(error) => Err(error),
            };
            self.disconnected();
            // One whose feed breaks before anything is complete is no better than one that cannot be reached.
            if ended.is_ok() && complete {
                rotation.connected();
            }
            let wait = match ended {
                Ok(FeedEnd::Done) => return,
                Ok(FeedEnd::Resync) => {
                    since = Revision::NONE;
                    failures = 0;
                    // The same controller is asked again.
                    stay = true;
                    self.jitter()
                }
                Ok(FeedEnd::Silent) => {
                    warn!(%controller, "the controller says nothing any more; another one is tried");
                    self.metrics.count("silent");
                    self.pause_after_feed(complete, &mut failures)
                }
                Ok(FeedEnd::Broken(reason)) => {
                    warn!(%controller, %reason, "the connection to the controller ended; another one is tried");
                    self.metrics.count("ended");
                    self.pause_after_feed(complete, &mut failures)
                }
                Err(LinkError::Removed) => {
                    self.metrics.count("removed");
                    // The receiver forgets everything on removal, so it needs a snapshot if the machine is let in again.
                    since = Revision::NONE;
                    if events.send(FeedEvent::Removed).await.is_err() {
                        return;
                    }
                    self.settings.retry_max.as_duration()
                }
                Err(error) => {
                    self.metrics.count("failed");
                    failures = failures.saturating_add(1);
                    let refused = error.status() == Some(StatusCode::FORBIDDEN.as_u16());
                    if refused && failures == 1 {
                        error!(%controller, %error, "the controllers do not let this machine in; what is known is gone on with");
                    } else if failures == 1 {
                        warn!(%controller, %error, "a controller cannot be reached; what is known is gone on with");
                    } else {
                        debug!(%controller, %error, "a controller cannot be reached");
                    }
                    self.pause_after(failures)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn jitter(&self) -> Duration {
        let spread = self.settings.spread.as_duration();
        moment(spread, rand::rng().random_range(0.0..1.0))
    }

    /// The pause after a feed that broke or became silent, which counts as a failure unless it was `complete` up to some revision: a controller that
    /// always breaks in the middle of its snapshot would otherwise be asked for it again and again without a pause.
    fn pause_after_feed(&self, complete: bool, failures: &mut u32) -> Duration {
        if complete {
            *failures = 0;
            return self.jitter();
        }
        *failures = failures.saturating_add(1);
        self.pause_after(*failures)
    }

    /// The pause after failed attempts. Every controller is tried once before the pauses grow.
    fn pause_after(&self, failures: u32) -> Duration {
        let all = self.settings.controllers.len();
        let rounds = failures / u32::try_from(all).unwrap_or(u32::MAX).max(1);
        if rounds == 0 {
            return self.jitter();
        }
        pause(
            rounds,
            self.settings.retry_first.as_duration(),
            self.settings.retry_max.as_duration(),
            rand::rng().random_range(0.0..1.0),
        )
    }

    async fn connect(&self, controller: &str) -> Result<(Sender, ErrorReceiver), LinkError> {
        let limit = self.settings.connect_timeout.as_duration();
        let made = timeout(limit, self.handshake(controller)).await;
        made.unwrap_or(Err(LinkError::Timeout(limit)))
    }

    async fn handshake(&self, controller: &str) -> Result<(Sender, ErrorReceiver), LinkError> {
        let config = Arc::new(self.files.read()?.client()?);
        let host = host_of(controller).unwrap_or_default().to_owned();
        let name = ServerName::try_from(host).map_err(|e| broken(&e))?;
        let stream = match &self.settings.proxy {
            Some(url) => proxy::connect(url, controller).await?,
            None => {
                let stream = TcpStream::connect(controller).await;
                stream.map_err(|e| broken(&e))?
            }
        };
        drop(stream.set_nodelay(true));
        // A failed handshake may be caused by anyone in between, so it never counts as removal of this machine.
        let stream = TlsConnector::from(config).connect(name, stream).await;
        let stream = stream.map_err(|e| LinkError::Broken(error_text(&e)))?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        // The connection task ends once no sender is left, or the controller closes the connection.
        let (failed, error_receiver) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "the connection to a controller broke");
                drop(failed.send(broken(&error)));
            }
        });
        Ok((sender, error_receiver))
    }

    /// Reads a feed until it ends. Raises `since` to the revisions that it was complete up to, and sets `complete` if there was one.
    async fn read_feed(
        &self,
        mut sender: Sender,
        controller: &str,
        (since, complete): (&mut Revision, &mut bool),
        events: &mpsc::Sender<FeedEvent>,
    ) -> Result<FeedEnd, LinkError> {
        let body = self.begin(&mut sender, *since).await?;
        info!(%controller, since = since.get(), "a controller is connected");
        self.metrics.count("connected");
        self.sender.store(Some(Arc::new(sender)));
        self.metrics.connected.set(1);
        self.connected.send_replace(true);
        let mut reader = FeedReader {
            link: self,
            decoder: Decoder::new(self.settings.snapshot_limit.as_usize()),
            silence: FIRST_FRAME_TIMEOUT,
            snapshot: None,
            events,
            since,
            complete,
        };
        tokio::select! {
            ended = reader.read(body) => ended,
            () = self.resync.notified() => Ok(FeedEnd::Resync),
        }
    }

    async fn begin(&self, sender: &mut Sender, since: Revision) -> Result<Incoming, LinkError> {
        let uri = format!(
            "https://controller/edge/v1/feed?since={}&schema={SCHEMA}",
            since.get()
        );
        let request = Request::get(uri).body(Full::default());
        let request = request.map_err(|e| broken(&e))?;
        let exchange = async {
            sender.ready().await.map_err(|e| broken(&e))?;
            let answer = sender.send_request(request).await;
            answer.map_err(|e| broken(&e))
        };
        let answer = timeout(FIRST_FRAME_TIMEOUT, exchange).await;
        let answer = answer.unwrap_or(Err(LinkError::Timeout(FIRST_FRAME_TIMEOUT)))?;
        if answer.status() != StatusCode::OK {
            return Err(refusal(answer.map(boxed)).await);
        }
        Ok(answer.into_body())
    }
}

/// The real cause of a failed request: in TLS 1.3 a client certificate is refused only after the client has begun to send, and the error arrives at
/// the connection, not at the request.
async fn cause(error_receiver: ErrorReceiver, error: LinkError) -> LinkError {
    match timeout(CAUSE_TIMEOUT, error_receiver).await {
        Ok(Ok(LinkError::Removed)) => LinkError::Removed,
        _ => error,
    }
}

/// Why a connection broke after its handshake. A revoked certificate is reported by a TLS alert, which after the handshake only a controller of
/// this network can send (RFC 8446, 6: alerts are encrypted like other records). HTTP/2 keeps only the text of that error.
fn broken(error: &(dyn std::error::Error + 'static)) -> LinkError {
    let text = error_text(error);
    let revoked = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);
    if text.contains(&revoked.to_string()) {
        return LinkError::Removed;
    }
    LinkError::Broken(text)
}

/// The text of an error and its causes.
fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(one) = next {
        let cause = one.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        next = one.source();
    }
    text
}

fn boxed(body: Incoming) -> Body {
    body.map_err(|error| Box::new(error) as Box<dyn std::error::Error + Send + Sync>)
        .boxed_unsync()
}

/// The reader of one feed.
struct FeedReader<'a> {
    link: &'a Link,
    decoder: Decoder,
    /// The longest permitted silence.
    silence: Duration,
    /// The snapshot being received: its revision, its frames, and their bytes so far.
    snapshot: Option<(Revision, Vec<Frame>, usize)>,
    events: &'a mpsc::Sender<FeedEvent>,
    since: &'a mut Revision,
    /// Whether the feed has been complete up to some revision.
    complete: &'a mut bool,
}

impl FeedReader<'_> {
    async fn read(&mut self, mut body: Incoming) -> Result<FeedEnd, LinkError> {
        loop {
            let frame = match timeout(self.silence, body.frame()).await {
                Err(_) => return Ok(FeedEnd::Silent),
                Ok(None) => return Ok(FeedEnd::Broken("it ended the feed".to_owned())),
                Ok(Some(Err(error))) => return Ok(FeedEnd::Broken(error.to_string())),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            let mut bytes = &bytes[..];
            loop {
                let frame = self.decoder.take(&mut bytes);
                let frame = frame.map_err(|e| LinkError::InvalidAnswer(e.to_string()))?;
                let Some((frame, length)) = frame else { break };
                self.link.metrics.frames.inc();
                if self.take(frame, length).await?.is_none() {
                    return Ok(FeedEnd::Done);
                }
            }
        }
    }

    /// Handles a frame; `None` if the receiver is gone.
    async fn take(&mut self, frame: Frame, length: usize) -> Result<Option<()>, LinkError> {
        match frame {
            Frame::Hello(hello) => {
                self.silence = hello.heartbeat.as_duration() * 2;
                Ok(Some(()))
            }
            Frame::Snapshot(revision) => {
                self.snapshot = Some((revision, Vec::new(), 0));
                Ok(Some(()))
            }
            Frame::At(revision) => self.at(revision).await,
            change => match &mut self.snapshot {
                Some((_, frames, bytes)) => {
                    *bytes += length;
                    let limit = self.link.settings.snapshot_limit.as_usize();
                    if *bytes > limit {
                        return Err(LinkError::TooLong(limit));
                    }
                    frames.push(change);
                    Ok(Some(()))
                }
                None => Ok(self.events.send(FeedEvent::Change(change)).await.ok()),
            },
        }
    }

    async fn at(&mut self, revision: Revision) -> Result<Option<()>, LinkError> {
        if let Some((revision, frames, _)) = self.snapshot.take() {
            self.link.metrics.snapshots.inc();
            let snapshot = FeedEvent::Snapshot(revision, frames);
            if self.events.send(snapshot).await.is_err() {
                return Ok(None);
            }
        }
        *self.complete = true;
        // A controller that is behind the previous one does not move the revision back.
        *self.since = (*self.since).max(revision);
        let shown = i64::try_from(self.since.get()).unwrap_or(i64::MAX);
        self.link.metrics.revision.set(shown);
        Ok(self.events.send(FeedEvent::At(revision)).await.ok())
    }
}

#[async_trait]
impl ControllerLink for Link {
    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Body>, LinkError> {
        let sender = self.sender.load_full().ok_or(LinkError::NotConnected)?;
        let uri = format!("https://controller{}", request.uri());
        *request.uri_mut() = uri.parse().map_err(|e| broken(&e))?;
        let limit = self.settings.answer_timeout.as_duration();
        let exchange = async {
            let mut sender = Sender::clone(&sender);
            sender.ready().await.map_err(|e| broken(&e))?;
            let answer = sender.send_request(request.map(Full::new)).await;
            answer.map_err(|e| broken(&e))
        };
        let answer = timeout(limit, exchange).await;
        let answer = answer.unwrap_or(Err(LinkError::Timeout(limit)))?;
        Ok(answer.map(boxed))
    }
}

#[cfg(test)]
mod tests;
