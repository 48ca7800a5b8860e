//! `/v1/oidc/login` and `/v1/oidc/callback`: the beginning and the end of a browser's login with the identity provider.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use fdn_core::Problem;
use utoipa::IntoParams;

use super::auth::anonymous_actor;
use super::cookie;
use super::error::ApiError;
use crate::app::oidc;
use crate::state::State;

type Shared = web::Data<State>;

/// Begin a login with the identity provider: the browser is sent there.
#[utoipa::path(
    tag = "accounts",
    security(()),
    responses(
        (status = 303, description = "To the identity provider, with `set-cookie`"),
        (status = 404, description = "FDN-2041: not set up", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/oidc/login")]
pub(crate) async fn oidc_begin(
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let start = oidc::begin(&state).await?;
    let cookie = cookie::set_login(&request, &start.cookie, oidc::LOGIN_TIME);
    Ok(HttpResponse::SeeOther()
        .insert_header((header::LOCATION, start.url))
        .insert_header((header::SET_COOKIE, cookie))
        .insert_header(("cache-control", "no-store"))
        .finish())
}

/// The query of the identity provider's redirect.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(
    dead_code,
    reason = "documents the query; it is read as `oidc::Callback`"
)]
pub(crate) struct CallbackParams {
    /// The code, if the login went well there.
    code: Option<String>,
    /// What was sent along when it began.
    state: Option<String>,
    /// Why it did not go well.
    error: Option<String>,
}

/// End a login with the identity provider: the browser gets a session's cookie and goes to the console.
#[utoipa::path(
    tag = "accounts",
    security(()),
    params(CallbackParams),
    responses(
        (status = 303, description = "To the console, with `set-cookie`"),
        (status = 403, description = "FDN-2039: this user may not log in here", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "FDN-2041: not set up", body = Problem, content_type = "application/problem+json"),
        (status = 502, description = "FDN-2040: the login failed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/oidc/callback")]
pub(crate) async fn oidc_end(
    state: Shared,
    request: HttpRequest,
    query: web::Query<oidc::Callback>,
) -> Result<HttpResponse, ApiError> {
    let actor = anonymous_actor(&request, &state);
    let kept = cookie::login(&request);
    let ended = oidc::end(&state, kept.as_deref(), query.into_inner(), &actor);
    let begun = Box::pin(ended).await?;
    let lifetime = state.settings.accounts.console_lifetime;
    let session = cookie::set(&request, begun.secret.expose(), lifetime);
    let mut response = HttpResponse::SeeOther();
    response
        .insert_header((header::LOCATION, "/"))
        .insert_header(("cache-control", "no-store"))
        .append_header((header::SET_COOKIE, session))
        .append_header((header::SET_COOKIE, cookie::forget_login(&request)));
    Ok(response.finish())
}
