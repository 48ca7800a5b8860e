//! `/v1/apps/{app}/objective`: the objective that new versions of an app must meet.

use actix_web::{HttpResponse, delete, get, put, web};
use fdn_core::rollout::{Objective, ObjectiveInfo};
use fdn_core::{AppName, Problem};

use super::auth::{Authorized, Deploy, Look};
use super::conditional::tagged;
use super::error::ApiError;
use crate::app::precondition::{Precondition, tag_of};
use crate::app::rollout;
use crate::state::State;

type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// The objective of an app, and how its newest version keeps to it.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = ObjectiveInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/objective")]
pub(crate) async fn objective_get(
    call: Authorized<Look, App>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = rollout::get(&state, call.tenant()?, &call.input).await?;
    Ok(tagged(tag_of(&info.objective)?, &info))
}

/// Set what new versions of an app must keep to: one that does not is taken back.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the objective's present ETag"),
    ),
    request_body = Objective,
    responses(
        (status = 200, body = ObjectiveInfo),
        (status = 422, description = "FDN-2022: a field cannot work; the detail names it", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/objective")]
pub(crate) async fn objective_set(
    call: Authorized<Deploy, (App, web::Json<Objective>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, wanted) = &call.input;
    let request = (Some(&**wanted), &call.expected);
    let set = rollout::set(&state, call.tenant()?, &call.actor(), app, request).await?;
    Ok(tagged(tag_of(&set.objective)?, &set))
}

/// Take the objective of an app away: versions are no longer watched.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the objective's present ETag"),
    ),
    responses((status = 204, description = "Taken away"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/objective")]
pub(crate) async fn objective_clear(
    call: Authorized<Deploy, App, Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let request = (None, &call.expected);
    rollout::set(&state, call.tenant()?, &call.actor(), &call.input, request).await?;
    Ok(HttpResponse::NoContent().finish())
}
