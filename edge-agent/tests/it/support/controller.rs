//! A controller as nodes see it: an edge listener with TLS, a feed, and answers, with faults that a test can switch on.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fdn_cluster::head::lease::MemoryLeases;
use fdn_core::billing::Quantities;
use fdn_core::enrol::{LeaseRequest, LeaseResponse, Machine};
use fdn_core::feed::{AppFrame, Frame, Hello, Plain, Report};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppDesired, Message};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::usage::{UsageOutcome, UsageReceipt, UsageSum, UsageSums};
use fdn_core::{AppName, BatchId, Digest, DurationMs, NodeId, Revision, Timestamp};
use fdn_link::IdentityFiles;
use fdn_service::CancellationToken;
use fdn_service::pki::tls::Credentials;
use fdn_service::pki::{Authority, Bearer, Facts, NodeKey};
use fdn_testkit::wait;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::certify::{certify, certify_until};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The longest silence of the feed, so long that a busy machine does not count as dead.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The maximum number of reports kept for the test.
const REPORTS: usize = 20_000;

#[derive(Default)]
struct State {
    artifacts: Mutex<BTreeMap<String, Bytes>>,
    /// Machine code with its head, by component and engine.
    compiled: Mutex<BTreeMap<(String, String), Bytes>>,
    apps: Mutex<BTreeMap<AppName, AppDesired>>,
    revision: Mutex<Revision>,
    fleet: Mutex<Option<FleetDesired>>,
    /// The calls counted towards quotas, sent with the next snapshot.
    used: Mutex<Vec<AppQuotaUsage>>,
    /// The number of artifact requests to answer with wrong bytes of the same length.
    corrupt: AtomicUsize,
    /// The number of artifact requests to break off in the middle.
    cut: AtomicUsize,
    /// The number of artifact requests answered with a part because they had a range.
    ranges: AtomicUsize,
    requests: AtomicUsize,
    snapshots: AtomicUsize,
    /// Usage by batch; below, the number of repeated batches.
    usage: Mutex<BTreeMap<BatchId, UsageSums>>,
    usage_again: AtomicUsize,
    /// The number of batches to store without a receipt.
    lose_receipts: AtomicUsize,
    /// While set, usage is refused.
    usage_away: AtomicBool,
    /// While set, everything is answered with 503.
    away: AtomicBool,
    /// While set, artifact requests are not answered.
    stalled: watch::Sender<bool>,
    leases: MemoryLeases,
    /// The only node that may have the head's lease.
    head: Mutex<Option<NodeId>>,
    lease_requests: AtomicUsize,
    /// The values of secrets by name; `secret of NAME` if none was set.
    secrets: Mutex<BTreeMap<String, String>>,
    /// The queues of the open feeds.
    feeds: Mutex<Vec<(NodeId, mpsc::UnboundedSender<Frame>)>>,
    /// The reports that the test has not read yet.
    reports: Mutex<VecDeque<Message>>,
    reported: Notify,
}

pub(crate) struct FakeController {
    address: SocketAddr,
    authority: Authority,
    stop: CancellationToken,
    ended: watch::Receiver<bool>,
    state: Arc<State>,
}

impl FakeController {
    pub(crate) async fn start() -> Self {
        let now = fdn_service::now();
        let end = Timestamp(now.get() + 864_000_000);
        let authority = Authority::create(now, end).expect("an authority");
        let controller = "fdn://controller/test".parse().expect("a controller");
        let credentials = certify(
            &authority,
            Bearer::Controller(controller),
            &NodeKey::fresh().expect("a key"),
        );
        let config = credentials
            .server(Arc::new(|_| false))
            .expect("certificates");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
        let (told, ended) = watch::channel(false);
        let (shared, ending) = (Arc::clone(&state), stop.clone());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = ending.cancelled() => break,
                };
                let Ok((stream, _)) = accepted else { continue };
                let (acceptor, state, ending) =
                    (acceptor.clone(), Arc::clone(&shared), ending.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let chain = stream.get_ref().1.peer_certificates().expect("asked for");
                    let facts = Facts::<Machine>::of_der(&chain[0]).expect("a machine");
                    let machine = facts.identity;
                    let service = service_fn(move |request| {
                        let (state, machine) = (Arc::clone(&state), machine.clone());
                        async move { Ok::<_, Infallible>(answer(state, machine, request).await) }
                    });
                    let connection = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service);
                    // A node may end its connection at any time.
                    tokio::select! {
                        _ = connection => {}
                        () = ending.cancelled() => {}
                    }
                });
            }
            drop(listener);
            told.send_replace(true);
        });
        Self {
            address,
            authority,
            stop,
            ended,
            state,
        }
    }

    /// The address for nodes.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Credentials for a member of the network, valid until `end`.
    pub(crate) fn credentials(&self, bearer: Bearer, end: Timestamp) -> Credentials {
        let key = NodeKey::fresh().expect("a key");
        certify_until(&self.authority, bearer, &key, end)
    }

    /// The identity of a node, in files below its folder.
    pub(crate) fn identity(
        &self,
        folder: &Path,
        node: &NodeId,
        cluster: &fdn_core::ClusterId,
    ) -> IdentityFiles {
        let folder = folder.join("known-as");
        std::fs::create_dir_all(&folder).expect("folder");
        let key = NodeKey::read_or_create(&folder.join("node.key")).expect("a key");
        let machine: Machine = format!("fdn://cluster/{cluster}/node/{node}")
            .parse()
            .expect("a node");
        let credentials = certify(&self.authority, Bearer::Machine(machine), &key);
        let files = IdentityFiles {
            ca: folder.join("ca.pem"),
            certificate: folder.join("node.pem"),
            key: folder.join("node.key"),
        };
        std::fs::write(&files.ca, &credentials.authorities).expect("written");
        std::fs::write(&files.certificate, &credentials.certificate).expect("written");
        files
    }

    /// Stops the controller for good.
    pub(crate) async fn kill(&self) {
        self.stop.cancel();
        let mut ended = self.ended.clone();
        ended.wait_for(|ended| *ended).await.expect("it ends");
    }

    /// Sends a frame to every open feed; later feeds get the stored state only.
    pub(crate) fn tell(&self, frame: &Frame) {
        let mut feeds = self.state.feeds.lock().expect("lock");
        // A new connection gets it too, as from a real controller.
        if let Frame::Fleet(fleet) = frame {
            *self.state.fleet.lock().expect("lock") = Some(fleet.clone());
        }
        feeds.retain(|(_, feed)| feed.send(frame.clone()).is_ok());
    }

    /// Sends a frame to one node only.
    pub(crate) fn tell_to(&self, node: &str, frame: &Frame) {
        let feeds = self.state.feeds.lock().expect("lock");
        for (_, feed) in feeds.iter().filter(|(name, _)| name.as_str() == node) {
            feed.send(frame.clone()).expect("an open feed");
        }
    }

    /// Sends an app's desired state to every open feed.
    pub(crate) fn tell_app(&self, desired: AppDesired) {
        self.tell(&app_frame(&self.state, desired));
    }

    /// Sets the value of a secret.
    pub(crate) fn set_secret(&self, name: &str, value: &str) {
        let mut secrets = self.state.secrets.lock().expect("lock");
        secrets.insert(name.to_owned(), value.to_owned());
    }

    /// The next report, in order.
    pub(crate) async fn report(&self) -> Message {
        loop {
            let reported = self.state.reported.notified();
            if let Some(message) = self.state.reports.lock().expect("lock").pop_front() {
                return message;
            }
            reported.await;
        }
    }

    /// Waits for the first report that `wanted` accepts; those before it are dropped.
    pub(crate) async fn until_reported<T>(&self, wanted: impl Fn(Message) -> Option<T>) -> T {
        let found = async {
            loop {
                if let Some(found) = wanted(self.report().await) {
                    return found;
                }
            }
        };
        tokio::time::timeout(wait::PATIENCE, found)
            .await
            .expect("a report as wanted")
    }

    pub(crate) fn store(&self, component: &[u8]) {
        let mut artifacts = self.state.artifacts.lock().expect("lock");
        artifacts.insert(
            Digest::of(component).to_string(),
            Bytes::copy_from_slice(component),
        );
    }

    /// Offers machine code of a component.
    pub(crate) fn offer_compiled(&self, component: &[u8], engine: &str, bytes: Vec<u8>) {
        let of = (Digest::of(component).to_string(), engine.to_owned());
        let mut compiled = self.state.compiled.lock().expect("lock");
        compiled.insert(of, bytes.into());
    }

    /// Sets the desired state for the next snapshot.
    pub(crate) fn set(&self, desired: AppDesired) {
        *self.state.revision.lock().expect("lock") = desired.revision;
        let mut apps = self.state.apps.lock().expect("lock");
        if desired.spec.is_some() {
            apps.insert(desired.app.clone(), desired);
        } else {
            apps.remove(&desired.app);
        }
    }

    /// Makes the controller unavailable, which also ends its feeds, or available again.
    pub(crate) fn away(&self, away: bool) {
        self.state.away.store(away, Ordering::SeqCst);
        if away {
            self.end_feeds();
        }
    }

    /// Ends the feeds: nodes open new ones, and get the whole stored state.
    pub(crate) fn end_feeds(&self) {
        self.state.feeds.lock().expect("lock").clear();
    }

    /// Refuses usage, or accepts it again.
    pub(crate) fn usage_away(&self, away: bool) {
        self.state.usage_away.store(away, Ordering::SeqCst);
    }

    /// Loses the receipts of the next batches.
    pub(crate) fn lose_receipts(&self, batches: usize) {
        self.state.lose_receipts.store(batches, Ordering::SeqCst);
    }

    /// The number of batches that were sent more than once.
    pub(crate) fn usage_again(&self) -> usize {
        self.state.usage_again.load(Ordering::SeqCst)
    }

    fn sums(&self) -> Vec<UsageSum> {
        let batches = self.state.usage.lock().expect("lock");
        let all = batches.values().flat_map(|batch| batch.sums.clone());
        all.collect()
    }

    /// The sum of everything that was counted.
    pub(crate) fn counted(&self) -> Quantities {
        let mut all = Quantities::default();
        for sum in self.sums() {
            let of_sum = Quantities::of_sum(&sum).expect("bounded");
            all.add(&of_sum).expect("fits");
        }
        all
    }

    /// The counted calls of an app, by outcome.
    pub(crate) fn outcomes(&self, app: &str) -> BTreeMap<UsageOutcome, i64> {
        let mut all = BTreeMap::new();
        for sum in self.sums().iter().filter(|sum| sum.app.as_str() == app) {
            *all.entry(sum.outcome).or_default() += sum.calls;
        }
        all.retain(|_, calls| *calls != 0);
        all
    }

    /// The desired state of an app in the snapshot.
    pub(crate) fn desired(&self, app: &str) -> Option<AppDesired> {
        let apps = self.state.apps.lock().expect("lock");
        apps.values()
            .find(|desired| desired.app.as_str() == app)
            .cloned()
    }

    /// Sets the operators' decisions for the next snapshot.
    pub(crate) fn set_fleet(&self, fleet: FleetDesired) {
        *self.state.fleet.lock().expect("lock") = Some(fleet);
    }

    /// Sets the calls counted towards quotas for the next snapshot.
    pub(crate) fn set_used(&self, used: Vec<AppQuotaUsage>) {
        *self.state.used.lock().expect("lock") = used;
    }

    pub(crate) fn corrupt_next(&self, requests: usize) {
        self.state.corrupt.store(requests, Ordering::SeqCst);
    }

    pub(crate) fn cut_next(&self, requests: usize) {
        self.state.cut.store(requests, Ordering::SeqCst);
    }

    pub(crate) fn stall(&self, stalled: bool) {
        self.state.stalled.send_replace(stalled);
    }

    /// The number of requests for artifacts, and of those answered with a part.
    pub(crate) fn artifact_requests(&self) -> (usize, usize) {
        (
            self.state.requests.load(Ordering::SeqCst),
            self.state.ranges.load(Ordering::SeqCst),
        )
    }

    /// Grants the head's lease to this node only.
    pub(crate) fn lease_for(&self, node: &str) {
        *self.state.head.lock().expect("lock") = Some(node.parse().expect("node"));
    }

    /// How often the lease was requested.
    pub(crate) fn lease_requests(&self) -> usize {
        self.state.lease_requests.load(Ordering::SeqCst)
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.state.snapshots.load(Ordering::SeqCst)
    }
}

/// The frame of an app as nodes get it.
fn app_frame(state: &State, desired: AppDesired) -> Frame {
    let set = state.secrets.lock().expect("lock");
    let functions = desired.spec.iter().flat_map(|spec| &spec.functions);
    let secrets = functions.map(|function| {
        let names = function.manifest.secrets.iter();
        names
            .map(|name| {
                let value = set.get(name.as_str()).cloned();
                let value = value.unwrap_or_else(|| format!("secret of {name}"));
                (name.clone(), Plain(value))
            })
            .collect()
    });
    let secrets = secrets.collect();
    Frame::App(Box::new(AppFrame { desired, secrets }))
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

fn whole(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(bytes.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json<T: Serialize>(value: &T) -> Response<Body> {
    whole(StatusCode::OK, serde_json::to_vec(value).expect("JSON"))
}

async fn answer(state: Arc<State>, machine: Machine, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if state.away.load(Ordering::SeqCst) {
        if path.starts_with("/edge/v1/artifacts/") {
            state.requests.fetch_add(1, Ordering::SeqCst);
        }
        return whole(StatusCode::SERVICE_UNAVAILABLE, "");
    }
    let read = async move { body.collect().await.expect("a body").to_bytes() };
    match (parts.method, path.as_str()) {
        (Method::GET, "/edge/v1/feed") => feed(&state, machine.name.clone()),
        (Method::POST, "/edge/v1/report") => {
            let report: Report = serde_json::from_slice(&read.await).expect("a report");
            let mut reports = state.reports.lock().expect("lock");
            reports.extend(report.messages);
            while reports.len() > REPORTS {
                reports.pop_front();
            }
            drop(reports);
            state.reported.notify_waiters();
            whole(StatusCode::NO_CONTENT, "")
        }
        (Method::POST, "/edge/v1/usage/sums") => usage(&state, &read.await),
        (Method::POST, "/edge/v1/lease") => lease(&state, &machine, &read.await),
        (Method::GET, path) => {
            if let Some(digest) = path.strip_prefix("/edge/v1/artifacts/") {
                artifact(&state, digest, &parts.headers).await
            } else if let Some(of) = path.strip_prefix("/edge/v1/compiled/") {
                compiled(&state, of)
            } else {
                whole(StatusCode::NOT_FOUND, "")
            }
        }
        _ => whole(StatusCode::NOT_FOUND, ""),
    }
}

fn feed(state: &State, node: NodeId) -> Response<Body> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let revision = *state.revision.lock().expect("lock");
    let heartbeat = DurationMs::from_millis(u64::try_from(HEARTBEAT.as_millis()).expect("short"));
    let mut first = vec![Frame::Hello(Hello { heartbeat }), Frame::Snapshot(revision)];
    // Locked, so that nothing is sent between this state and what follows.
    let mut feeds = state.feeds.lock().expect("lock");
    first.extend(state.fleet.lock().expect("lock").clone().map(Frame::Fleet));
    let apps = state.apps.lock().expect("lock");
    first.extend(apps.values().map(|app| app_frame(state, app.clone())));
    drop(apps);
    first.push(Frame::Used(state.used.lock().expect("lock").clone()));
    first.push(Frame::At(revision));
    feeds.push((node, sender));
    drop(feeds);
    state.snapshots.fetch_add(1, Ordering::SeqCst);
    let told = stream::unfold(receiver, move |mut receiver| async move {
        let next = tokio::time::timeout(HEARTBEAT, receiver.recv()).await;
        let frame = match next {
            Ok(frame) => frame?,
            Err(_) => Frame::At(revision),
        };
        Some((frame, receiver))
    });
    let frames = stream::iter(first).chain(told);
    let bytes = frames.map(|frame| {
        Ok(BodyFrame::data(Bytes::from(
            frame.encode().expect("encoded"),
        )))
    });
    Response::new(StreamBody::new(bytes).boxed_unsync())
}

async fn artifact(state: &State, digest: &str, headers: &HeaderMap) -> Response<Body> {
    state.requests.fetch_add(1, Ordering::SeqCst);
    let mut stalled = state.stalled.subscribe();
    drop(stalled.wait_for(|stalled| !stalled).await);
    let stored = state.artifacts.lock().expect("lock").get(digest).cloned();
    let Some(mut bytes) = stored else {
        return whole(StatusCode::NOT_FOUND, "");
    };
    if take_one(&state.corrupt) {
        let mut changed = bytes.to_vec();
        changed[0] ^= 1;
        bytes = changed.into();
    }
    let range = headers.get(header::RANGE).and_then(|v| v.to_str().ok());
    let start = range.and_then(|r| {
        r.strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    let total = bytes.len();
    let cut = take_one(&state.cut);
    if let Some(start) = start {
        bytes = bytes.slice(start..);
    }
    let mut response = if cut {
        let half = bytes.slice(..bytes.len() / 2);
        // One step later, so that the bytes before it are sent.
        let broken = async {
            tokio::task::yield_now().await;
            Err(std::io::Error::other("cut"))
        };
        let bytes = stream::iter([Ok(BodyFrame::data(half))]).chain(stream::once(broken));
        Response::new(StreamBody::new(bytes).boxed_unsync())
    } else {
        whole(StatusCode::OK, bytes)
    };
    if let Some(start) = start {
        state.ranges.fetch_add(1, Ordering::SeqCst);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {start}-{}/{total}", total - 1);
        let range = range.parse().expect("a header");
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

fn compiled(state: &State, of: &str) -> Response<Body> {
    let of = of.split_once('/').expect("a component and an engine");
    let of = (of.0.to_owned(), of.1.to_owned());
    let found = state.compiled.lock().expect("lock").get(&of).cloned();
    match found {
        Some(bytes) => whole(StatusCode::OK, bytes),
        None => whole(StatusCode::NOT_FOUND, ""),
    }
}

fn usage(state: &State, bytes: &[u8]) -> Response<Body> {
    if state.usage_away.load(Ordering::SeqCst) {
        return whole(StatusCode::SERVICE_UNAVAILABLE, "");
    }
    let batch: UsageSums = serde_json::from_slice(bytes).expect("sums");
    let mut all = state.usage.lock().expect("lock");
    let before = all.get(&batch.batch);
    let duplicate = before.is_some();
    if let Some(before) = before {
        assert_eq!(*before, batch, "a batch is always the same");
        state.usage_again.fetch_add(1, Ordering::SeqCst);
    }
    let stored = u64::from(batch.records);
    all.insert(batch.batch, batch);
    if take_one(&state.lose_receipts) {
        return whole(StatusCode::BAD_GATEWAY, "");
    }
    json(&UsageReceipt { stored, duplicate })
}

fn lease(state: &State, machine: &Machine, bytes: &[u8]) -> Response<Body> {
    let asked: LeaseRequest = serde_json::from_slice(bytes).expect("a wish");
    state.lease_requests.fetch_add(1, Ordering::SeqCst);
    let head = state.head.lock().expect("lock").clone();
    if let Some(holder) = head.filter(|head| *head != asked.node) {
        return json(&LeaseResponse {
            holder,
            epoch: 1,
            expires_ms: 5000,
        });
    }
    let now = std::time::Instant::now();
    json(&state.leases.acquire_at(now, &machine.cluster, &asked))
}
