//! Converts a function's answer into the client's response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{Response, StatusCode};
use bytes::{BufMut, Bytes, BytesMut};
use fdn_core::api::header;
use fdn_runtime::{CallStats, ResponseBody};

use super::body::{GatewayBody, Source, drain};
use super::end::CallEnd;
use super::head;
use super::upload::Pump;
use crate::apps::Deployed;

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
        let pending = end.still_runs();
        tokio::task::spawn_local(drain(Source::Guest(body), pump, end));
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
