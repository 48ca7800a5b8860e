//! `/agent/v1/` and `/dns/v1/`: what the network's own processes call.

use actix_web::http::header::{self, ByteRangeSpec, Header, Range};
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use fdn_core::api::AppsSnapshot;
use fdn_core::compiled::EngineKey;
use fdn_core::usage::UsageReceipt;
use fdn_core::{ByteSize, Digest, Problem};
use futures::StreamExt;

use super::auth::{Authorized, Resolve, Serve};
use super::conditional::{is_known, not_modified, tagged};
use super::error::ApiError;
use crate::Error;
use crate::app::precondition::tag;
use crate::app::{snapshot, usage};
use crate::artifacts::{ArtifactError, Span};
use crate::state::State;
use crate::store::artifact::artifact_find;

type Shared = web::Data<State>;

/// Desired state of all apps, for a node that may have missed messages.
#[utoipa::path(
    tag = "agents",
    security(("network" = [])),
    responses(
        (status = 200, description = "A revision and the apps at it", body = Object, content_type = "application/json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/agent/v1/apps")]
pub(crate) async fn agent_apps(
    _: Authorized<Serve>,
    state: Shared,
) -> Result<web::Json<AppsSnapshot>, ApiError> {
    Ok(web::Json(snapshot::apps(&state).await?))
}

/// A component by its digest.
#[utoipa::path(
    tag = "agents",
    security(("network" = [])),
    params(
        ("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits"),
        ("range" = Option<String>, Header, description = "One range of octets (RFC 9110, section 14.2)"),
    ),
    responses(
        (status = 200, description = "The octets", body = Vec<u8>, content_type = "application/wasm"),
        (status = 206, description = "A part of the octets", body = Vec<u8>, content_type = "application/wasm"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/agent/v1/artifacts/{digest}")]
pub(crate) async fn agent_artifact(
    call: Authorized<Serve, web::Path<Digest>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (digest, span) = (*call.input, span(&request)?);
    let object = artifact_find(&mut *state.store.read().await?, &digest).await?;
    let artifact = state.artifacts.get(&object, span).await?;
    let mut response = if span.is_some() {
        HttpResponse::PartialContent()
    } else {
        HttpResponse::Ok()
    };
    if span.is_some() {
        let range = format!(
            "bytes {}-{}/{}",
            artifact.start,
            artifact.end - 1,
            artifact.size
        );
        response.insert_header((header::CONTENT_RANGE, range));
    }
    Ok(response
        .content_type("application/wasm")
        .insert_header((header::ACCEPT_RANGES, "bytes"))
        .insert_header((header::ETAG, format!("\"{digest}\"")))
        // Compiled code compresses, but a range must count the octets of the artifact itself.
        .insert_header((header::CONTENT_ENCODING, "identity"))
        .body(actix_web::body::SizedStream::new(
            artifact.end - artifact.start,
            artifact.octets,
        )))
}

/// Machine code of a component for an engine, behind a line that says what it is, signed by the network's authority. 404 if there is none: compile the
/// component.
#[utoipa::path(
    tag = "agents",
    security(("network" = [])),
    params(
        ("digest" = String, Path, description = "The component: `sha256:` and 64 hexadecimal digits"),
        ("engine" = String, Path, description = "The engine: 1 to 64 lower-case hexadecimal digits"),
    ),
    responses(
        (status = 200, description = "A line of JSON, then the machine code", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/agent/v1/compiled/{digest}/{engine}")]
pub(crate) async fn agent_compiled(
    call: Authorized<Serve, web::Path<(Digest, EngineKey)>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (component, engine) = call.input.into_inner();
    let found = state.artifacts.compiled_get(component, &engine).await;
    let code = found.map_err(|error| match error {
        ArtifactError::Missing(_) => Error::NotFound {
            what: format!("machine code of {component} for engine {engine}"),
            hint: "compile the component",
        },
        other => other.into(),
    })?;
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_ENCODING, "identity"))
        .body(actix_web::body::SizedStream::new(code.size, code.octets)))
}

/// The one range that a request asks for.
fn span(request: &HttpRequest) -> Result<Option<Span>, Error> {
    if !request.headers().contains_key(header::RANGE) {
        return Ok(None);
    }
    let bad = || {
        Error::BadRequest(
            "range: one range of octets is understood, such as `bytes=0-1023`".to_owned(),
        )
    };
    let Ok(Range::Bytes(ranges)) = Range::parse(request) else {
        return Err(bad());
    };
    match ranges.as_slice() {
        [ByteRangeSpec::From(start)] => Ok(Some(Span::From(*start))),
        [ByteRangeSpec::FromTo(start, last)] if start <= last => {
            Ok(Some(Span::Between(*start, last.saturating_add(1))))
        }
        [ByteRangeSpec::Last(count)] => Ok(Some(Span::Last(*count))),
        _ => Err(bad()),
    }
}

/// Sums of calls, for billing. The same batch may be sent as often as needed: it is counted once.
#[utoipa::path(
    tag = "agents",
    security(("network" = [])),
    request_body(content = Object, description = "A batch id, the node, and the sums", content_type = "application/json"),
    responses(
        (status = 200, description = "The batch is counted", body = UsageReceipt, content_type = "application/json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/agent/v1/usage/sums")]
pub(crate) async fn agent_usage_sums(
    call: Authorized<Serve, web::Payload>,
    state: Shared,
) -> Result<web::Json<UsageReceipt>, ApiError> {
    let octets = read(call.input, state.settings.usage.body_limit).await?;
    Ok(web::Json(usage::add(&state, &octets).await?))
}

/// Records of calls, from nodes of the revision before sums. The same batch may be sent as often as needed: it is counted once.
#[utoipa::path(
    tag = "agents",
    security(("network" = [])),
    request_body(content = Object, description = "A batch id, the node, and the records", content_type = "application/json"),
    responses(
        (status = 200, description = "The batch is stored", body = UsageReceipt, content_type = "application/json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/agent/v1/usage")]
pub(crate) async fn agent_usage(
    call: Authorized<Serve, web::Payload>,
    state: Shared,
) -> Result<web::Json<UsageReceipt>, ApiError> {
    let octets = read(call.input, state.settings.usage.body_limit).await?;
    Ok(web::Json(usage::store(&state, &octets).await?))
}

/// A body of at most `limit`; the framework's own limit is that of what people send.
pub(super) async fn read(
    mut payload: web::Payload,
    limit: ByteSize,
) -> Result<web::BytesMut, Error> {
    let mut octets = web::BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|e| Error::BadRequest(format!("the body broke off: {e}")))?;
        if octets.len() + piece.len() > limit.as_usize() {
            return Err(Error::BodyTooLarge(limit));
        }
        octets.extend_from_slice(&piece);
    }
    Ok(octets)
}

/// Everything a DNS server answers from. The tag is that of the revision: with it in `If-None-Match` nothing is sent that is known.
#[utoipa::path(
    tag = "dns",
    security(("network" = [])),
    params(("if-none-match" = Option<String>, Header, description = "The tag of the snapshot that is held")),
    responses(
        (status = 200, description = "A revision, the clusters, the latency map and all bindings", body = Object, content_type = "application/json"),
        (status = 304, description = "The snapshot that is held is the newest"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/dns/v1/snapshot")]
pub(crate) async fn dns_snapshot(
    _: Authorized<Resolve>,
    request: HttpRequest,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    // Reading all of it only to find that it is known would cost as much as sending it.
    let newest = tag(snapshot::revision(&state).await?.get());
    if is_known(&request, &newest) {
        return Ok(not_modified(newest));
    }
    let snapshot = snapshot::dns(&state).await?;
    Ok(tagged(tag(snapshot.revision.get()), &snapshot))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn one_range_is_understood() {
        let of = |value: &str| {
            span(
                &TestRequest::default()
                    .insert_header((header::RANGE, value))
                    .to_http_request(),
            )
        };
        assert_eq!(of("bytes=0-9").expect("range"), Some(Span::Between(0, 10)));
        assert_eq!(of("bytes=5-").expect("range"), Some(Span::From(5)));
        assert_eq!(of("bytes=-3").expect("range"), Some(Span::Last(3)));
        for bad in ["bytes=9-0", "bytes=0-1,3-4", "lines=1-2", "nonsense"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert_eq!(
            span(&TestRequest::default().to_http_request()).expect("none"),
            None
        );
    }
}
