//! Bodies of requests and responses, as they pass between gateway and instance.

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

/// Whatever went wrong inside a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body with the types erased.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A request to an instance. Its URI may be in origin form (`/path?query`); hop-by-hop fields are the gateway's business.
pub type Request = http::Request<Body>;

/// What an instance answered.
pub type Response = http::Response<Body>;

/// A body without bytes.
#[must_use]
pub fn empty_body() -> Body {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body of these bytes.
#[must_use]
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Gives a request without a `Host` field one (RFC 9112, section 3.2: every request has it).
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

/// A body of an instance in this process: fails when its instance ends, and holds something for as long as it lives.
pub(crate) struct Cut<G> {
    body: Body,
    ended: BoxFuture<'static, Exit>,
    _guard: G,
}

impl<G: Send + Unpin + 'static> Cut<G> {
    pub(crate) fn boxed(body: Body, ended: BoxFuture<'static, Exit>, guard: G) -> Body {
        Self {
            body,
            ended,
            _guard: guard,
        }
        .boxed_unsync()
    }
}

impl<G: Unpin> http_body::Body for Cut<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // What is here already is whole, however the instance ends afterwards.
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
