//! Serves one request from its head to the last byte of its answer.
//!
//! Host → route → policy → (held until the app is ready, or handed on) → body → slot → guest → record → answer. Every outcome is counted once, by
//! `CallEnd` or by `Gateway::refuse`; a call that was handed on is counted where it was served.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::header::{HeaderName, HeaderValue, SET_COOKIE};
use actix_http::{Method, Payload, Request, RequestHead, Response};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::usage::{PlanUse, Routed};
use fdn_core::{ByteSize, ClientPrefix, ErrorCode, NodeId, Revision};
use fdn_runtime::RequestBody;
use fdn_spool::Spool;
use tokio::time::timeout;
use tracing::debug;

use super::answer::{failed, preflight, respond, run};
use super::body::GatewayBody;
use super::connection::ClientConnection;
use super::end::{CallEnd, Measured};
use super::forward::ServedAt;
use super::head::{self, Identity, Ids, Peer};
use super::problem::ProblemResponse;
use super::routes::{Route, Routes, Target};
use super::stage::unloadable;
use super::upload::upload;
use crate::apps::{Apps, Deployed, Sandboxes, Server};
use crate::invocations::{Admission, Instances, Refused};
use crate::metrics::{AppMetrics, Metrics, Outcome};
use crate::policy::Pass;
use crate::policy::guard::{Decision, Headers, Permit, client_address};
use crate::traces::Traces;
use crate::usage::{CallIdentity, Meter};
use crate::workflows::{Caller, Workflows};

pub(super) const NOT_READY: ProblemResponse = ProblemResponse::new(
    ErrorCode::NotReady,
    "the app is not ready on this node yet; try again later",
);

/// There is no room for the usage record of another call, or the disk for it fails.
const NO_RECORD: ProblemResponse = ProblemResponse::new(
    ErrorCode::Overloaded,
    "the node cannot take account of another call now; try again later",
);
/// The call has run, but its usage record could not be written.
const RECORD_LOST: ProblemResponse = ProblemResponse::new(
    ErrorCode::Internal,
    "the call was run, but the node could not take account of it",
);

/// State shared by all requests of a gateway.
pub struct Gateway {
    /// The routing table, from host name to app.
    pub routes: Arc<Routes>,
    /// Admission of calls that run in sandboxes.
    pub admission: Arc<Admission>,
    /// Instances in containers and pods, where this node runs any.
    pub instances: Option<Instances>,
    /// Notified when a version turns out to be broken.
    pub apps: Apps,
    /// Counters.
    pub metrics: Metrics,
    /// State shared by the runs of workflows.
    pub workflows: Workflows,
    /// The spool of usage records.
    pub usage: Spool,
    /// The export of spans, if a collector is configured.
    pub traces: Option<Traces>,
    /// Request bodies up to this size are read completely before the function starts.
    pub inline_body: ByteSize,
    /// This node's name, for response headers.
    pub node: HeaderValue,
    /// This cluster's name, for response headers.
    pub cluster: HeaderValue,
}

/// A request that is being served.
pub(super) struct Incoming<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) peer: &'a Peer,
    pub(super) ids: &'a Ids,
    pub(super) arrived: Instant,
    pub(super) host: &'a str,
    /// The pass of the app's policy, if it has one.
    pub(super) pass: Option<Box<Pass>>,
    /// For a stage's call, the identity of the workflow's caller; for a job's call, the job.
    pub(super) stage_identity: Option<&'a http::HeaderValue>,
    /// The revision of the app that serves it.
    pub(super) revision: Revision,
    /// How the app's plans use this cluster; for a client's call that arrived here.
    pub(super) plan_use: PlanUse,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// The node that handed the call on, if one did.
    pub(super) via: Option<NodeId>,
}

impl Incoming<'_> {
    /// The maximum size of the body, in bytes, if the function accepts `limit`.
    pub(super) fn body_limit(&self, limit: ByteSize) -> u64 {
        let limit = limit.as_bytes();
        let pass = self.pass.as_ref();
        pass.map_or(limit, |pass| pass.body_limit(limit))
    }

    /// Adds the headers of the app's policy to an answer.
    fn decorated(
        &self,
        answered: Result<Response<GatewayBody>, ProblemResponse>,
        route: &Route,
    ) -> Result<Response<GatewayBody>, Refusal> {
        let pass = self.pass.as_ref();
        match answered {
            Ok(mut response) => {
                if let Some(pass) = pass {
                    pass.decorate(response.headers_mut());
                }
                // Functions must not set the network's own headers.
                let headers = response.headers_mut();
                headers.remove(REVISION);
                headers.remove(PLAN);
                if self.is_asked() {
                    let revision = HeaderValue::from(self.revision.get());
                    response.headers_mut().insert(REVISION, revision);
                    response.headers_mut().insert(PLAN, self.plan());
                }
                Ok(response)
            }
            Err(answer) => Err(Refusal {
                answer,
                metrics: Some(Arc::clone(&route.metrics)),
                headers: pass.map_or_else(Headers::new, |pass| pass.headers()),
            }),
        }
    }

    /// Adds the headers of the app's policy to a refusal: without them, the page that called could not read why.
    fn with_policy(&self, mut refusal: Refusal) -> Refusal {
        if let Some(pass) = &self.pass {
            refusal.headers = pass.headers();
        }
        refusal
    }

    /// Whether the client asks which revision serves it.
    fn is_asked(&self) -> bool {
        let asked = self.head.headers().get(EXPLAIN);
        asked.is_some_and(|value| value.as_bytes() == b"1")
    }

    /// How the app's plans use this cluster, as a header for the client.
    fn plan(&self) -> HeaderValue {
        HeaderValue::from_static(self.plan_use.as_str())
    }

    /// The routing data for the call's usage record.
    fn routed(&self, deployed: &Deployed) -> Routed {
        Routed {
            revision: Some(self.revision),
            plan_use: self.plan_use,
            client: self
                .client
                .map(|address| ClientPrefix::host(address).to_demand()),
            via: self.via.clone(),
            stage: deployed.stage.clone(),
            form: deployed.form.clone(),
        }
    }

    /// The caller's identity, for the function.
    pub(super) fn identity(&self) -> Identity<'_> {
        match (&self.pass, self.stage_identity) {
            (Some(pass), _) => pass.identity(),
            (None, known) => Identity {
                value: known,
                by_key: false,
            },
        }
    }

    /// The call's permit under its app's concurrency limit, if it has one.
    pub(super) fn permit(&self) -> Option<Arc<Permit>> {
        self.pass.as_ref()?.permit.clone()
    }
}

/// A request that is refused before it reaches a function: the answer, and the metrics that count it.
pub(super) struct Refusal {
    pub(super) answer: ProblemResponse,
    metrics: Option<Arc<AppMetrics>>,
    /// Headers that the app's policy adds.
    headers: Headers,
}

impl From<ProblemResponse> for Refusal {
    fn from(answer: ProblemResponse) -> Self {
        Self {
            answer,
            metrics: None,
            headers: Headers::new(),
        }
    }
}

impl Gateway {
    /// Answers one request of a client.
    ///
    /// # Errors
    /// Never: every failure becomes an answer.
    pub async fn serve(
        self: Arc<Self>,
        mut request: Request,
    ) -> Result<Response<GatewayBody>, Infallible> {
        let extensions = request.take_conn_data();
        let connection = extensions
            .as_deref()
            .and_then(|extensions| extensions.get::<ClientConnection>());
        let unknown;
        let peer = match connection {
            Some(connection) => connection.peer(),
            None => {
                unknown = Peer::new(request.peer_addr().map(|peer| peer.ip()), false);
                &unknown
            }
        };
        let running = connection.map(|connection| connection.begin(request.head().version));
        if let Some(None) = running {
            return Ok(self.refuse_stream(request.head()));
        }
        let payload = request.take_payload();
        let answered = self.answer_call(request.head(), peer, payload, None).await;
        Ok(answered.map_body(|_, body| body.counted(running.flatten())))
    }

    /// Answers a call. `job` is the identity of the job if the call is a job's: only a controller's connection can set it.
    pub(crate) async fn answer_call(
        &self,
        head: &RequestHead,
        peer: &Peer,
        payload: Payload,
        job: Option<&http::HeaderValue>,
    ) -> Response<GatewayBody> {
        let arrived = Instant::now();
        let mut ids = Ids::of(head.headers());
        if let Some(traces) = &self.traces {
            ids.trace = traces.begin(ids.trace);
        }
        let response = match self.answer(head, peer, &ids, (arrived, job), payload).await {
            Ok(response) => response,
            Err(refusal) => {
                self.trace_refused(head, &ids, arrived, &refusal.answer);
                self.refuse(&refusal, &ids, arrived)
            }
        };
        let (response, mut body) = response.into_parts();
        let safe = match body.pending() {
            Some(pending) if !pending.is_safe() => pending.safe().await,
            _ => true,
        };
        let mut response = if safe {
            response.set_body(body)
        } else {
            RECORD_LOST.respond(&ids.request)
        };
        self.add_names(&mut response, ids.request);
        response
    }

    /// Adds what every answer of this node has: the names of cluster and node, and the request's id.
    pub(super) fn add_names(&self, response: &mut Response<GatewayBody>, request: Bytes) {
        let headers = response.headers_mut();
        headers.insert(CLUSTER, self.cluster.clone());
        headers.insert(NODE, self.node.clone());
        if let Ok(id) = HeaderValue::from_maybe_shared(request) {
            headers.insert(REQUEST_ID, id);
        }
    }

    fn refuse(&self, refusal: &Refusal, ids: &Ids, arrived: Instant) -> Response<GatewayBody> {
        let outcome = Outcome::of_code(refusal.answer.code);
        let metrics = refusal.metrics.as_ref().unwrap_or(&self.metrics.other);
        metrics.ended(outcome, arrived.elapsed());
        let mut response = refusal.answer.respond(&ids.request);
        for (name, value) in &refusal.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }

    async fn answer(
        &self,
        head: &RequestHead,
        peer: &Peer,
        ids: &Ids,
        (arrived, job): (Instant, Option<&http::HeaderValue>),
        payload: Payload,
    ) -> Result<Response<GatewayBody>, Refusal> {
        let host = head::host(head).ok_or(ProblemResponse::new(
            ErrorCode::BadRequest,
            "the request names no host",
        ))?;
        let route = self.route(host)?;
        let mut pass = None;
        // A job bypasses the app's policy, except that it waits like any call while the app's owner is suspended.
        if let Some(guard) = route.guard.as_ref().map(Arc::clone)
            && (job.is_none() || guard.is_suspended())
        {
            // Boxed, so that calls of apps without a policy do not carry this future.
            match Box::pin(guard.check(head, peer)).await {
                Decision::Pass(admitted) => pass = Some(admitted),
                Decision::Preflight(headers) => return Ok(preflight(&route, headers, arrived)),
                Decision::Refused(answer, headers) => {
                    let metrics = Some(Arc::clone(&route.metrics));
                    return Err(Refusal {
                        answer,
                        metrics,
                        headers,
                    });
                }
            }
        }
        let mut incoming = Incoming {
            head,
            peer,
            ids,
            arrived,
            host,
            pass,
            stage_identity: job,
            revision: route.revision,
            // The controller sends a job by its current view of the clusters, not by a plan.
            plan_use: job.map_or(route.terms.plan_use, |_| PlanUse::Used),
            client: client_address(head, peer),
            via: None,
        };
        let found = self.ready(&incoming, payload, route).await;
        let found = found.map_err(|refusal| incoming.with_policy(refusal))?;
        self.metrics.routed(incoming.plan_use);
        let (route, deployed, held, payload) = match found {
            ServedAt::Here(route, deployed, held, payload) => (route, deployed, held, payload),
            ServedAt::Elsewhere(mut response) => {
                self.trace_elsewhere(&incoming, &response);
                if let Some(pass) = &incoming.pass {
                    pass.decorate(response.headers_mut());
                }
                // The revision in the answer is that of the node that served it.
                if incoming.is_asked() {
                    response.headers_mut().insert(PLAN, incoming.plan());
                }
                return Ok(*response);
            }
        };
        // The call may have waited for a newer revision.
        incoming.revision = route.revision;
        self.serve_here(&incoming, payload, &route, deployed, held)
            .await
    }

    /// Serves a call with a version that is ready on this node.
    pub(super) async fn serve_here(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        route: &Arc<Route>,
        mut deployed: Arc<Deployed>,
        held: Duration,
    ) -> Result<Response<GatewayBody>, Refusal> {
        if let Some(staged) = &route.staged {
            let caller = Caller {
                head: incoming.head,
                host: incoming.host,
                ids: incoming.ids,
                peer: incoming.peer,
                arrived: incoming.arrived + held,
                pass: incoming.pass.as_deref(),
                job: incoming.stage_identity,
            };
            // Boxed, so that the future of plain calls stays small.
            let leading = Box::pin(self.lead(&caller, payload, route, staged)).await;
            return incoming.decorated(leading, route);
        }
        let mut cookie = None;
        if let Some(split) = &route.split
            && let Some(chosen) = split.choose(&route.app, incoming.head, incoming.peer)
        {
            (deployed, cookie) = (chosen.deployed, chosen.cookie);
        }
        let answered = match &deployed.server {
            Server::Sandboxes(sandboxes) => {
                self.call(incoming, payload, &deployed, sandboxes, held)
                    .await
            }
            // Boxed, so that the future of calls in sandboxes stays small.
            Server::Instances(queue) => {
                Box::pin(self.call_in_instance(incoming, payload, &deployed, queue, held)).await
            }
        };
        if let Err(answer) = &answered {
            // It reached no instance, perhaps because no instance of this version starts.
            let outcome = Outcome::of_code(answer.code);
            deployed.counts.ended(outcome, incoming.arrived.elapsed());
        }
        let mut answered = incoming.decorated(answered, route);
        if let (Some(cookie), Ok(response)) = (cookie, &mut answered) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        answered
    }

    /// Reserves room for the usage record of a call that is about to run.
    pub(super) fn meter(
        &self,
        deployed: &Deployed,
        incoming: &Incoming<'_>,
    ) -> Result<Meter, ProblemResponse> {
        let call = CallIdentity {
            request: incoming.ids.request.clone(),
            trace: incoming.ids.trace.id(),
            method: incoming.head.method.clone(),
            arrived: incoming.arrived,
            routed: incoming.routed(deployed),
            traced: self.traced(&incoming.ids.trace),
        };
        Meter::start(&self.usage, &deployed.billing, call).map_err(|failure| {
            debug!(%failure, "a call is refused");
            NO_RECORD
        })
    }

    /// Counts a call that was not admitted, and returns its answer.
    pub(super) fn refused(&self, refused: Refused) -> ProblemResponse {
        let reason = match refused {
            Refused::Full => "queue_full",
            Refused::FunctionFull => "function_full",
            Refused::AppFull => "app_full",
            Refused::TenantFull => "tenant_full",
            Refused::Late => "late",
            Refused::TooLarge => "too_large",
        };
        self.metrics.refused.with_label_values(&[reason]).inc();
        ProblemResponse::of_refusal(refused)
    }

    fn route(&self, host: &str) -> Result<Arc<Route>, ProblemResponse> {
        self.routes.find(host).ok_or(ProblemResponse::new(
            ErrorCode::UnknownHost,
            "no app is deployed under this host name",
        ))
    }

    /// Finds out who serves a call: this node, or another gateway.
    async fn ready(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        route: Arc<Route>,
    ) -> Result<ServedAt, Refusal> {
        if let Target::Ready(deployed) = &route.target
            && deployed.is_loaded()
        {
            let deployed = Arc::clone(deployed);
            if !self.overflows(incoming, &route, &deployed) {
                return Ok(ServedAt::Here(route, deployed, Duration::ZERO, payload));
            }
            let metrics = Arc::clone(&route.metrics);
            // Boxed for the same reason as below.
            let sooner = Box::pin(self.sooner(incoming, payload, route, deployed)).await;
            return sooner.map_err(|answer| Refusal {
                answer,
                metrics: Some(metrics),
                headers: Headers::new(),
            });
        }
        let metrics = Arc::clone(&route.metrics);
        // Boxed, because it is seldom needed and would make every request's future larger.
        let found = Box::pin(self.wait_or_forward(incoming, payload, route)).await;
        found.map_err(|answer| Refusal {
            answer,
            metrics: Some(metrics),
            headers: Headers::new(),
        })
    }

    /// Runs the call in a sandbox.
    ///
    /// # Errors
    /// When the guest was never reached. A failure of the guest is an answer, and counted already.
    pub(super) async fn call(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        deployed: &Arc<Deployed>,
        sandboxes: &Sandboxes,
        held: Duration,
    ) -> Result<Response<GatewayBody>, ProblemResponse> {
        let identity = incoming.identity();
        let request = head::to_guest(
            incoming.head,
            incoming.host,
            incoming.ids,
            incoming.peer,
            identity,
        )?;
        // From the request's arrival to the last byte, except the time that the call was held until the app was ready.
        let timeout_at = incoming.arrived + held + deployed.manifest.timeout.as_duration();
        let limits = (
            self.inline_body.as_bytes(),
            incoming.body_limit(deployed.body_limit()),
        );
        let length = head::content_length(incoming.head.headers());
        // An HTTP/2 client that leaves is noticed by its body only.
        let is_http2 = matches!(payload, Payload::H2 { .. });
        let (body, pump) = if matches!(payload, Payload::None) || (length == Some(0) && !is_http2) {
            (RequestBody::empty(), None)
        } else {
            let uploaded = upload(payload, length, limits.0, limits.1);
            let uploaded = timeout(left(timeout_at), uploaded).await;
            uploaded.map_err(|_| NOT_UPLOADED)??
        };
        let (queue, metrics) = (sandboxes.queue(), &deployed.metrics);
        let entered = self
            .admission
            .enter(queue, metrics, timeout_at, || deployed.expected());
        let (slot, memory) = entered.await.map_err(|refused| self.refused(refused))?;
        // The version of the route was loaded before; another one of its split may not be yet. That one alone is not served then: the others
        // must go on.
        let function = match sandboxes.loaded() {
            Some(function) => function,
            None => timeout(left(timeout_at), sandboxes.load(&self.metrics))
                .await
                .map_err(|_| self.refused(Refused::Late))?
                .map_err(|failure| unloadable(deployed, &failure))?,
        };
        let meter = self.meter(deployed, incoming)?;
        let left = left(timeout_at);
        if left.is_zero() {
            // The function never ran, so this is not its fault.
            return Err(self.refused(Refused::Late));
        }
        let waited = incoming.arrived.elapsed();
        let context = deployed.context(incoming.ids.request.clone(), left, Some(memory));
        let call = function.call(context, request.map(|()| body));
        let measured = Measured::Guest(call.stats());
        let end = CallEnd::new(&deployed.metrics, measured, incoming.arrived, slot, meter)
            .waited(waited)
            .holding(incoming.permit())
            .counting(&deployed.counts);
        let is_head = incoming.head.method == Method::HEAD;
        match run(call, pump).await {
            Ok((response, pump)) => Ok(respond(
                response, pump, end, deployed, waited, is_head, timeout_at,
            )),
            Err(failure) => Ok(failed(&failure, end, incoming.ids)),
        }
    }
}

/// The answer for a body that did not arrive in time.
pub(crate) const NOT_UPLOADED: ProblemResponse = ProblemResponse::new(
    ErrorCode::BadRequest,
    "the request body did not arrive within the app's timeout",
);

pub(super) fn left(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

const CLUSTER: HeaderName = HeaderName::from_static(header::CLUSTER);
const EXPLAIN: HeaderName = HeaderName::from_static(header::EXPLAIN);
const NODE: HeaderName = HeaderName::from_static(header::NODE);
const PLAN: HeaderName = HeaderName::from_static(header::PLAN);
const REVISION: HeaderName = HeaderName::from_static(header::REVISION);
const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
