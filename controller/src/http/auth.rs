//! Credentials of a request. A handler that takes [`Authorized`] runs only for callers with its right, before anything of the body is read.

use std::marker::PhantomData;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::{FromRequest, HttpRequest, web};
use futures::future::LocalBoxFuture;

use super::error::ApiError;
use crate::Error;
use crate::app::access::{Caller, Right, authorize};
use crate::state::State;

/// A right as a type.
pub(crate) trait Needs: 'static {
    /// The right.
    const RIGHT: Right;
}

/// [`Right::Read`].
pub(crate) struct Read;

impl Needs for Read {
    const RIGHT: Right = Right::Read;
}

/// [`Right::Manage`].
pub(crate) struct Manage;

impl Needs for Manage {
    const RIGHT: Right = Right::Manage;
}

/// [`Right::Serve`].
pub(crate) struct Serve;

impl Needs for Serve {
    const RIGHT: Right = Right::Serve;
}

/// A caller who has the right `R`.
pub(crate) struct Authorized<R: Needs> {
    /// Who it is.
    pub(crate) caller: Caller,
    right: PhantomData<R>,
}

impl<R: Needs> Authorized<R> {
    /// The name for the audit log.
    #[must_use]
    pub(crate) fn actor(&self) -> String {
        self.caller.to_string()
    }
}

impl<R: Needs> FromRequest for Authorized<R> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<web::Data<State>>().map(|data| Arc::clone(data));
        let token = bearer(request).map(str::to_owned);
        Box::pin(async move {
            let state = state.ok_or_else(|| Error::Internal("the state is not attached".to_owned()))?;
            let caller = authorize(&state, token.as_deref(), R::RIGHT).await?;
            Ok(Self { caller, right: PhantomData })
        })
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1; the scheme's case does not matter).
fn bearer(request: &HttpRequest) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        let token = |value: &str| {
            let request = TestRequest::default().insert_header((header::AUTHORIZATION, value)).to_http_request();
            bearer(&request).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearer "), None);
        assert_eq!(token("abc"), None);
    }
}
