//! The requests of machines. Every request is judged by the certificate of the connection, and by nothing that it says of itself; refused ones are
//! logged with the machine's name and counted.

use std::sync::Arc;

use bytes::Bytes;
use fdn_core::compiled::{EngineKey, NoEngineKey};
use fdn_core::enrol::{LeaseRequest, Machine, RenewRequest};
use fdn_core::feed::{Report, SCHEMA};
use fdn_core::message::Message;
use fdn_core::usage::{UsageBatch, UsageSums};
use fdn_core::{AppName, ByteSize, Coded as _, Digest, Fault, Problem, Revision};
use fdn_service::{CancellationToken, now};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, error, info, warn};

use super::admission::UNKNOWN_MACHINE;
use super::authorize::{self, Refusal};
use super::bodies::ReceivedBody;
use super::server::Peer;
use super::stall_guard::guard_stalls;
use super::{feed, fetch, reports};
use crate::Error;
use crate::app::actor::Actor;
use crate::app::enrol::{self, EnrolError};
use crate::app::{lease, usage};
use crate::artifacts::{ArtifactError, Span};
use crate::error::chain;
use crate::http::problem;
use crate::state::{State, lock};
use crate::store::artifact::artifact_find;
use crate::store::enrolment::certificate_get;

/// The largest body of requests other than reports and usage.
const SMALL: ByteSize = ByteSize::from_bytes(64 << 10);

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type HandlerResult = Result<Response<Body>, Error>;

/// The kind of a request, as a metrics label.
fn what(request: &Request<Incoming>) -> &'static str {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/edge/v1/feed") => "feed",
        (&Method::POST, "/edge/v1/report") => "report",
        (&Method::POST, "/edge/v1/usage/sums") => "sums",
        (&Method::POST, "/edge/v1/usage/records") => "records",
        (&Method::POST, "/edge/v1/lease") => "lease",
        (&Method::POST, "/edge/v1/renew") => "renew",
        (&Method::GET, path) if path.starts_with(ARTIFACTS) => "artifact",
        (&Method::GET, path) if path.starts_with(COMPILED) => "compiled",
        _ => "none",
    }
}

const ARTIFACTS: &str = "/edge/v1/artifacts/";
const COMPILED: &str = "/edge/v1/compiled/";
/// The most characters of method and path that are logged.
const TRIED_SHOWN: usize = 128;

/// Answers a request.
pub(super) async fn answer(
    state: Arc<State>,
    peer: Arc<Peer>,
    end: CancellationToken,
    request: Request<Incoming>,
) -> Response<Body> {
    let what = what(&request);
    let answered = handle(&state, &peer, end, what, request).await;
    let result = match &answered {
        Ok(_) => "ok",
        Err(error) if error.fault() == Fault::Caller => "refused",
        Err(_) => "failed",
    };
    let requests = &state.metrics.edge.requests;
    requests.with_label_values(&[what, result]).inc();
    answered.unwrap_or_else(|error| failed(&peer, what, &error))
}

async fn handle(
    state: &Arc<State>,
    peer: &Peer,
    end: CancellationToken,
    what: &'static str,
    request: Request<Incoming>,
) -> HandlerResult {
    let machine = &peer.machine;
    if state.edge.machines.is_revoked(&peer.certificate.serial) {
        let refusal = Refusal {
            what: "revoked",
            right: "be in the network: it was removed",
        };
        return Err(refused(state, machine, refusal));
    }
    if peer.known == Some(false) {
        return Err(refused(state, machine, UNKNOWN_MACHINE));
    }
    let authorized =
        |result: Result<(), Refusal>| result.map_err(|why| refused(state, machine, why));
    match what {
        "feed" => begin_feed(state, machine, end, request.uri().query()),
        "report" => {
            let body = read(state, peer, request, state.settings.edge.report_limit).await?;
            let report: Report = parse(&body.bytes)?;
            take_report(state, machine, report)?;
            Ok(empty())
        }
        "sums" => {
            authorized(authorize::node(machine, "usage"))?;
            let body = read(state, peer, request, state.settings.usage.body_limit).await?;
            let sums: UsageSums = parse(&body.bytes)?;
            authorized(authorize::sums(
                machine,
                &sums,
                was_informed(state, machine),
            ))?;
            json(&usage::add(state, &body.bytes).await?)
        }
        "records" => {
            authorized(authorize::node(machine, "usage"))?;
            let body = read(state, peer, request, state.settings.usage.body_limit).await?;
            let batch: UsageBatch = parse(&body.bytes)?;
            authorized(authorize::records(
                machine,
                &batch,
                was_informed(state, machine),
            ))?;
            json(&usage::store(state, &body.bytes).await?)
        }
        "lease" => {
            authorized(authorize::node(machine, "lease"))?;
            let lease_request: LeaseRequest =
                parse(&read(state, peer, request, SMALL).await?.bytes)?;
            authorized(authorize::lease(machine, &lease_request))?;
            json(&lease::acquire(state, &machine.cluster, &lease_request, now()).await?)
        }
        "renew" => {
            let renewal: RenewRequest = parse(&read(state, peer, request, SMALL).await?.bytes)?;
            renew(state, machine, &renewal).await
        }
        "artifact" => artifact(state, peer, &request).await,
        "compiled" => compiled(state, peer, request.uri().path()).await,
        _ => Err(unknown_path(state, machine, &request)),
    }
}

/// The error for an unknown path. Machines never call anything outside `/edge/`, such as the API's paths, so somebody else holds the key of one that
/// does; an unknown path below it may be of a later release.
fn unknown_path(state: &State, machine: &Machine, request: &Request<Incoming>) -> Error {
    let (method, path) = (request.method(), request.uri().path());
    let what = format!("{method} {path}");
    if !path.starts_with("/edge/") {
        let refused = &state.metrics.edge.refused;
        refused.with_label_values(&["path"]).inc();
        let tried: String = what.chars().take(TRIED_SHOWN).collect();
        warn!(%machine, what = "path", "a machine tried to call {tried}; it was refused");
    }
    Error::NotFound {
        what,
        hint: "people and their tools call the API, on the address of `listen`",
    }
}

/// Logs and counts that a machine was refused something; returns the error.
pub(super) fn refused(state: &State, machine: &Machine, why: Refusal) -> Error {
    let refused = &state.metrics.edge.refused;
    refused.with_label_values(&[why.what]).inc();
    warn!(%machine, what = why.what, "a machine tried to {}; it was refused", why.right);
    Error::Forbidden {
        who: format!("{} {}", machine.role.noun(), machine.name),
        right: why.right,
    }
}

/// Whether the machine's cluster was ever told of an app.
fn was_informed<'a>(state: &'a State, machine: &'a Machine) -> impl Fn(&AppName) -> bool + 'a {
    move |app| lock(&state.edge.change_log).was_informed(app, &machine.cluster)
}

fn begin_feed(
    state: &Arc<State>,
    machine: &Machine,
    end: CancellationToken,
    query: Option<&str>,
) -> HandlerResult {
    let (mut since, mut schema) = (Revision::NONE, None);
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let bad = || Error::BadRequest(format!("{key}: `{value}` is no number"));
        match key.as_ref() {
            "since" => since = Revision(value.parse().map_err(|_| bad())?),
            "schema" => schema = Some(value.parse::<u16>().map_err(|_| bad())?),
            _ => {}
        }
    }
    if schema.is_some_and(|schema| schema < SCHEMA) {
        return Err(Error::BadRequest(format!(
            "this controller's feed has schema {SCHEMA}; upgrade the machine"
        )));
    }
    if !lock(&state.edge.change_log).is_loaded() {
        return Err(Error::Unready(
            "the database was not read yet, so there is nothing to tell",
        ));
    }
    let bytes = feed::body(Arc::clone(state), machine.clone(), since, end)?;
    let body = StreamBody::new(bytes.map_ok(BodyFrame::data).map_err(boxed));
    let mut response = Response::new(UnsyncBoxBody::new(body));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Accepts a report as a whole or not at all.
fn take_report(state: &State, machine: &Machine, report: Report) -> Result<(), Error> {
    for message in &report.messages {
        authorize::report(machine, message, was_informed(state, machine))
            .map_err(|why| refused(state, machine, why))?;
        let authorized = authorize::addresses(lock(&state.live).admin_state(), message);
        authorized.map_err(|why| refused(state, machine, why))?;
    }
    for mut message in report.messages {
        if let Message::NodeStatus(status) = &mut message {
            // A node may not report apps that its cluster was never told of.
            let informed = was_informed(state, machine);
            let mut foreign = None;
            status.apps.retain(|app| {
                let known = informed(&app.app);
                if !known && foreign.is_none() {
                    foreign = Some(app.app.clone());
                }
                known
            });
            if let Some(app) = foreign {
                foreign_app(state, machine, &app);
            }
        }
        reports::take_in(state, &message);
    }
    Ok(())
}

/// Logs and counts a status with an app that the machine's cluster was never told of.
fn foreign_app(state: &State, machine: &Machine, app: &AppName) {
    let (refused, what) = (&state.metrics.edge.refused, "status_app");
    refused.with_label_values(&[what]).inc();
    // A controller that has just started counts no cluster as told, and all machines report all apps that they have.
    if lock(&state.edge.change_log).is_loaded() {
        info!(%machine, what, "a machine tried to tell of {app}, which its cluster was never told of; it was left out");
    }
}

async fn renew(state: &State, machine: &Machine, renewal: &RenewRequest) -> HandlerResult {
    let present = certificate_get(&mut *state.store.read().await?, &renewal.serial).await?;
    if present.is_none_or(|present| present.node != machine.name) {
        let why = Refusal {
            what: "renew",
            right: "renew another machine's certificate",
        };
        return Err(refused(state, machine, why));
    }
    let actor = Actor::named(format!("{} {}", machine.role.noun(), machine.name));
    let renewed = enrol::renew(state, renewal, &actor, now()).await;
    if let Err(Error::Enrol(EnrolError::Moved)) = &renewed {
        // The answer says how to fix it.
        drop(refused(state, machine, authorize::ELSEWHERE));
    }
    json(&renewed?)
}

async fn artifact(state: &State, peer: &Peer, request: &Request<Incoming>) -> HandlerResult {
    let path = request.uri().path();
    let digest: Digest = path.strip_prefix(ARTIFACTS).unwrap_or_default().parse()?;
    fetch::may(state, &peer.machine, "artifact", &digest).await?;
    let span = span(request.headers())?;
    let object = artifact_find(&mut *state.store.read().await?, &digest).await?;
    let artifact = state.artifacts.get(&object, span).await?;
    let length = artifact.end - artifact.start;
    let mut response = Response::new(stream(state, peer, artifact.bytes));
    if span.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let (start, last) = (artifact.start, artifact.end.saturating_sub(1));
        let range = format!("bytes {start}-{last}/{}", artifact.size);
        insert(response.headers_mut(), CONTENT_RANGE, &range);
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/wasm"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

/// Machine code of a component for an engine, with its header; for nodes that may fetch the component.
async fn compiled(state: &State, peer: &Peer, path: &str) -> HandlerResult {
    let of = path.strip_prefix(COMPILED).unwrap_or_default();
    let (component, engine) = of.split_once('/').unwrap_or((of, ""));
    let component: Digest = component.parse()?;
    fetch::may(state, &peer.machine, "compiled", &component).await?;
    let engine: EngineKey = engine
        .parse()
        .map_err(|error: NoEngineKey| Error::BadRequest(format!("`{engine}`: {error}")))?;
    let found = state.artifacts.compiled_get(component, &engine).await;
    let code = found.map_err(|error| match error {
        ArtifactError::Missing(_) => Error::NotFound {
            what: format!("machine code of {component} for engine {engine}"),
            hint: "compile the component",
        },
        other => other.into(),
    })?;
    let mut response = Response::new(stream(state, peer, code.bytes));
    let (kind, headers) = ("application/octet-stream", response.headers_mut());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(code.size));
    Ok(response)
}

/// A body streamed from the artifact store; the machine must keep reading it.
fn stream<S, E>(state: &State, peer: &Peer, bytes: S) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let limit = state.settings.edge.stall.as_duration();
    let bytes = guard_stalls(bytes.boxed(), limit, peer.stalled.clone());
    let bytes = bytes.map_ok(BodyFrame::data).map_err(boxed);
    UnsyncBoxBody::new(StreamBody::new(bytes))
}

fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The range of an artifact that a machine still needs: agents only ever resume from where they stopped.
fn span(headers: &HeaderMap) -> Result<Option<Span>, Error> {
    let Some(value) = headers.get(RANGE) else {
        return Ok(None);
    };
    let text = value.to_str().ok();
    let from = text.and_then(|text| text.strip_prefix("bytes=")?.strip_suffix('-'));
    let from = from.and_then(|from| from.parse().ok());
    from.map(|from| Some(Span::From(from))).ok_or_else(|| {
        Error::BadRequest("range: from an offset to the end is understood: `bytes=N-`".to_owned())
    })
}

/// Reads a body of at most `limit` bytes.
async fn read(
    state: &State,
    peer: &Peer,
    request: Request<Incoming>,
    limit: ByteSize,
) -> Result<ReceivedBody, Error> {
    let gauge = state.metrics.edge.body_bytes.clone();
    let bodies = &state.edge.bodies;
    bodies
        .receive(request.into_body(), limit, &peer.body_permits, gauge)
        .await
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::BadRequest(format!("the body: {e}")))
}

fn boxed<E: std::error::Error + Send + Sync + 'static>(
    error: E,
) -> Box<dyn std::error::Error + Send + Sync> {
    Box::new(error)
}

fn whole(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
    let mut response = Response::new(UnsyncBoxBody::new(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn json<T: Serialize>(value: &T) -> HandlerResult {
    let bytes = serde_json::to_vec(value)
        .map_err(|e| Error::Internal(format!("an answer cannot be written: {e}")))?;
    Ok(whole(StatusCode::OK, "application/json", bytes))
}

fn empty() -> Response<Body> {
    let mut response = whole(StatusCode::NO_CONTENT, "application/json", Vec::new());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// An error as a problem document; logged as an error or a warning if it is not the caller's fault.
fn failed(peer: &Peer, what: &str, failure: &Error) -> Response<Body> {
    let (machine, code, causes) = (&peer.machine, failure.code(), chain(failure));
    match code.fault() {
        Fault::Internal => error!(%machine, what, %code, causes, "a machine's request failed"),
        Fault::Dependency => warn!(%machine, what, %code, causes, "a machine's request failed"),
        Fault::Caller | Fault::Function => {
            debug!(%machine, what, %code, causes, "a machine's request was refused");
        }
    }
    let status = StatusCode::from_u16(code.http_status());
    let bytes = serde_json::to_vec(&problem(failure)).unwrap_or_default();
    whole(
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        Problem::MEDIA_TYPE,
        bytes,
    )
}
