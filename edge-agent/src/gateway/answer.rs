//! Converts a function's answer into the client's response.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{Response, StatusCode};
use bytes::{BufMut, Bytes, BytesMut};
use fdn_core::api::header;
use fdn_core::{Coded, ErrorCode};
use fdn_runtime::{Call, CallError, CallStats, ResponseBody};
use tracing::error;

use super::body::{GatewayBody, Source, drain};
use super::end::CallEnd;
use super::head::{self, Ids};
use super::problem::ProblemResponse;
use super::routes::Route;
use super::upload::{Pump, poll_pump};
use crate::apps::Deployed;
use crate::metrics::Outcome;
use crate::policy::guard::Headers;

pub(super) const VERSION: HeaderName = HeaderName::from_static(header::VERSION);
pub(super) const TIMING: HeaderName = HeaderName::from_static(header::TIMING);

/// The client's response for the answer of a function whose call ends at `deadline`.
pub(super) fn respond(
    response: http::Response<ResponseBody>,
    pump: Option<Pump>,
    mut end: CallEnd,
    deployed: &Arc<Deployed>,
    waited: Duration,
    is_head: bool,
    deadline: Instant,
) -> Response<GatewayBody> {
    let (parts, body) = response.into_parts();
    let status = StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    end.answered(status);
    let timing = timing(waited, &end.stats());
    let mut out = Response::with_body(status, ());
    let headers = out.headers_mut();
    headers.reserve(parts.headers.len() + 6);
    let announced = head::function_to_client(&parts.headers, headers);
    headers.insert(VERSION, deployed.version_header.clone());
    if let Ok(timing) = HeaderValue::from_maybe_shared(timing) {
        headers.append(TIMING, timing);
    }
    let bodiless = status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || status.is_informational();
    let body = if is_head || bodiless {
        let here = body.as_full().map(|bytes| bytes.len() as u64);
        let length = announced.or(here.filter(|length| *length > 0));
        let pending = if here.is_some() {
            // The guest has ended, so that there is nothing to wait for.
            end.ended(None)
        } else {
            let pending = end.still_runs();
            tokio::task::spawn_local(drain(Source::Guest(body), pump, end));
            pending
        };
        let mut none = GatewayBody::none(length.filter(|_| is_head));
        none.wait_for(pending);
        none
    } else if let Some(bytes) = body.as_full() {
        let bytes = bytes.clone();
        end.sending(bytes.len());
        let pending = end.ended(None);
        let mut full = GatewayBody::full(bytes);
        full.wait_for(pending);
        full
    } else {
        let times = (deadline, deployed.manifest.timeout.as_duration());
        GatewayBody::stream(Source::Guest(body), pump, announced, end, times)
    };
    out.set_body(body)
}

/// Runs guest and upload together until the answer's head is available.
pub(super) async fn run(
    call: Call,
    mut pump: Option<Pump>,
) -> Result<(http::Response<ResponseBody>, Option<Pump>), CallError> {
    let mut response = pin!(call.response());
    let response = poll_fn(|cx| {
        // The guest first: it may answer without reading. Then the upload of what the client sent meanwhile; if the guest may have consumed that,
        // its own waker polls it again.
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

/// The answer to a CORS preflight.
pub(super) fn preflight(
    route: &Route,
    headers: Headers,
    arrived: Instant,
) -> Response<GatewayBody> {
    route.metrics.ended(Outcome::Ok, arrived.elapsed());
    let mut response = Response::with_body(StatusCode::NO_CONTENT, GatewayBody::none(None));
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The answer for a call that failed before its answer's head; the runtime has logged the reason in the app's log.
pub(super) fn failed(failure: &CallError, end: CallEnd, ids: &Ids) -> Response<GatewayBody> {
    let code = failure.code();
    if code == ErrorCode::Internal {
        let request = String::from_utf8_lossy(&ids.request);
        error!(%failure, %request, "a call failed in the node itself");
    }
    end.failed(ProblemResponse::of_call(code), ids)
}

/// The value of the timing header, `wait;dur=…, start;dur=…, exec;dur=…` in ms: the time before the call, until it had an instance, and until the
/// answer's head was set.
pub(super) fn timing(waited: Duration, stats: &CallStats) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    let exec = stats.first_byte.saturating_sub(stats.instantiate);
    for (name, took) in [
        (&b"wait;dur="[..], waited),
        (b", start;dur=", stats.instantiate),
        (b", exec;dur=", exec),
    ] {
        out.put_slice(name);
        put_millis(&mut out, took);
    }
    out.freeze()
}

/// Writes milliseconds with three decimals. Formatted by hand, because formatting floats would cost more than the rest of the head.
fn put_millis(out: &mut BytesMut, took: Duration) {
    let micros = took.as_micros();
    let mut digits = [b'0'; 40];
    let mut at = digits.len();
    let mut rest = micros;
    while rest > 0 || digits.len() - at < 4 {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    let point = digits.len() - 3;
    out.put_slice(&digits[at..point]);
    out.put_u8(b'.');
    out.put_slice(&digits[point..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_milliseconds_with_three_decimals() {
        let stats = CallStats {
            instantiate: Duration::from_micros(12),
            first_byte: Duration::from_micros(1_234_567),
            ..CallStats::default()
        };
        assert_eq!(
            timing(Duration::ZERO, &stats),
            "wait;dur=0.000, start;dur=0.012, exec;dur=1234.555"
        );
    }
}
