//! `/v1/apps/{app}/dns`: the settings of DNS answers for an app.

use actix_web::{get, put, web};
use fdn_core::app::{AppDns, PutAppDns};
use fdn_core::{AppName, Problem};
use fdn_service::now;

use super::auth::{Authorized, Deploy, Look};
use super::error::ApiError;
use crate::app::dns;
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// How DNS answers for an app.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = AppDns), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/dns")]
pub(crate) async fn dns_get(call: Authorized<Look, App>, state: Shared) -> Answer<AppDns> {
    let tenant = call.tenant()?;
    Ok(web::Json(dns::get(&state, tenant, &call.input).await?))
}

/// Set how DNS answers for an app.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    request_body = PutAppDns,
    responses(
        (status = 200, body = AppDns),
        (status = 422, description = "FDN-2070: the time is not one that answers can have", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/dns")]
pub(crate) async fn dns_set(
    call: Authorized<Deploy, (App, web::Json<PutAppDns>)>,
    state: Shared,
) -> Answer<AppDns> {
    let (app, request) = &call.input;
    let (tenant, actor) = (call.tenant()?, call.actor());
    let set = dns::set(&state, (tenant, &actor), app, **request, now()).await?;
    Ok(web::Json(set))
}
