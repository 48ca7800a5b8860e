//! Serves a stage call of another gateway, from its head to the last byte of its response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_http::body::MessageBody;
use actix_http::error::PayloadError;
use actix_http::header::{HeaderName as ActixName, HeaderValue as ActixValue};
use actix_http::{BoxedPayloadStream, Payload, RequestHead};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::{AppName, ErrorCode, StageName};
use fdn_scheduling::run::{Failure, FailureKind};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyStream;
use hyper::body::Incoming;
use prometheus::IntCounterVec;
use tokio::time::timeout;

use super::call::failure_of;
use super::wire::{self, Received};
use super::{forward, forwarded, prewarm};
use crate::apps::{Deployed, Staged};
use crate::gateway::body::GatewayBody;
use crate::gateway::head::{Ids, Peer};
use crate::gateway::routes::Route;
use crate::gateway::service::Gateway;
use crate::gateway::stage::StageRequest;

/// The body of a response to a gateway or a controller.
pub(crate) enum StageBody {
    /// No body.
    None,
    /// The response body of a call.
    Call(GatewayBody),
    /// This node's own answer to a controller, complete.
    Whole(Bytes),
    /// This node's own answer to a controller, as a stream.
    Pieces(Pin<Box<dyn Stream<Item = Bytes>>>),
}

impl Body for StageBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = match &mut *self {
            Self::None => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::Pieces(pieces) => ready!(pieces.as_mut().poll_next(cx)),
            Self::Call(body) => match ready!(Pin::new(body).poll_next(cx)) {
                Some(Ok(piece)) => Some(piece),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.to_string().into()))),
                None => None,
            },
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        use actix_http::body::BodySize;
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
            Self::Call(body) => match body.size() {
                BodySize::Sized(length) => SizeHint::with_exact(length),
                BodySize::Stream => SizeHint::default(),
                BodySize::None => SizeHint::with_exact(0),
            },
        }
    }
}

/// A response for a call that no function answered.
pub(super) fn unanswered(failure: &Failure) -> Response<StageBody> {
    let mut response = Response::new(StageBody::None);
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let headers = response.headers_mut();
    headers.insert(wire::OUTCOME, wire::field(wire::word(failure.kind)));
    headers.insert(wire::REASON, wire::field(&failure.reason));
    response
}

/// The response to a peer that may not call.
pub(super) fn forbidden() -> Response<StageBody> {
    let told = ErrorCode::StageRefused;
    let mut response = unanswered(&Failure::new(
        FailureKind::NotStarted,
        format!("{told}: {}", told.title()),
    ));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// Answers a stage call, a forwarded call or an announcement.
pub(super) async fn answer(gateway: &Gateway, request: Request<Incoming>) -> Response<StageBody> {
    if forward::is_one(request.uri()) {
        return forwarded::answer(gateway, request).await;
    }
    if wire::is_announcement(request.uri()) {
        return prewarm::answer(gateway, &request);
    }
    let ran = run(gateway, request).await;
    answered(ran, &gateway.workflows.metrics.served)
}

/// The response to a gateway; counts it by its outcome.
pub(super) fn answered(
    ran: Result<Response<StageBody>, Failure>,
    served: &IntCounterVec,
) -> Response<StageBody> {
    match ran {
        Ok(response) => {
            served.with_label_values(&["answered"]).inc();
            response
        }
        Err(failure) => {
            let label = match failure.kind {
                FailureKind::NotStarted => "not_started",
                FailureKind::Lost | FailureKind::Answered | FailureKind::Refused => "failed",
            };
            served.with_label_values(&[label]).inc();
            unanswered(&failure)
        }
    }
}

async fn run(
    gateway: &Gateway,
    request: Request<Incoming>,
) -> Result<Response<StageBody>, Failure> {
    let (mut parts, body) = request.into_parts();
    let received = wire::receive(&parts.method, &parts.uri, &mut parts.headers);
    let refused = || Failure::new(FailureKind::Refused, "this is no stage call");
    let received = received.ok_or_else(refused)?;
    let (route, staged) = find(gateway, &received.app_host, &received.app)?;
    let deployed = deployed(&staged, &received.stage, &received.version)?;
    let head = head(&received, &parts.headers).ok_or_else(refused)?;
    let ids = Ids::of(head.headers());
    let stage = StageRequest {
        head,
        host: received.host,
        ids,
        peer: Peer::forwarded(received.client),
        payload: payload(body),
    };
    let calling = gateway.stage(deployed, route.revision, stage);
    let answered = timeout(received.left, calling).await.map_err(|_| {
        let told = format!("no answer within {:?}", received.left);
        Failure::new(FailureKind::Lost, told)
    })?;
    let response = answered.map_err(|answer| failure_of(answer.code, false, answer.detail))?;
    if let Some(code) = own_code(response.headers()) {
        return Err(failure_of(code, true, code.title()));
    }
    Ok(respond(gateway, response).await)
}

/// A workflow that is ready on this node, with its route.
pub(super) fn find(
    gateway: &Gateway,
    host: &str,
    app: &AppName,
) -> Result<(Arc<Route>, Arc<Staged>), Failure> {
    let absent = |told: &str| Failure::new(FailureKind::NotStarted, told.to_owned());
    let route = gateway
        .routes
        .find(host)
        .filter(|route| route.app == *app)
        .ok_or_else(|| absent("the app is not deployed there yet"))?;
    let staged = route.staged.clone();
    let staged = staged.ok_or_else(|| absent("the app is not ready there yet"))?;
    Ok((route, staged))
}

/// The stage's deployment on this node, if it has this version.
pub(super) fn deployed<'a>(
    staged: &'a Staged,
    stage: &StageName,
    version: &str,
) -> Result<&'a Arc<Deployed>, Failure> {
    let absent = |told: String| Failure::new(FailureKind::NotStarted, told);
    let stage = staged
        .find(stage)
        .ok_or_else(|| absent("another version of the workflow is deployed there".to_owned()))?;
    let here = format!("{}@{}", stage.function, stage.version);
    if here != version {
        return Err(absent(format!("{here} is deployed there, not {version}")));
    }
    let deployed = stage.deployed.as_ref();
    deployed.ok_or_else(|| {
        absent("that node runs no containers, or has no devices for the stage".to_owned())
    })
}

/// The request head, in the types of the gateway's own calls.
fn head(received: &Received, headers: &HeaderMap) -> Option<RequestHead> {
    let mut head = plain_head(&received.method, &received.target, headers)?;
    let out = head.headers_mut();
    let told = [
        (header::ATTEMPT, received.attempt.clone()),
        (header::DEADLINE, received.left.as_millis().to_string()),
        (header::STAGE, received.stage.to_string()),
    ];
    for (name, value) in told {
        out.insert(
            ActixName::from_static(name),
            ActixValue::from_str(&value).ok()?,
        );
    }
    Some(head)
}

/// A request head of these parts.
pub(super) fn plain_head(method: &str, target: &str, headers: &HeaderMap) -> Option<RequestHead> {
    let mut head = RequestHead::default();
    head.method = actix_http::Method::from_bytes(method.as_bytes()).ok()?;
    head.uri = target.parse().ok()?;
    let out = head.headers_mut();
    for (name, value) in headers {
        out.append(
            ActixName::from_bytes(name.as_str().as_bytes()).ok()?,
            ActixValue::from_bytes(value.as_bytes()).ok()?,
        );
    }
    Some(head)
}

/// The body of a call as a payload.
pub(super) fn payload(body: Incoming) -> Payload {
    let pieces = BodyStream::new(body).filter_map(|frame| async {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(PayloadError::Io(std::io::Error::other(error)))),
        }
    });
    let pieces: BoxedPayloadStream = Box::pin(pieces);
    Payload::from(pieces)
}

/// The error code of a response that the gateway made in the function's place.
fn own_code(headers: &actix_http::header::HeaderMap) -> Option<ErrorCode> {
    let kind = headers
        .get(actix_http::header::CONTENT_TYPE)?
        .to_str()
        .ok()?;
    let code = headers.get(header::ERROR)?.to_str().ok()?.to_owned();
    ErrorCode::try_from(code)
        .ok()
        .filter(|_| kind == fdn_core::Problem::MEDIA_TYPE)
}

pub(super) async fn respond(
    gateway: &Gateway,
    response: actix_http::Response<GatewayBody>,
) -> Response<StageBody> {
    let (head, mut body) = response.into_parts();
    if let Some(pending) = body.pending()
        && !pending.is_safe()
        && !pending.safe().await
    {
        let told = "the node could not take account of the call";
        return unanswered(&Failure::new(FailureKind::Lost, told));
    }
    let mut out = Response::new(StageBody::Call(body));
    *out.status_mut() =
        StatusCode::from_u16(head.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = out.headers_mut();
    for (name, value) in head.headers() {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_str().as_bytes()),
            HeaderValue::from_bytes(value.as_bytes()),
        ) {
            headers.append(name, value);
        }
    }
    headers.insert(wire::OUTCOME, wire::ANSWERED);
    if let Ok(node) = HeaderValue::from_bytes(gateway.node.as_bytes()) {
        headers.insert(HeaderName::from_static(header::NODE), node);
    }
    out
}
