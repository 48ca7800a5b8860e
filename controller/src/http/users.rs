//! `/v1/users`: accounts, managed by admins.

use actix_web::{HttpRequest, HttpResponse, get, patch, post, put, web};
use fdn_core::account::{CreateUser, SetPassword, UpdateUser, UserInfo};
use fdn_core::{Problem, UserName};

use super::auth::{Administer, Authorized};
use super::conditional::tagged;
use super::error::ApiError;
use super::once;
use super::page::PageParams;
use crate::app::precondition::{Precondition, tag};
use crate::app::user;
use crate::state::State;

type Shared = web::Data<State>;
type User = web::Path<UserName>;

/// Make a user.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
    request_body = CreateUser,
    responses(
        (status = 200, body = UserInfo),
        (status = 409, description = "FDN-2004: the name is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2017: the password is not accepted", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/users")]
pub(crate) async fn user_create(
    call: Authorized<Administer, web::Json<CreateUser>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(&state, &call, "user_create", async |actor, request| {
        user::create(&state, actor, request).await
    })
    .await
}

/// All users, by name.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [UserInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/users")]
pub(crate) async fn user_list(
    call: Authorized<Administer, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let rows = user::list(&state, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |user| user.name.to_string()))
}

/// One user.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(("user" = String, Path, description = "The user's name")),
    responses((status = 200, body = UserInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/users/{user}")]
pub(crate) async fn user_get(
    call: Authorized<Administer, User>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = user::get(&state, &call.input).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Disable or enable a user, or change the network role. Sessions and API tokens of a disabled user end at once.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(
        ("user" = String, Path, description = "The user's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the user's present ETag"),
    ),
    request_body = UpdateUser,
    responses(
        (status = 200, body = UserInfo),
        (status = 409, description = "FDN-2018: no admin would be left", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "FDN-2013: the user has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[patch("/v1/users/{user}")]
pub(crate) async fn user_update(
    call: Authorized<Administer, (User, web::Json<UpdateUser>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (name, request) = &call.input;
    let info = user::update(&state, &call.actor(), name, request, &call.expected).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Set a user's password. The user's sessions end.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(("user" = String, Path, description = "The user's name")),
    request_body = SetPassword,
    responses(
        (status = 204, description = "Set"),
        (status = 422, description = "FDN-2017: the password is not accepted", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/users/{user}/password")]
pub(crate) async fn user_password(
    call: Authorized<Administer, (User, web::Json<SetPassword>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (name, request) = &call.input;
    user::set_password(&state, &call.actor(), name, request.0.clone()).await?;
    Ok(HttpResponse::NoContent().finish())
}
