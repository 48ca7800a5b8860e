//! Forwards a call to a gateway that can serve it: to another node of this cluster first, then to the clusters of the app's plans, nearest first,
//! then to any other. Also forwards a call that would wait here to a gateway that finishes it sooner ([`super::overflow`]).
//!
//! The request is `POST /fdn.forward.v1/APP` with the client's header fields unchanged and the call's own fields added. A gateway that accepts
//! the call answers it as its own; one that cannot serve it refuses it before anything has run, and the next one is tried. A call that a gateway
//! may have seen goes to another one only if it is idempotent. A forwarded call is never forwarded again: a second hop is refused.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_http::header::{HeaderName as ActixName, HeaderValue as ActixValue};
use actix_http::{Response, StatusCode};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::{AppName, ClusterId, ErrorCode, Millis, NodeId};
use fdn_scheduling::run::FailureKind;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use tracing::debug;

use super::client::SendError;
use super::lead::of_client;
use super::overflow::{self, Candidate, ForwardTarget, LocalEstimate, SAME_CLUSTER};
use super::wire;
use crate::apps::{Deployed, Server};
use crate::gateway::body::GatewayBody;
use crate::gateway::head::{self, Identity, Ids, Peer};
use crate::gateway::instance::InstanceBody;
use crate::gateway::problem::ProblemResponse;
use crate::gateway::service::Gateway;
use crate::policy::guard::{Permit, client_text};

/// The path prefix of forwarded calls.
const PREFIX: &str = "/fdn.forward.v1/";
/// The number of gateways that one call tries per cluster.
const OF_CLUSTER: usize = 3;
/// The most times that a call may be forwarded.
pub(super) const HOPS: u32 = 1;
/// How much longer than the call's deadline to wait for the other gateway: its own timeout answer is the better one.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// The number of nearest clusters considered for a sooner finish.
const NEAREST: usize = 8;
/// The maximum number of remembered refusals.
const REFUSALS: usize = 4096;

const METHOD: HeaderName = HeaderName::from_static("fdn-call-method");
const TARGET: HeaderName = HeaderName::from_static("fdn-call-target");
const HOST: HeaderName = HeaderName::from_static("fdn-call-host");
const CLIENT: HeaderName = HeaderName::from_static("fdn-call-client");
const HOPPED: HeaderName = HeaderName::from_static("fdn-call-hops");
const DEADLINE: HeaderName = HeaderName::from_static("fdn-call-left");
/// The node that forwards the call; absent if that node runs an older version.
const VIA: HeaderName = HeaderName::from_static("fdn-call-via");
/// The call must be finished within this many milliseconds, or must not begin.
const WITHIN: HeaderName = HeaderName::from_static("fdn-call-within");
/// The expected time in ms, wait included, of one more call of the function at the answering gateway; sent if the request has [`WITHIN`].
pub(super) const FINISH: HeaderName = HeaderName::from_static("fdn-call-finish");
/// The content length of a response that has no body.
pub(super) const LENGTH: HeaderName = HeaderName::from_static("fdn-call-length");

const LATE: ProblemResponse = ProblemResponse::new(
    ErrorCode::FunctionTimeout,
    "the node that the call was handed on to did not answer in time",
);
const LOST: ProblemResponse = ProblemResponse::new(
    ErrorCode::InstanceLost,
    "the node that the call was handed on to was lost while it served it",
);

/// A call to be served by another gateway.
pub(crate) struct ForwardedCall<'a> {
    pub(crate) app: &'a AppName,
    pub(crate) head: &'a actix_http::RequestHead,
    pub(crate) host: &'a str,
    pub(crate) ids: &'a Ids,
    pub(crate) peer: &'a Peer,
    pub(crate) identity: Identity<'a>,
    /// The call's permit among the concurrent calls of its app.
    pub(crate) permit: Option<Arc<Permit>>,
    pub(crate) body: Bytes,
    pub(crate) deadline: Instant,
    /// Whether the call can be repeated safely.
    pub(crate) idempotent: bool,
}

/// The outcome of forwarding a call.
pub(crate) enum ForwardOutcome {
    /// Another gateway answered it.
    Answered(Box<Response<GatewayBody>>),
    /// The call may have run and cannot be repeated, or no other gateway took it; or its deadline has passed.
    Ended(ProblemResponse),
    /// No gateway took it, and nothing has run.
    Nobody,
}

/// Gateways that recently could not serve an app; they are not tried for it for a while.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<(AppName, SocketAddr), Instant>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(AppName, SocketAddr), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, app: &AppName, address: SocketAddr, now: Instant, span: Duration) {
        let mut all = self.lock();
        if all.len() >= REFUSALS {
            all.retain(|_, until| *until > now);
        }
        if all.len() < REFUSALS {
            all.insert((app.clone(), address), now + span);
        }
    }

    fn holds(&self, app: &AppName, address: SocketAddr, now: Instant) -> bool {
        let found = self.lock().get(&(app.clone(), address)).copied();
        found.is_some_and(|until| until > now)
    }
}

/// Whether a request is a forwarded call.
pub(super) fn is_one(uri: &Uri) -> bool {
    uri.path().starts_with(PREFIX)
}

impl Gateway {
    /// Forwards a call to one of these gateways, tried in order.
    pub(crate) async fn forward(
        &self,
        call: ForwardedCall<'_>,
        gateways: Vec<ForwardTarget>,
    ) -> ForwardOutcome {
        let workflows = &self.workflows;
        let Some(client) = &workflows.client else {
            return ForwardOutcome::Nobody;
        };
        let mut nobody = ForwardOutcome::Nobody;
        for target in gateways {
            let count = |outcome: &str| self.count_forward(&target, outcome);
            let ForwardTarget {
                cluster, address, ..
            } = &target;
            let left = call.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                count("late");
                return ForwardOutcome::Ended(LATE);
            }
            let Some(request) = request(&call, left, target.within, &workflows.node) else {
                return nobody;
            };
            let sending = client.send_to(cluster, *address, request);
            let answered = match timeout(left + GRACE, sending).await {
                Ok(answered) => answered,
                Err(_) => {
                    count("late");
                    return ForwardOutcome::Ended(LATE);
                }
            };
            let response = match answered {
                Ok(response) => response,
                Err(SendError::NotSent(reason)) => {
                    debug!(app = %call.app, reason, "a call could not be handed on");
                    count("not_reached");
                    continue;
                }
                Err(SendError::Lost(reason)) => {
                    debug!(app = %call.app, reason, "a call that was handed on is lost");
                    count("lost");
                    nobody = ForwardOutcome::Ended(LOST);
                    if call.idempotent {
                        continue;
                    }
                    return nobody;
                }
            };
            let (now, finish) = (
                Instant::now(),
                target.within.and_then(|_| finish_of(&response)),
            );
            if let Some(finish) = finish {
                workflows.loads.note(call.app, *address, finish, now);
            }
            match outcome(&response) {
                None => {
                    count("answered");
                    return ForwardOutcome::Answered(Box::new(answer(cluster, response, &call)));
                }
                Some(FailureKind::NotStarted) if finish.is_some() => count("busy"),
                Some(FailureKind::NotStarted) => {
                    count("not_started");
                    let span = workflows.forward.avoid.as_duration();
                    workflows.refusals.note(call.app, *address, now, span);
                }
                Some(_) => {
                    count("lost");
                    nobody = ForwardOutcome::Ended(LOST);
                    if !call.idempotent {
                        return nobody;
                    }
                }
            }
        }
        nobody
    }

    fn count_forward(&self, target: &ForwardTarget, outcome: &str) {
        let workflows = &self.workflows;
        let is_own = target.cluster == workflows.cluster;
        let to = if is_own { "node" } else { "cluster" };
        let why = if target.within.is_some() {
            "busy"
        } else {
            "unready"
        };
        let sent = &workflows.forwarding.sent;
        sent.with_label_values(&[to, outcome, why]).inc();
    }

    /// The expected time of one more call of a function on this node: without and with the wait for admission.
    pub(super) fn takes(&self, deployed: &Deployed) -> (Millis, Millis) {
        let run = typical(deployed);
        let running = || self.running().unwrap_or(run);
        (run, run + self.admission.expected_wait(running))
    }

    /// The mean expected time of the calls that now run in sandboxes; `None` if none runs.
    fn running(&self) -> Option<Millis> {
        let (mut work, mut calls) = (Millis::ZERO, 0.0);
        self.routes.each_ready(|deployed| {
            let busy = f64::from(deployed.metrics.busy_now());
            if busy > 0.0 && matches!(deployed.server, Server::Sandboxes(_)) {
                work += typical(deployed) * busy;
                calls += busy;
            }
        });
        (calls > 0.0).then(|| work * (1.0 / calls))
    }

    /// The gateways that would finish a call sooner than this node, where it would wait; the soonest first.
    pub(crate) fn sooner_gateways(&self, app: &AppName, deployed: &Deployed) -> Vec<ForwardTarget> {
        let workflows = &self.workflows;
        let Some(client) = &workflows.client else {
            return Vec::new();
        };
        let (run, finish) = self.takes(deployed);
        let here = LocalEstimate {
            run,
            finish,
            gain: f64::from(workflows.forward.gain.get()) / 100.0,
        };
        let near = workflows.nearness.within(here.bound(), NEAREST);
        let clusters = std::iter::once((workflows.cluster.clone(), SAME_CLUSTER)).chain(near);
        let now = Instant::now();
        let of = |(cluster, round_trip): (ClusterId, Millis)| {
            let mut all = client.others(&cluster);
            all.retain(|address| !workflows.refusals.holds(app, *address, now));
            let candidate = move |address| Candidate {
                cluster: cluster.clone(),
                address,
                round_trip,
            };
            all.into_iter().map(candidate)
        };
        let candidates = clusters.flat_map(of);
        overflow::sooner(app, &here, candidates, &workflows.loads, now)
    }

    /// The gateways to try for a call that this node cannot serve, in order. `planned`: the clusters of the app's plans.
    pub(crate) fn fallback_gateways(
        &self,
        app: &AppName,
        planned: &[ClusterId],
    ) -> Vec<ForwardTarget> {
        let workflows = &self.workflows;
        let Some(client) = &workflows.client else {
            return Vec::new();
        };
        let own = &workflows.cluster;
        let mut clusters = client.clusters();
        clusters.retain(|cluster| cluster != own);
        let far = |cluster: &ClusterId| workflows.nearness.of(cluster);
        clusters.sort_by_cached_key(|cluster| {
            let is_planned = planned.contains(cluster);
            (!is_planned, far(cluster), cluster.clone())
        });
        let now = Instant::now();
        let of = |cluster: ClusterId| {
            let mut all = client.others(&cluster);
            all.retain(|address| !workflows.refusals.holds(app, *address, now));
            all.truncate(OF_CLUSTER);
            let target = move |address| ForwardTarget {
                cluster: cluster.clone(),
                address,
                within: None,
            };
            all.into_iter().map(target)
        };
        let all = std::iter::once(own.clone()).chain(clusters);
        all.flat_map(of).take(workflows.forward.gateways).collect()
    }
}

/// The typical time of a function's call once admitted: measured, or else as its manifest expects.
fn typical(deployed: &Deployed) -> Millis {
    match deployed.metrics.phases() {
        Some(times) => times.start + times.execution,
        None => deployed.expected().execution,
    }
}

/// Builds the request that carries a call; `None` if a field is not valid.
fn request(
    call: &ForwardedCall<'_>,
    left: Duration,
    within: Option<Millis>,
    node: &NodeId,
) -> Option<Request<Full<Bytes>>> {
    let mut headers = of_client(call.head.headers(), call.peer);
    call.identity.add_headers(&mut headers);
    let target = call.head.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let told = [
        (METHOD, wire::field(call.head.method.as_str())),
        (TARGET, HeaderValue::from_str(target).ok()?),
        (HOST, wire::field(call.host)),
        (HOPPED, HeaderValue::from(HOPS)),
        (DEADLINE, wire::field(&left.as_millis().to_string())),
        (VIA, wire::field(node.as_str())),
    ];
    headers.extend(told);
    if let Some(within) = within {
        headers.insert(WITHIN, millis(within));
    }
    let client = client_text(call.head, call.peer);
    let bytes = [
        (CLIENT, &client),
        (
            HeaderName::from_static(header::REQUEST_ID),
            &call.ids.request,
        ),
        (
            HeaderName::from_static("traceparent"),
            &call.ids.trace.parent,
        ),
    ];
    for (name, value) in bytes {
        headers.insert(name, HeaderValue::from_maybe_shared(value.clone()).ok()?);
    }
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("http://fdn.internal{PREFIX}{}", call.app)
        .parse()
        .ok()?;
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = headers;
    Some(request)
}

/// A forwarded call as received, without its body.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) app: AppName,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) host: String,
    pub(super) client: Bytes,
    pub(super) hops: u32,
    pub(super) left: Duration,
    pub(super) within: Option<Millis>,
    pub(super) via: Option<NodeId>,
}

/// Parses a forwarded call and removes the call's own fields from `headers`; `None` if it is not a forwarded call.
pub(super) fn receive(method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Option<Received> {
    let app = uri.path().strip_prefix(PREFIX)?;
    if *method != Method::POST {
        return None;
    }
    let text = |name: &HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let received = Received {
        app: app.parse().ok()?,
        method: text(&METHOD)?,
        target: text(&TARGET)?,
        host: text(&HOST)?,
        client: Bytes::copy_from_slice(headers.get(CLIENT)?.as_bytes()),
        hops: text(&HOPPED)?.parse().ok()?,
        left: Duration::from_millis(text(&DEADLINE)?.parse().ok()?),
        within: text(&WITHIN).and_then(|within| within.parse().ok().map(Millis::new)),
        via: text(&VIA).and_then(|node| node.parse().ok()),
    };
    wire::strip(headers);
    Some(received)
}

/// A time as a header value, in whole milliseconds, rounded up.
pub(super) fn millis(time: Millis) -> HeaderValue {
    HeaderValue::from(time.get().max(0.0).ceil() as u64)
}

/// The expected time of one more call at the answering gateway, if the response has it.
fn finish_of(response: &http::Response<Incoming>) -> Option<Millis> {
    let told = response.headers().get(FINISH)?.to_str().ok()?;
    told.parse::<u32>().ok().map(|ms| Millis::new(ms.into()))
}

/// How a call failed, as far as known; `None` if it was answered.
fn outcome(response: &http::Response<Incoming>) -> Option<FailureKind> {
    let told = response.headers().get(wire::OUTCOME);
    if told == Some(&wire::ANSWERED) {
        return None;
    }
    let word = told.and_then(|told| told.to_str().ok());
    Some(wire::kind(word.unwrap_or_default()))
}

/// Converts the other gateway's response for the client.
fn answer(
    cluster: &ClusterId,
    response: http::Response<Incoming>,
    call: &ForwardedCall<'_>,
) -> Response<GatewayBody> {
    let (mut parts, body) = response.into_parts();
    let number = |value: HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    let told = parts.headers.remove(LENGTH).and_then(number);
    let node = parts.headers.remove(header::NODE);
    let node = node.as_ref().and_then(|node| node.to_str().ok());
    let by = format!("{cluster}/{}", node.unwrap_or("?"));
    wire::strip(&mut parts.headers);
    let status = StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut out = Response::with_body(status, ());
    let announced = head::to_client(&parts.headers, out.headers_mut());
    if let Ok(by) = ActixValue::from_str(&by) {
        out.headers_mut()
            .insert(ActixName::from_static(header::SERVED_BY), by);
    }
    let is_head = call.head.method == actix_http::Method::HEAD;
    let bodiless = status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || status.is_informational();
    let body = if is_head || bodiless {
        GatewayBody::none(told.filter(|_| is_head))
    } else {
        let length = announced.or(body.size_hint().exact());
        let body = body.map_err(Into::into).boxed_unsync();
        let body = InstanceBody::relayed(body, call.deadline + GRACE);
        GatewayBody::relayed(body, length, call.permit.clone())
    };
    out.set_body(body)
}

#[cfg(test)]
mod tests {
    use actix_http::HttpMessage as _;
    use actix_http::test::TestRequest;

    use super::*;

    fn sent(
        headers: &[(&'static str, &'static str)],
        identity: Identity<'_>,
        by_proxy: bool,
    ) -> Request<Full<Bytes>> {
        let mut test = TestRequest::default();
        test.uri("/p?q=1").method(actix_http::Method::PUT);
        for header in headers {
            test.append_header(*header);
        }
        let test = test.finish();
        let app = "hello".parse().expect("app");
        let call = ForwardedCall {
            app: &app,
            head: test.head(),
            host: "HELLO.fn.test:8080",
            ids: &Ids::of(test.headers()),
            peer: &Peer::new(Some("192.0.2.7".parse().expect("address")), by_proxy).over_tls(true),
            identity,
            permit: None,
            body: Bytes::from_static(b"x"),
            deadline: Instant::now(),
            idempotent: false,
        };
        let node = "n-1".parse().expect("node");
        let within = Some(Millis::new(99.5));
        request(&call, Duration::from_millis(1500), within, &node).expect("a request")
    }

    #[test]
    fn a_call_arrives_as_it_came() {
        let sent = sent(
            &[
                ("x-custom", "1"),
                ("fdn-call-hops", "0"),
                ("fdn-call-via", "n-9"),
            ],
            Identity::default(),
            false,
        );
        assert!(is_one(sent.uri()));
        let (mut parts, _) = sent.into_parts();
        let got = receive(&parts.method, &parts.uri, &mut parts.headers).expect("a call");
        assert_eq!((got.app.as_str(), got.method.as_str()), ("hello", "PUT"));
        assert_eq!(got.target, "/p?q=1");
        assert_eq!(got.host, "HELLO.fn.test:8080");
        assert_eq!(got.client.as_ref(), b"192.0.2.7");
        assert_eq!((got.hops, got.left), (HOPS, Duration::from_millis(1500)));
        assert_eq!(got.within, Some(Millis::new(100.0)));
        assert_eq!(got.via.expect("who handed it on").as_str(), "n-1");
        assert_eq!(parts.headers["x-custom"], "1");
        assert_eq!(parts.headers["x-forwarded-proto"], "https");
        let own = |name: &&HeaderName| name.as_str().starts_with("fdn-call-");
        assert_eq!(parts.headers.keys().find(own), None);
    }

    #[test]
    fn the_gateway_says_where_the_client_is() {
        let chain = [("x-forwarded-for", "198.51.100.1, 203.0.113.9")];
        for (by_proxy, client) in [(true, "203.0.113.9"), (false, "192.0.2.7")] {
            let sent = sent(&chain, Identity::default(), by_proxy);
            assert_eq!(sent.headers()[CLIENT], client);
        }
    }

    #[test]
    fn only_the_gateway_says_who_called_and_a_key_goes_no_further() {
        let value = HeaderValue::from_static("key:shop");
        let identity = Identity {
            value: Some(&value),
            by_key: true,
        };
        let sent = sent(
            &[("x-fdn-identity", "key:admin"), ("x-api-key", "k")],
            identity,
            false,
        );
        let told: Vec<_> = sent.headers().get_all(header::IDENTITY).iter().collect();
        assert_eq!(told, [&value]);
        assert!(!sent.headers().contains_key(header::API_KEY));
    }

    #[test]
    fn who_refused_is_left_alone_for_a_while_and_memory_is_bounded() {
        let refusals = Refusals::default();
        let (app, now) = ("hello".parse().expect("app"), Instant::now());
        let at = |n: usize| SocketAddr::from(([127, 0, (n / 250) as u8, (n % 250) as u8], 1));
        let span = Duration::from_secs(2);
        for n in 0..=REFUSALS {
            refusals.note(&app, at(n), now, span);
        }
        assert_eq!(refusals.lock().len(), REFUSALS);
        assert!(refusals.holds(&app, at(0), now) && !refusals.holds(&app, at(REFUSALS), now));
        let later = now + span;
        assert!(!refusals.holds(&app, at(0), later));
        refusals.note(&app, at(REFUSALS), later, span);
        assert_eq!(refusals.lock().len(), 1, "what is over makes room");
    }
}
