//! DNS over HTTPS (RFC 8484): HTTP/2, with GET and POST at `/dns-query`.
//!
//! A message that can be answered gets status 200, whatever the DNS response code; everything else gets an HTTP error status and no
//! message (section 4.2.1). An answer may be cached as long as its records are valid (section 5.1), but by shared caches only if it depends on
//! the request alone: the answer to a request without a client subnet depends on the source address.
//!
//! A connection is closed if no request was answered within the idle time, however slowly the next request's bytes arrive. The number of
//! concurrent requests is limited, and their length as over TCP. A peer that does not accept its answers cannot send further requests,
//! so it becomes idle too.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::streams::{self, ConnectionSlot, Limits};
use super::tls::Handshakes;
use super::{Responder, wire};
use crate::metrics::Transport;

/// The ALPN protocol id (RFC 9113, section 3.2).
pub const ALPN: &[u8] = b"h2";
/// The path of queries.
const PATH: &str = "/dns-query";
/// The only media type (RFC 8484, section 6).
const MESSAGE: &str = "application/dns-message";
/// The bytes that a peer may send ahead, per connection and per stream: the initial window of the protocol (RFC 9113, section 6.9.2).
const WINDOW: u32 = 65_535;
/// The most bytes of answers that are buffered for a peer, and the most bytes of a request's headers.
const SEND_BUFFER: usize = 64 * 1024;
const HEADER_LIST: u32 = 16 * 1024;

/// Accepts connections and answers until `shutdown`; each connection has at most `streams` concurrent requests.
pub async fn serve(
    listener: TcpListener,
    handshakes: Handshakes,
    responder: Arc<Responder>,
    (limits, streams): (Limits, u32),
    shutdown: CancellationToken,
) {
    let metrics = responder.metrics().encrypted.https.connections();
    streams::accept(listener, limits, metrics, shutdown, |stream, peer, slot| {
        let (responder, handshakes) = (Arc::clone(&responder), handshakes.clone());
        async move {
            if let Some(stream) = handshakes.accept(stream).await {
                converse(stream, peer, responder, (limits.request, streams), slot).await;
            }
        }
    })
    .await;
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    responder: Arc<Responder>,
    (longest, streams): (usize, u32),
    slot: ConnectionSlot,
) {
    let begin = Instant::now();
    // The time in ms from the beginning of the connection to its last answer.
    let answered = Arc::new(AtomicU64::new(0));
    let slot = Arc::new(slot);
    let service = service_fn(|request| {
        let (responder, answered) = (Arc::clone(&responder), Arc::clone(&answered));
        let time = slot.idle();
        async move {
            let response = answer(&responder, peer, request, longest, time).await;
            let after = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            answered.store(after, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(streams)
        .max_header_list_size(HEADER_LIST)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    loop {
        let last = answered.load(Ordering::Relaxed);
        let end = begin + Duration::from_millis(last) + slot.idle();
        tokio::select! {
            // How the connection ended does not matter here.
            _ = connection.as_mut() => return,
            () = sleep_until(end) => {}
        }
        if answered.load(Ordering::Relaxed) == last {
            break;
        }
    }
    // A peer that sends a request right now learns that it was not processed (RFC 9113, section 6.8).
    connection.as_mut().graceful_shutdown();
    drop(timeout(slot.idle(), connection).await);
}

async fn answer(
    responder: &Responder,
    peer: SocketAddr,
    request: Request<Incoming>,
    longest: usize,
    time: Duration,
) -> Response<Full<Bytes>> {
    let replied = message(request, longest, time).await.and_then(|message| {
        let reply = responder.respond(&message, peer, Transport::Https);
        // A message that is dropped silently on other transports is a bad request here.
        let reply = reply.ok_or(StatusCode::BAD_REQUEST)?;
        let kept = keep(&message, &reply);
        Ok((reply, kept))
    });
    match replied {
        Ok((reply, kept)) => {
            let mut response = Response::new(Full::from(reply));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE));
            headers.insert(CACHE_CONTROL, kept);
            response
        }
        Err(status) => {
            responder.metrics().encrypted.refused(status.as_u16());
            let mut response = Response::new(Full::default());
            *response.status_mut() = status;
            if status == StatusCode::METHOD_NOT_ALLOWED {
                let allowed = HeaderValue::from_static("GET, POST");
                response.headers_mut().insert(ALLOW, allowed);
            }
            response
        }
    }
}

/// Returns the DNS message in a request, or the HTTP status that says why there is none.
///
/// The body is read before a request is refused, too: a stream that is answered before it is fully read is reset, and some clients then lose the
/// answer.
async fn message(
    request: Request<Incoming>,
    longest: usize,
    time: Duration,
) -> Result<Bytes, StatusCode> {
    let (parts, body) = request.into_parts();
    let carried = carried(&parts, longest);
    let kept = if carried == Ok(None) { longest } else { 0 };
    let read = timeout(time, read(body, kept)).await;
    match (carried?, read) {
        (Some(message), _) => Ok(message),
        (None, Ok(body)) => body,
        (None, Err(_)) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

/// Returns the message in a request's URL, or `None` if it is in the body.
fn carried(request: &Parts, longest: usize) -> Result<Option<Bytes>, StatusCode> {
    if request.uri.path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    if request.method == Method::GET {
        return variable(request.uri.query().unwrap_or_default(), longest).map(Some);
    }
    if request.method != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let kind = request.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()?.split(';').next());
    if !kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(MESSAGE)) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    Ok(None)
}

/// Reads a body of at most `longest` bytes. A longer one is read and dropped up to the window, which the peer may send without asking.
async fn read(mut body: Incoming, longest: usize) -> Result<Bytes, StatusCode> {
    let (mut kept, mut taken) = (Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        taken = taken.saturating_add(data.len());
        if taken <= longest {
            kept.extend_from_slice(data);
        } else if taken > WINDOW as usize {
            break;
        }
    }
    if taken > longest {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    Ok(Bytes::from(kept))
}

/// The message in the query parameter `dns`: base64url without padding (RFC 8484, section 6).
fn variable(query: &str, longest: usize) -> Result<Bytes, StatusCode> {
    let mut values = query
        .split('&')
        .filter_map(|part| part.strip_prefix("dns="));
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(StatusCode::BAD_REQUEST);
    };
    if value.len() > longest.saturating_mul(4).div_ceil(3) {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let bytes = URL_SAFE_NO_PAD.decode(value);
    bytes.map(Bytes::from).map_err(|_| StatusCode::BAD_REQUEST)
}

/// The `Cache-Control` header: how long an answer may be cached, and by whom (RFC 8484, section 5.1).
fn keep(message: &[u8], reply: &[u8]) -> HeaderValue {
    let edns = wire::scan(message).ok().and_then(|scan| scan.edns);
    let alone = edns.is_some_and(|edns| {
        edns.cookie.is_none() && edns.subnet.is_some_and(|subnet| subnet.client.is_some())
    });
    let whose = if alone { "" } else { "private, " };
    let seconds = wire::lifetime(reply).unwrap_or(0);
    HeaderValue::try_from(format!("{whose}max-age={seconds}"))
        .unwrap_or_else(|_| HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_holds_base64url_once_and_of_an_honest_length() {
        // RFC 8484, section 4.1.1.
        let example = "dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
        let message = variable(example, 33).expect("a message");
        assert_eq!((message.len(), &message[12..16]), (33, &b"\x03www"[..]));
        assert_eq!(variable(&format!("a=b&{example}&c"), 33), Ok(message));
        for (query, expected) in [
            ("", StatusCode::BAD_REQUEST),
            ("dns", StatusCode::BAD_REQUEST),
            ("name=hello", StatusCode::BAD_REQUEST),
            ("dns=AAAA&dns=AAAA", StatusCode::BAD_REQUEST),
            ("dns=AAA=", StatusCode::BAD_REQUEST),
            ("dns=AA+/", StatusCode::BAD_REQUEST),
            (&format!("dns={}", "A".repeat(48)), StatusCode::URI_TOO_LONG),
        ] {
            assert_eq!(variable(query, 33), Err(expected), "{query}");
        }
    }
}
