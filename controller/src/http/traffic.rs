//! `/v1/apps/{app}/traffic`: the split of an app's calls between versions.

use actix_web::{HttpResponse, get, put, web};
use fdn_core::policy::Traffic;
use fdn_core::policy::api::TrafficInfo;
use fdn_core::{AppName, Problem};
use fdn_service::now;

use super::auth::{Authorized, Deploy, Look};
use super::conditional::tagged;
use super::error::ApiError;
use crate::app::precondition::{Precondition, tag};
use crate::app::traffic;
use crate::state::State;

type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// Which versions an app's calls go to.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = TrafficInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/traffic")]
pub(crate) async fn traffic_get(
    call: Authorized<Look, App>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = traffic::get(&state, call.tenant()?, &call.input).await?;
    Ok(tagged(tag(info.revision.get()), &info))
}

/// Split an app's calls between versions; an empty split sends all to the current one.
#[utoipa::path(
    tag = "policy",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the split's present ETag"),
    ),
    request_body = Traffic,
    responses(
        (status = 200, body = TrafficInfo),
        (status = 422, description = "FDN-3049: a weight cannot work", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/traffic")]
pub(crate) async fn traffic_set(
    call: Authorized<Deploy, (App, web::Json<Traffic>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, wanted) = &call.input;
    let (actor, request) = (call.actor(), (&**wanted, &call.expected));
    let set = traffic::set(&state, call.tenant()?, &actor, app, request, now()).await?;
    Ok(tagged(tag(set.revision.get()), &set))
}
