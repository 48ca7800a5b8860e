//! `/v1/apps/{app}/policy` and `/v1/apps/{app}/keys`: who may call an app.

use actix_web::{HttpResponse, delete, get, post, put, web};
use fdn_core::policy::Policy;
use fdn_core::policy::api::{CreateKey, CreatedKey, KeyInfo, PolicyInfo};
use fdn_core::{AppName, KeyId, Problem};
use fdn_service::now;

use super::auth::{Authorized, Deploy, Look};
use super::conditional::tagged;
use super::error::ApiError;
use super::once;
use crate::app::policy;
use crate::app::precondition::{Precondition, tag};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// The policy of an app; an empty one if it has none.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = PolicyInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/policy")]
pub(crate) async fn policy_get(
    call: Authorized<Look, App>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = policy::get(&state, call.tenant()?, &call.input).await?;
    Ok(tagged(tag(info.revision.get()), &info))
}

/// Set the policy of an app, whole.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the policy's present ETag"),
    ),
    request_body = Policy,
    responses(
        (status = 200, body = PolicyInfo),
        (status = 422, description = "FDN-3049: a field cannot work; the detail names it", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/policy")]
pub(crate) async fn policy_set(
    call: Authorized<Deploy, (App, web::Json<Policy>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, wanted) = &call.input;
    let (actor, request) = (call.actor(), (&**wanted, &call.expected));
    let set = policy::set(&state, call.tenant()?, &actor, app, request, now()).await?;
    Ok(tagged(tag(set.revision.get()), &set))
}

/// Take the policy of an app away: everybody may call it. Its keys stay.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the policy's present ETag"),
    ),
    responses((status = 204, description = "Taken away"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/policy")]
pub(crate) async fn policy_clear(
    call: Authorized<Deploy, App, Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let none = Policy::default();
    let (actor, request) = (call.actor(), (&none, &call.expected));
    policy::set(&state, call.tenant()?, &actor, &call.input, request, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Make a key for a caller of an app. It is shown in this answer and never again.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer"),
    ),
    request_body = CreateKey,
    responses(
        (status = 200, body = CreatedKey),
        (status = 409, description = "FDN-2004: the name is taken, or the app has as many keys as it may", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/keys")]
pub(crate) async fn key_create(
    call: Authorized<Deploy, (App, web::Json<CreateKey>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (tenant, (app, request)) = (call.tenant()?, &call.input);
    let body = (&**app, &**request);
    once::once_for(&state, &call, "key_create", &body, async |actor| {
        policy::create_key(&state, tenant, actor, app, request, now()).await
    })
    .await
}

/// The keys of an app, newest first; those taken back are among them.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = [KeyInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/keys")]
pub(crate) async fn key_list(call: Authorized<Look, App>, state: Shared) -> Answer<Vec<KeyInfo>> {
    Ok(web::Json(
        policy::keys(&state, call.tenant()?, &call.input).await?,
    ))
}

/// Take a key back. Twice is as once.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("key" = String, Path, description = "The key's id")),
    responses((status = 204, description = "Taken back"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/keys/{key}")]
pub(crate) async fn key_revoke(
    call: Authorized<Deploy, web::Path<(AppName, KeyId)>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, key) = &*call.input;
    policy::revoke_key(&state, call.tenant()?, &call.actor(), app, *key, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
