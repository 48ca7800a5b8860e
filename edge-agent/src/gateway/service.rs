//! One request from its head to the last octet of its answer.
//!
//! Host → route → (held until the app is ready) → body → slot → guest → record → answer. Every way out is counted once, by [`CallEnd`] or by
//! `Gateway::refuse`.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{HttpMessage, Method, Payload, Request, RequestHead, Response, StatusCode};
use fdn_core::api::header;
use fdn_core::{ByteSize, Coded, ErrorCode};
use fdn_runtime::{Call, CallError, CallStats, ResponseBody, StatsHandle};
use fdn_spool::Spool;
use tokio::time::timeout;
use tracing::{debug, error, warn};

use super::answer::respond;
use super::body::{GatewayBody, Pump, poll_pump, upload};
use super::connection::ClientConnection;
use super::head::{self, Ids, Peer};
use super::problem::Answer;
use super::routes::{Route, Routes, Target};
use crate::apps::{Apps, Deployed, Sandboxes, Server};
use crate::invocations::{Admission, Instances, Refused, Seat, Slot};
use crate::metrics::{AppMetrics, Metrics, Outcome};
use crate::usage::{Meter, Pending};

pub(super) const NOT_READY: Answer = Answer::new(
    ErrorCode::NotReady,
    "the app is not ready on this node yet; try again later",
);

/// There is no room for the record of another call, or the disk for it fails.
const NO_RECORD: Answer = Answer::new(
    ErrorCode::Overloaded,
    "the node cannot take account of another call now; try again later",
);
/// The call has run, and its record could not be kept.
const RECORD_LOST: Answer = Answer::new(
    ErrorCode::Internal,
    "the call was run, but the node could not take account of it",
);

/// What all requests of a gateway share.
pub struct Gateway {
    /// Host name to app.
    pub routes: Arc<Routes>,
    /// Who may run in sandboxes.
    pub admission: Arc<Admission>,
    /// Instances in containers and pods, where this node runs any.
    pub instances: Option<Instances>,
    /// Told when a version turns out to be broken.
    pub apps: Apps,
    /// Counters.
    pub metrics: Metrics,
    /// Where calls are recorded.
    pub usage: Spool,
    /// Request bodies up to this size are read whole first.
    pub inline_body: ByteSize,
    /// This node, for answers.
    pub node: HeaderValue,
    /// This cluster, for answers.
    pub cluster: HeaderValue,
}

/// One request.
pub(super) struct Incoming<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) peer: &'a Peer,
    pub(super) ids: &'a Ids,
    pub(super) arrived: Instant,
    pub(super) host: &'a str,
}

/// A request that is not answered by a function: by which answer, and whose counters it goes to.
struct Refusal {
    answer: Answer,
    metrics: Option<Arc<AppMetrics>>,
}

impl From<Answer> for Refusal {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            metrics: None,
        }
    }
}

/// What is measured of a call.
pub(super) enum Measured {
    /// By the runtime of sandboxes.
    Guest(StatsHandle),
    /// By the gateway, of a call in an instance: the seat, and how long the head took.
    Instance(Seat, Duration),
}

/// Counts and records how a call ended, once: when told, or as given up by the client when dropped.
pub struct CallEnd {
    pub(super) metrics: Arc<AppMetrics>,
    pub(super) measured: Measured,
    pub(super) arrived: Instant,
    status_class: Outcome,
    outcome: Outcome,
    /// Octets of the answer's body that were sent.
    egress: u64,
    /// Until the record of its end is written.
    meter: Option<Meter>,
    _slot: Slot,
}

impl CallEnd {
    pub(super) fn new(
        metrics: &Arc<AppMetrics>,
        measured: Measured,
        arrived: Instant,
        slot: Slot,
        meter: Meter,
    ) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            measured,
            arrived,
            status_class: Outcome::Ok,
            outcome: Outcome::Client,
            egress: 0,
            meter: Some(meter),
            _slot: slot,
        }
    }

    /// Notes the status that the function answered with.
    pub fn answered(&mut self, status: StatusCode) {
        self.status_class = if status.is_server_error() {
            Outcome::FunctionError
        } else {
            Outcome::Ok
        };
    }

    /// The call's measurements now.
    #[must_use]
    pub fn stats(&self) -> CallStats {
        match &self.measured {
            Measured::Guest(stats) => stats.snapshot(),
            Measured::Instance(seat, head) => CallStats {
                exec: seat.taken().elapsed(),
                first_byte: *head,
                instance: Some(seat.instance()),
                reused: true,
                ..CallStats::default()
            },
        }
    }

    /// Octets of the answer's body are sent.
    pub const fn sending(&mut self, octets: usize) {
        self.egress += octets as u64;
    }

    /// The whole answer is about to leave although the call still runs: records what is known until now.
    pub fn still_runs(&self) -> Option<Pending> {
        let meter = self.meter.as_ref()?;
        let stats = self.stats();
        Some(Pending::new(meter.record(&stats, self.egress, None)))
    }

    /// The call has ended: well, as its status says, if `failed` is nothing. The rest of the answer waits for the record.
    pub fn ended(mut self, failed: Option<Outcome>) -> Option<Pending> {
        self.outcome = failed.unwrap_or(self.status_class);
        self.record()
    }

    fn record(&mut self) -> Option<Pending> {
        let meter = self.meter.take()?;
        let stats = self.stats();
        let written = meter.record(&stats, self.egress, Some(self.outcome));
        Some(Pending::new(written))
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        let stats = self.stats();
        if let Measured::Instance(seat, _) = &mut self.measured
            && matches!(self.outcome, Outcome::Ok | Outcome::FunctionError)
        {
            seat.finished();
        }
        if stats.instance.is_some() {
            self.metrics.ran(stats.instantiate, stats.exec);
        }
        self.metrics.ended(self.outcome, self.arrived.elapsed());
        // Nobody waits for the answer of a call that was given up; it is recorded all the same.
        drop(self.record());
    }
}

impl Gateway {
    /// Answers one request.
    ///
    /// # Errors
    /// Never: every failure is an answer.
    pub async fn serve(
        self: Arc<Self>,
        mut request: Request,
    ) -> Result<Response<GatewayBody>, Infallible> {
        let arrived = Instant::now();
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
        let payload = request.take_payload();
        let ids = Ids::of(request.headers());
        let response = match self
            .answer(request.head(), peer, &ids, arrived, payload)
            .await
        {
            Ok(response) => response,
            Err(refusal) => self.refuse(&refusal, &ids, arrived),
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
        let headers = response.headers_mut();
        headers.insert(CLUSTER, self.cluster.clone());
        headers.insert(NODE, self.node.clone());
        if let Ok(id) = HeaderValue::from_maybe_shared(ids.request) {
            headers.insert(REQUEST_ID, id);
        }
        Ok(response)
    }

    fn refuse(&self, refusal: &Refusal, ids: &Ids, arrived: Instant) -> Response<GatewayBody> {
        let outcome = Outcome::of_code(refusal.answer.code);
        let metrics = refusal.metrics.as_ref().unwrap_or(&self.metrics.other);
        metrics.ended(outcome, arrived.elapsed());
        refusal.answer.respond(&ids.request)
    }

    async fn answer(
        &self,
        head: &RequestHead,
        peer: &Peer,
        ids: &Ids,
        arrived: Instant,
        payload: Payload,
    ) -> Result<Response<GatewayBody>, Refusal> {
        let host = head::host(head).ok_or(Answer::new(
            ErrorCode::BadRequest,
            "the request names no host",
        ))?;
        let incoming = Incoming {
            head,
            peer,
            ids,
            arrived,
            host,
        };
        let (route, deployed, held) = self.ready(host).await?;
        let answered = match &deployed.server {
            Server::Sandboxes(sandboxes) => {
                self.call(&incoming, payload, &deployed, sandboxes, held)
                    .await
            }
            // Boxed, so that the future of calls in sandboxes stays small.
            Server::Instances(lane) => {
                Box::pin(self.call_in_instance(&incoming, payload, &deployed, lane, held)).await
            }
        };
        answered.map_err(|answer| Refusal {
            answer,
            metrics: Some(Arc::clone(&route.metrics)),
        })
    }

    /// Room for the record of a call that is about to run.
    pub(super) fn meter(&self, deployed: &Deployed) -> Result<Meter, Answer> {
        Meter::start(&self.usage, &deployed.billed).map_err(|failure| {
            debug!(%failure, "a call is refused");
            NO_RECORD
        })
    }

    /// The answer for a call that was not let in.
    pub(super) fn refused(&self, refused: Refused) -> Answer {
        let reason = match refused {
            Refused::Full => "queue_full",
            Refused::FunctionFull => "function_full",
            Refused::Late => "late",
            Refused::TooLarge => "too_large",
        };
        self.metrics.refused.with_label_values(&[reason]).inc();
        Answer::of_refusal(refused)
    }

    /// What answers calls of `host`, loaded; and how long that was waited for.
    async fn ready(&self, host: &str) -> Result<(Arc<Route>, Arc<Deployed>, Duration), Refusal> {
        let unknown = Answer::new(
            ErrorCode::UnknownHost,
            "no app is deployed under this host name",
        );
        let route = self.routes.find(host).ok_or(unknown)?;
        if let Target::Ready(deployed) = &route.target
            && deployed.is_loaded()
        {
            let deployed = Arc::clone(deployed);
            return Ok((route, deployed, Duration::ZERO));
        }
        let metrics = Arc::clone(&route.metrics);
        drop(route);
        // Boxed, because it is seldom needed and would make every request's future larger.
        let found = Box::pin(self.held(host, &metrics)).await;
        found.map_err(|answer| Refusal {
            answer,
            metrics: Some(metrics),
        })
    }

    /// Holds a call until its app is ready and loaded.
    async fn held(
        &self,
        host: &str,
        metrics: &Arc<AppMetrics>,
    ) -> Result<(Arc<Route>, Arc<Deployed>, Duration), Answer> {
        let _place = self.admission.hold().ok_or(NOT_READY)?;
        let _waits = metrics.waiting();
        let start = Instant::now();
        let mut changes = self.routes.changes();
        let wait = async {
            loop {
                let route = self.routes.find(host).ok_or(NOT_READY)?;
                match &route.target {
                    Target::Failed => return Err(NOT_READY),
                    Target::Preparing => {}
                    Target::Ready(deployed) => match deployed.load(&self.metrics).await {
                        Ok(()) => return Ok((Arc::clone(deployed), route)),
                        Err(failure) => {
                            warn!(app = %route.app, %failure, "a deployed function cannot be loaded");
                            self.apps
                                .broken(&route.app, route.revision, deployed.digest);
                        }
                    },
                }
                drop(route);
                // The table outlives every gateway, so the bell cannot be gone.
                changes.changed().await.map_err(|_| NOT_READY)?;
            }
        };
        let (deployed, route) = timeout(self.admission.hold_time(), wait)
            .await
            .map_err(|_| NOT_READY)??;
        Ok((route, deployed, start.elapsed()))
    }

    /// Runs the call in a sandbox.
    ///
    /// # Errors
    /// When the guest was never reached. A guest that failed is an answer, and counted already.
    async fn call(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        deployed: &Arc<Deployed>,
        sandboxes: &Sandboxes,
        held: Duration,
    ) -> Result<Response<GatewayBody>, Answer> {
        let request = head::to_guest(incoming.head, incoming.host, incoming.ids, incoming.peer)?;
        // From the request's arrival to the last octet; only what the app was not ready for is not the function's time.
        let timeout_at = incoming.arrived + held + deployed.manifest.timeout.as_duration();
        let limits = (
            self.inline_body.as_bytes(),
            deployed.body_limit().as_bytes(),
        );
        let length = head::content_length(incoming.head.headers());
        let uploaded = timeout(
            left(timeout_at),
            upload(payload, length, limits.0, limits.1),
        );
        let (body, pump) = uploaded.await.map_err(|_| NOT_UPLOADED)??;
        let entered = self
            .admission
            .enter(sandboxes.lane(), &deployed.metrics, || deployed.expected());
        let (slot, memory) = entered.await.map_err(|refused| self.refused(refused))?;
        let function = sandboxes.load(&self.metrics).await.map_err(|_| NOT_READY)?;
        let meter = self.meter(deployed)?;
        let left = left(timeout_at);
        if left.is_zero() {
            return Err(Answer::of_call(ErrorCode::FunctionTimeout));
        }
        let waited = incoming.arrived.elapsed();
        let context = deployed.context(incoming.ids.request.clone(), left, Some(memory));
        let call = function.call(context, request.map(|()| body));
        let measured = Measured::Guest(call.stats());
        let end = CallEnd::new(&deployed.metrics, measured, incoming.arrived, slot, meter);
        let is_head = incoming.head.method == Method::HEAD;
        match run(call, pump).await {
            Ok((response, pump)) => Ok(respond(response, pump, end, deployed, waited, is_head)),
            Err(failure) => Ok(failed(&failure, end, incoming.ids)),
        }
    }
}

/// The answer for a body that did not arrive.
pub(super) const NOT_UPLOADED: Answer = Answer::new(
    ErrorCode::BadRequest,
    "the request body did not arrive within the app's timeout",
);

/// The answer for a call that failed before its head; the runtime has written the reason into the app's log.
fn failed(failure: &CallError, end: CallEnd, ids: &Ids) -> Response<GatewayBody> {
    let code = failure.code();
    if code == ErrorCode::Internal {
        let request = String::from_utf8_lossy(&ids.request);
        error!(%failure, %request, "a call failed in the node itself");
    }
    let pending = end.ended(Some(Outcome::of_code(code)));
    let answer = Answer::of_call(code).respond(&ids.request);
    answer.map_body(|_, mut body| {
        body.wait_for(pending);
        body
    })
}

pub(super) fn left(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

/// Runs guest and upload together until the answer's head is there.
async fn run(
    call: Call,
    mut pump: Option<Pump>,
) -> Result<(http::Response<ResponseBody>, Option<Pump>), CallError> {
    let mut response = pin!(call.response());
    let response = poll_fn(|cx| {
        // The guest first: it may answer without reading. Then what the client sent meanwhile, and if the guest may have taken
        // that, the guest again by its own waker.
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(response);
        }
        if let Err(error) = poll_pump(&mut pump, cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    })
    .await?;
    Ok((response, pump))
}

const CLUSTER: HeaderName = HeaderName::from_static(header::CLUSTER);
const NODE: HeaderName = HeaderName::from_static(header::NODE);
const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
