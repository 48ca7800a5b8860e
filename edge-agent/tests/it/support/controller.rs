//! The part of a controller that nodes speak to over HTTP, with faults that a test switches on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::http::header;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use fdn_cluster::head::lease::MemoryLeases;
use fdn_core::api::AppsSnapshot;
use fdn_core::billing::Quantities;
use fdn_core::enrol::{LeaseRequest, LeaseResponse};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::AppDesired;
use fdn_core::policy::quota::AppUsed;
use fdn_core::usage::{UsageOutcome, UsageReceipt, UsageSum, UsageSums};
use fdn_core::{AppName, BatchId, ClusterId, Digest, NodeId, Revision};
use fdn_service::secret::Secret;
use futures::{StreamExt, stream};

#[derive(Default)]
struct State {
    artifacts: Mutex<BTreeMap<String, Bytes>>,
    /// Machine code behind its head, by component and engine.
    compiled: Mutex<BTreeMap<(String, String), Bytes>>,
    apps: Mutex<BTreeMap<AppName, AppDesired>>,
    revision: Mutex<Revision>,
    fleet: Mutex<Option<FleetDesired>>,
    /// Calls counted towards quotas, told with the next snapshot.
    used: Mutex<Vec<AppUsed>>,
    /// Artifact requests that are answered with other octets of the same length.
    corrupt: AtomicUsize,
    /// Artifact requests that break off in the middle.
    cut: AtomicUsize,
    /// Artifact requests answered with a part, because a range was asked for.
    ranges: AtomicUsize,
    requests: AtomicUsize,
    snapshots: AtomicUsize,
    /// Usage, by batch, and batches that came again.
    usage: Mutex<BTreeMap<BatchId, UsageSums>>,
    usage_again: AtomicUsize,
    /// Batches that are stored, but whose receipts are lost.
    lose_receipts: AtomicUsize,
    /// Usage is refused while this is set.
    usage_away: AtomicBool,
    /// Nothing is answered but 503 while this is set.
    away: AtomicBool,
    /// Artifact requests are not answered while this is set.
    stalled: AtomicBool,
    token: Option<Secret>,
    leases: MemoryLeases,
    /// The only node that may have the lease on being the head.
    head: Mutex<Option<NodeId>>,
    lease_requests: AtomicUsize,
}

pub(crate) struct FakeController {
    address: SocketAddr,
    handle: ServerHandle,
    state: Arc<State>,
}

impl FakeController {
    pub(crate) async fn start(token: Secret) -> Self {
        let state = Arc::new(State {
            token: Some(token),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::from(Arc::clone(&shared)))
                .route("/agent/v1/apps", web::get().to(apps))
                .route("/agent/v1/artifacts/{digest}", web::get().to(artifact))
                .route(
                    "/agent/v1/compiled/{digest}/{engine}",
                    web::get().to(compiled),
                )
                .app_data(web::JsonConfig::default().limit(4 << 20))
                .route("/agent/v1/usage/sums", web::post().to(usage))
                .route(
                    "/internal/v1/clusters/{cluster}/head-lease",
                    web::post().to(head_lease),
                )
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(0)
        .listen(listener)
        .expect("listen")
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        Self {
            address,
            handle,
            state,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The controller is gone.
    pub(crate) async fn kill(&self) {
        self.handle.stop(false).await;
    }

    pub(crate) fn store(&self, component: &[u8]) {
        let mut artifacts = self.state.artifacts.lock().expect("lock");
        artifacts.insert(
            Digest::of(component).to_string(),
            Bytes::copy_from_slice(component),
        );
    }

    /// Answers whoever asks for the machine code of a component.
    pub(crate) fn offer_compiled(&self, component: &[u8], engine: &str, octets: Vec<u8>) {
        let of = (Digest::of(component).to_string(), engine.to_owned());
        let mut compiled = self.state.compiled.lock().expect("lock");
        compiled.insert(of, octets.into());
    }

    /// Desired state as the snapshot tells it from now on.
    pub(crate) fn set(&self, desired: AppDesired) {
        *self.state.revision.lock().expect("lock") = desired.revision;
        let mut apps = self.state.apps.lock().expect("lock");
        if desired.spec.is_some() {
            apps.insert(desired.app.clone(), desired);
        } else {
            apps.remove(&desired.app);
        }
    }

    /// The controller cannot be asked for anything, or can again.
    pub(crate) fn away(&self, away: bool) {
        self.state.away.store(away, Ordering::SeqCst);
    }

    /// Usage is refused, or taken again.
    pub(crate) fn usage_away(&self, away: bool) {
        self.state.usage_away.store(away, Ordering::SeqCst);
    }

    /// The receipts of the next batches are lost.
    pub(crate) fn lose_receipts(&self, batches: usize) {
        self.state.lose_receipts.store(batches, Ordering::SeqCst);
    }

    /// Batches that came more than once.
    pub(crate) fn usage_again(&self) -> usize {
        self.state.usage_again.load(Ordering::SeqCst)
    }

    fn sums(&self) -> Vec<UsageSum> {
        let batches = self.state.usage.lock().expect("lock");
        let all = batches.values().flat_map(|batch| batch.sums.clone());
        all.collect()
    }

    /// Everything that is counted.
    pub(crate) fn counted(&self) -> Quantities {
        let mut all = Quantities::default();
        for sum in self.sums() {
            let of_sum = Quantities::of_sum(&sum).expect("bounded");
            all.add(&of_sum).expect("fits");
        }
        all
    }

    /// Calls of an app that are counted, by how they ended.
    pub(crate) fn outcomes(&self, app: &str) -> BTreeMap<UsageOutcome, i64> {
        let mut all = BTreeMap::new();
        for sum in self.sums().iter().filter(|sum| sum.app.as_str() == app) {
            *all.entry(sum.outcome).or_default() += sum.calls;
        }
        all.retain(|_, calls| *calls != 0);
        all
    }

    /// What the snapshot says of an app.
    pub(crate) fn desired(&self, app: &str) -> Option<AppDesired> {
        let apps = self.state.apps.lock().expect("lock");
        apps.values()
            .find(|desired| desired.app.as_str() == app)
            .cloned()
    }

    /// What operators said, told with the next snapshot.
    pub(crate) fn set_fleet(&self, fleet: FleetDesired) {
        *self.state.fleet.lock().expect("lock") = Some(fleet);
    }

    /// Calls counted towards quotas, told with the next snapshot.
    pub(crate) fn set_used(&self, used: Vec<AppUsed>) {
        *self.state.used.lock().expect("lock") = used;
    }

    pub(crate) fn corrupt_next(&self, requests: usize) {
        self.state.corrupt.store(requests, Ordering::SeqCst);
    }

    pub(crate) fn cut_next(&self, requests: usize) {
        self.state.cut.store(requests, Ordering::SeqCst);
    }

    pub(crate) fn stall(&self, stalled: bool) {
        self.state.stalled.store(stalled, Ordering::SeqCst);
    }

    /// How often an artifact was asked for, and how often a part of one was given.
    pub(crate) fn artifact_requests(&self) -> (usize, usize) {
        (
            self.state.requests.load(Ordering::SeqCst),
            self.state.ranges.load(Ordering::SeqCst),
        )
    }

    /// Only this node gets the lease on being the head from now on.
    pub(crate) fn lease_for(&self, node: &str) {
        *self.state.head.lock().expect("lock") = Some(node.parse().expect("node"));
    }

    /// How often the lease was asked for.
    pub(crate) fn lease_requests(&self) -> usize {
        self.state.lease_requests.load(Ordering::SeqCst)
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.state.snapshots.load(Ordering::SeqCst)
    }
}

impl State {
    fn allows(&self, request: &HttpRequest) -> bool {
        let given = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|v| v.to_str().ok());
        let expected = self
            .token
            .as_ref()
            .map(|token| format!("Bearer {}", token.expose()));
        given == expected.as_deref()
    }
}

async fn apps(request: HttpRequest, state: web::Data<State>) -> HttpResponse {
    if !state.allows(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    if state.away.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    let snapshot = AppsSnapshot {
        revision: *state.revision.lock().expect("lock"),
        apps: state.apps.lock().expect("lock").values().cloned().collect(),
        fleet: state.fleet.lock().expect("lock").clone(),
        used: state.used.lock().expect("lock").clone(),
    };
    state.snapshots.fetch_add(1, Ordering::SeqCst);
    HttpResponse::Ok().json(snapshot)
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

async fn artifact(
    request: HttpRequest,
    digest: web::Path<String>,
    state: web::Data<State>,
) -> HttpResponse {
    if !state.allows(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    if state.away.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    while state.stalled.load(Ordering::SeqCst) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let Some(mut bytes) = state
        .artifacts
        .lock()
        .expect("lock")
        .get(digest.as_str())
        .cloned()
    else {
        return HttpResponse::NotFound().finish();
    };
    if take_one(&state.corrupt) {
        let mut changed = bytes.to_vec();
        changed[0] ^= 1;
        bytes = changed.into();
    }
    let mut response = HttpResponse::Ok();
    let range = request
        .headers()
        .get(header::RANGE)
        .and_then(|v| v.to_str().ok());
    let start = range.and_then(|r| {
        r.strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    let total = bytes.len();
    if let Some(start) = start {
        state.ranges.fetch_add(1, Ordering::SeqCst);
        bytes = bytes.slice(start..);
        response = HttpResponse::PartialContent();
        response.insert_header((
            header::CONTENT_RANGE,
            format!("bytes {start}-{}/{total}", total - 1),
        ));
    }
    if take_one(&state.cut) {
        let half = bytes.slice(..bytes.len() / 2);
        // One step later, so that what comes before has left.
        let broken = async {
            tokio::task::yield_now().await;
            Err(std::io::Error::other("cut"))
        };
        return response
            .no_chunking(bytes.len() as u64)
            .streaming(stream::iter([Ok(half)]).chain(stream::once(broken)));
    }
    response.body(bytes)
}

async fn compiled(
    request: HttpRequest,
    of: web::Path<(String, String)>,
    state: web::Data<State>,
) -> HttpResponse {
    if !state.allows(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let found = state.compiled.lock().expect("lock").get(&*of).cloned();
    found.map_or_else(
        || HttpResponse::NotFound().finish(),
        |octets| HttpResponse::Ok().body(octets),
    )
}

async fn usage(
    request: HttpRequest,
    batch: web::Json<UsageSums>,
    state: web::Data<State>,
) -> HttpResponse {
    if !state.allows(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    if state.usage_away.load(Ordering::SeqCst) || state.away.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    let batch = batch.into_inner();
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
        return HttpResponse::BadGateway().finish();
    }
    HttpResponse::Ok().json(UsageReceipt { stored, duplicate })
}

async fn head_lease(
    request: HttpRequest,
    cluster: web::Path<ClusterId>,
    asked: web::Json<LeaseRequest>,
    state: web::Data<State>,
) -> HttpResponse {
    if !state.allows(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    if state.away.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    state.lease_requests.fetch_add(1, Ordering::SeqCst);
    let head = state.head.lock().expect("lock").clone();
    if let Some(holder) = head.filter(|head| *head != asked.node) {
        return HttpResponse::Ok().json(LeaseResponse {
            holder,
            epoch: 1,
            expires_ms: 5000,
        });
    }
    let now = std::time::Instant::now();
    HttpResponse::Ok().json(state.leases.ask_at(now, &cluster, &asked))
}
