//! Requests of controllers on the stage listener: this node's logs and call records, and calls through its gateway.
//!
//! `GET /logs/APP?follow=BOOL&tail=N` and `GET /calls/APP?since=…`. A request with the header `fdn-call-host` is a call of that app instead,
//! whatever the path: the app's policy applies as for a client, except to a request that names a job. Nodes are refused all of these.

use std::net::IpAddr;
use std::sync::Arc;

use fdn_core::api::header;
use fdn_core::enrol::{ControllerIdentity, NodeIdentity};
use fdn_core::job::JobPass;
use fdn_core::{ErrorCode, Problem, Timestamp};
use fdn_service::CancellationToken;
use fdn_service::pki::Facts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;

use super::serve::{self, StageBody};
use super::wire;
use crate::gateway::head::Peer;
use crate::gateway::service::Gateway;
use crate::logs::{self, LogHub};
use crate::usage::{self, CallAccess};

/// Header with the host name of the called app.
const HOST: HeaderName = HeaderName::from_static(header::CALL_HOST);
/// Header with the job that makes the call.
const JOB: HeaderName = HeaderName::from_static(header::JOB);

/// The peer of a connection, by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bearer {
    /// A node of the network.
    Node(Facts<NodeIdentity>),
    /// A controller.
    Controller(Facts<ControllerIdentity>),
}

impl Bearer {
    /// Reads a verified certificate; `None` unless it is of a node or a controller.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let node = Facts::of_der(certificate).map(Self::Node);
        node.or_else(|_| Facts::of_der(certificate).map(Self::Controller))
            .ok()
    }

    /// The certificate's serial number, and when it expires.
    pub(super) fn serial_and_expiry(&self) -> (&str, Timestamp) {
        match self {
            Self::Node(facts) => (&facts.serial, facts.expires_at),
            Self::Controller(facts) => (&facts.serial, facts.expires_at),
        }
    }

    /// The name in the certificate.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Node(facts) => facts.identity.to_string(),
            Self::Controller(facts) => facts.identity.to_string(),
        }
    }
}

/// The sources of the answers to controllers.
#[derive(Clone)]
pub struct AnswerSources {
    /// The logs of apps.
    pub logs: Arc<LogHub>,
    /// The records of single calls.
    pub calls: CallAccess,
}

/// The kind of a controller's request, as the label of its counter.
pub(super) fn about(request: &Request<Incoming>) -> &'static str {
    let path = request.uri().path();
    if request.headers().contains_key(HOST) {
        "call"
    } else if path.starts_with("/logs/") {
        "logs"
    } else if path.starts_with("/calls/") {
        "calls"
    } else {
        "other"
    }
}

/// Answers a controller at `from`. Endless answers end when `closing` is cancelled.
pub(super) async fn answer(
    (gateway, sources): (&Gateway, &AnswerSources),
    from: Option<IpAddr>,
    request: Request<Incoming>,
    closing: &CancellationToken,
) -> Response<StageBody> {
    if request.headers().contains_key(HOST) {
        return call(gateway, from, request).await;
    }
    let query = request.uri().query().unwrap_or_default();
    let target = request.uri().path().trim_start_matches('/').split_once('/');
    match (request.method(), target) {
        (&Method::GET, Some(("logs", app))) => logs::answer(&sources.logs, app, query, closing),
        (&Method::GET, Some(("calls", app))) => usage::answer(&sources.calls, app, query).await,
        _ => problem(
            ErrorCode::NotFound,
            "controllers are told /logs/APP and /calls/APP here",
        ),
    }
}

/// Calls an app through the gateway.
async fn call(
    gateway: &Gateway,
    from: Option<IpAddr>,
    request: Request<Incoming>,
) -> Response<StageBody> {
    let (mut parts, body) = request.into_parts();
    let host = parts.headers.remove(HOST);
    let job = job(&mut parts.headers);
    wire::strip(&mut parts.headers);
    if let Some(host) = host {
        parts.headers.insert(http::header::HOST, host);
    }
    let target = parts.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let head = serve::plain_head(parts.method.as_str(), target, &parts.headers);
    let Some(mut head) = head else {
        return problem(ErrorCode::BadRequest, "the call cannot be expressed");
    };
    head.version = actix_http::Version::HTTP_2;
    let peer = Peer::new(from, false).over_tls(true);
    let payload = serve::payload(body);
    let answered = gateway.answer_call(&head, &peer, payload, job.as_ref());
    let mut response = serve::respond(gateway, answered.await).await;
    // The outcome field is meant for gateways only.
    response.headers_mut().remove(wire::OUTCOME);
    response
}

/// Removes the job header; returns the job's identity if the header is valid.
fn job(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let pass: JobPass = headers.remove(JOB)?.to_str().ok()?.parse().ok()?;
    HeaderValue::from_str(&pass.identity()).ok()
}

/// A refusal, as a problem.
pub(crate) fn problem(code: ErrorCode, detail: &str) -> Response<StageBody> {
    let problem = Problem::new(code, detail);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = serde_json::to_vec(&problem).unwrap_or_default();
    response(status, Problem::MEDIA_TYPE, StageBody::Whole(bytes.into()))
}

/// A response with this status, media type and body.
pub(crate) fn response(
    status: StatusCode,
    kind: &'static str,
    body: StageBody,
) -> Response<StageBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_and_what_names_none_is_taken_off() {
        let mut headers = HeaderMap::new();
        assert_eq!(job(&mut headers), None);
        let id = format!("job_{}", "0".repeat(32));
        let value = format!("{id};2");
        headers.insert(JOB, HeaderValue::from_str(&value).expect("a value"));
        let named = job(&mut headers).expect("a job");
        assert_eq!(named, format!("job:{id}/2"));
        headers.insert(JOB, HeaderValue::from_static("x"));
        assert_eq!(job(&mut headers), None);
        assert!(headers.is_empty());
    }
}
