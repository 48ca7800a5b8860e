//! Bodies of requests and responses, as they pass between gateway and instance.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// Whatever went wrong inside a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body with the types erased.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A request to an instance. Its URI may be in origin form (`/path?query`); hop-by-hop fields are the gateway's business.
pub type Request = http::Request<Body>;

/// What an instance answered.
pub type Response = http::Response<Body>;

/// A body without octets.
#[must_use]
pub fn empty_body() -> Body {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body of these octets.
#[must_use]
pub fn full_body(octets: impl Into<Bytes>) -> Body {
    Full::new(octets.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}
