//! Bodies of requests and responses between gateway and instance.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::HOST;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

use crate::state::Exit;

/// Any error inside a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body of an erased type.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A request to an instance. Its URI may be in origin form (`/path?query`); the gateway takes care of hop-by-hop fields.
pub type Request = http::Request<Body>;

/// The response of an instance.
pub type Response = http::Response<Body>;

/// An empty body.
#[must_use]
pub fn empty_body() -> Body {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body with these bytes.
#[must_use]
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Adds a `Host` field to a request that has none (RFC 9112, section 3.2: every request has one).
pub(crate) fn ensure_host(request: &mut Request) {
    if request.headers().contains_key(HOST) {
        return;
    }
    let host = request
        .uri()
        .authority()
        .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
        .unwrap_or(HeaderValue::from_static("function"));
    request.headers_mut().insert(HOST, host);
}

/// The body of an instance in this process: it fails when the instance ends, and keeps a guard for as long as it lives.
pub(crate) struct GuardedBody<G> {
    body: Body,
    ended: BoxFuture<'static, Exit>,
    _guard: G,
}

impl<G: Send + Unpin + 'static> GuardedBody<G> {
    pub(crate) fn boxed(body: Body, ended: BoxFuture<'static, Exit>, guard: G) -> Body {
        Self {
            body,
            ended,
            _guard: guard,
        }
        .boxed_unsync()
    }
}

impl<G: Unpin> http_body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Data that is already here is complete, however the instance ends afterwards.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.ended
            .as_mut()
            .poll(cx)
            .map(|exit| Some(Err(exit.to_string().into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
