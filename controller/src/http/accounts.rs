//! `/v1/login`, `/v1/session`, `/v1/sessions`, `/v1/password`, `/v1/tokens`: users' operations on their own accounts.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use fdn_core::account::{
    ApiTokenInfo, ChangePassword, CreateApiToken, CreatedApiToken, SessionInfo, SessionKind, WhoAmI,
};
use fdn_core::api::{LoginInfo, LoginRequest, LoginResponse};
use fdn_core::{ApiTokenId, Coded, ErrorCode, Problem, Right, SessionId};

use super::auth::{self, Authorized, LookNetwork, OwnAccount, anonymous_actor};
use super::error::ApiError;
use super::page::PageParams;
use super::{cookie, once};
use crate::Error;
use crate::app::access::{Credential, Person, PresentedCredential, Verdict, authenticate};
use crate::app::{api_token, login as accounts, user};
use crate::state::State;
use crate::store::tenant::tenant_get;

type Shared = web::Data<State>;

/// Exchange name and password for a token.
#[utoipa::path(
    tag = "accounts",
    security(()),
    request_body = LoginRequest,
    responses(
        (status = 200, body = LoginResponse),
        (status = 401, description = "FDN-2001: user or password is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "FDN-2006: too many failures", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/login")]
pub(crate) async fn login(
    state: Shared,
    request: HttpRequest,
    body: web::Json<LoginRequest>,
) -> Result<web::Json<LoginResponse>, ApiError> {
    let actor = anonymous_actor(&request, &state);
    let begun = accounts::login(&state, body.into_inner(), SessionKind::Bearer, &actor).await?;
    Ok(web::Json(LoginResponse {
        token: begun.secret.expose().to_owned(),
        expires_at: begun.session.expires_at,
    }))
}

/// How one can log in here, and who has already. Answered to everybody: a page that does not know yet who opened it asks this first, and
/// not to be logged in is no error.
#[utoipa::path(
    tag = "accounts",
    security(()),
    responses((status = 200, body = LoginInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/login")]
pub(crate) async fn login_info(
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let session = match auth::caller(&state, &request).await {
        Ok(caller) => caller.person().map(who),
        Err(error) if error.code() == ErrorCode::Unauthenticated => None,
        Err(error) => return Err(error.into()),
    };
    let info = LoginInfo {
        oidc: state.settings.oidc.is_some(),
        session,
    };
    Ok(HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(info))
}

/// Log in from a browser: the session is a cookie that no script can read. Changes must bring `csrf` along in the header `x-fdn-csrf`.
#[utoipa::path(
    tag = "accounts",
    security(()),
    request_body = LoginRequest,
    responses(
        (status = 200, description = "Logged in, with `set-cookie`", body = WhoAmI),
        (status = 401, description = "FDN-2001: user or password is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "FDN-2006: too many failures", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/session")]
pub(crate) async fn session_create(
    state: Shared,
    request: HttpRequest,
    body: web::Json<LoginRequest>,
) -> Result<HttpResponse, ApiError> {
    let actor = anonymous_actor(&request, &state);
    let begun = accounts::login(&state, body.into_inner(), SessionKind::Cookie, &actor).await?;
    let secret = begun.secret.expose();
    let caller = authenticate(&state, PresentedCredential::Cookie(secret), actor.address).await?;
    let person = caller.person();
    let person = person.ok_or(Error::Unauthenticated("the session ended at once"))?;
    let lifetime = state.settings.accounts.console_lifetime;
    Ok(HttpResponse::Ok()
        .insert_header((header::SET_COOKIE, cookie::set(&request, secret, lifetime)))
        .insert_header(("cache-control", "no-store"))
        .json(who(person)))
}

fn who(person: &Person) -> WhoAmI {
    let csrf = match &person.credential {
        Credential::Session { csrf, .. } => csrf.as_ref().map(|csrf| csrf.expose().to_owned()),
        Credential::Token { .. } => None,
    };
    WhoAmI {
        user: person.name.clone(),
        network_role: person.network_role,
        tenants: person.tenants.clone(),
        token: person.credential.token(),
        csrf,
        expires_at: person.expires_at,
    }
}

/// Who asks, and what that one may do where.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    responses((status = 200, body = WhoAmI), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/session")]
pub(crate) async fn session_get(call: Authorized<LookNetwork>) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(who(call.person()?)))
}

/// Log out: the session ends, and a browser forgets its cookie.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    responses((status = 204, description = "Logged out"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/session")]
pub(crate) async fn session_delete(
    call: Authorized<OwnAccount>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let person = call.person()?;
    if let Some(id) = person.credential.session() {
        user::end_session(&state, &call.actor(), person, id).await?;
    }
    Ok(HttpResponse::NoContent()
        .insert_header((header::SET_COOKIE, cookie::remove(&request)))
        .finish())
}

/// One's own sessions, the last used first.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    responses((status = 200, body = [SessionInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/sessions")]
pub(crate) async fn session_list(
    call: Authorized<OwnAccount>,
    state: Shared,
) -> Result<web::Json<Vec<SessionInfo>>, ApiError> {
    Ok(web::Json(user::sessions(&state, call.person()?).await?))
}

/// End one of one's own sessions.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    params(("session" = String, Path, description = "The session's id")),
    responses((status = 204, description = "Ended"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/sessions/{session}")]
pub(crate) async fn session_end(
    call: Authorized<OwnAccount, web::Path<SessionId>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    user::end_session(&state, &call.actor(), call.person()?, *call.input).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Change one's own password. One's other sessions end.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    request_body = ChangePassword,
    responses(
        (status = 204, description = "Changed"),
        (status = 401, description = "FDN-2001: the present password is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2017: the new password is not accepted", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/password")]
pub(crate) async fn password_change(
    call: Authorized<OwnAccount, web::Json<ChangePassword>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let request = call.input.0.clone();
    user::change_password(&state, &call.actor(), call.person()?, request).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Make an API token. It is shown once.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
    request_body = CreateApiToken,
    responses((status = 200, body = CreatedApiToken), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/tokens")]
pub(crate) async fn token_create(
    call: Authorized<OwnAccount, web::Json<CreateApiToken>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(&state, &call, "token_create", async |actor, request| {
        let tenant = match &request.tenant {
            None => None,
            Some(named) => {
                let found = tenant_get(&mut *state.store.read().await?, named).await?;
                let tenant = found.ok_or_else(|| Error::no_tenant(named))?.id;
                match call.caller.allowed(Right::Look, Some(tenant)) {
                    Verdict::Allowed => Some(tenant),
                    _ => return Err(Error::no_tenant(named)),
                }
            }
        };
        api_token::create(&state, actor, call.person()?, request, tenant).await
    })
    .await
}

/// One's own API tokens, newest first, without their secrets.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [ApiTokenInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tokens")]
pub(crate) async fn token_list(
    call: Authorized<OwnAccount, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let rows = api_token::list(&state, call.person()?, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |token| token.id.to_string()))
}

/// Take one of one's own API tokens back.
#[utoipa::path(
    tag = "accounts",
    security(("session" = [])),
    params(("api_token" = String, Path, description = "The token's id")),
    responses((status = 204, description = "Taken back"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/tokens/{api_token}")]
pub(crate) async fn token_revoke(
    call: Authorized<OwnAccount, web::Path<ApiTokenId>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    api_token::revoke(&state, &call.actor(), call.person()?, *call.input).await?;
    Ok(HttpResponse::NoContent().finish())
}
