//! Credentials of a request. A handler takes everything through one [`Authorized`]: first the caller is checked, then what the handler needs
//! is read from the request. (Separate arguments are read at the same time, and a stranger would learn what is wrong with the body.)

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

/// [`Right::Operate`].
pub(crate) struct Operate;

impl Needs for Operate {
    const RIGHT: Right = Right::Operate;
}

/// [`Right::Resolve`].
pub(crate) struct Resolve;

impl Needs for Resolve {
    const RIGHT: Right = Right::Resolve;
}

/// [`Right::Serve`].
pub(crate) struct Serve;

impl Needs for Serve {
    const RIGHT: Right = Right::Serve;
}

/// A caller who has the right `R`, and the input `T` of the operation.
pub(crate) struct Authorized<R: Needs, T = ()> {
    /// Who it is.
    pub(crate) caller: Caller,
    /// What was sent.
    pub(crate) input: T,
    right: PhantomData<R>,
}

impl<R: Needs, T> Authorized<R, T> {
    /// The name for the audit log.
    #[must_use]
    pub(crate) fn actor(&self) -> String {
        self.caller.to_string()
    }
}

impl<R: Needs, T: FromRequest + 'static> FromRequest for Authorized<R, T> {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let caller = check::<R>(&request).await?;
            let input = T::from_request(&request, &mut payload)
                .await
                .map_err(Into::into)?;
            Ok(Self {
                caller,
                input,
                right: PhantomData,
            })
        })
    }
}

async fn check<R: Needs>(request: &HttpRequest) -> Result<Caller, ApiError> {
    let state = request
        .app_data::<web::Data<State>>()
        .map(|data| Arc::clone(data));
    let state = state.ok_or_else(|| Error::Internal("the state is not attached".to_owned()))?;
    Ok(authorize(&state, bearer(request), R::RIGHT).await?)
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1; the scheme's case does not matter).
fn bearer(request: &HttpRequest) -> Option<&str> {
    let value = request
        .headers()
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?;
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
            let request = TestRequest::default()
                .insert_header((header::AUTHORIZATION, value))
                .to_http_request();
            bearer(&request).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearer "), None);
        assert_eq!(token("abc"), None);
    }
}
