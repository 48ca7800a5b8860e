//! `/v1/apps/{app}/domains`: custom domains of an app.

use actix_web::{HttpResponse, delete, get, post, web};
use fdn_core::domain::{AddDomain, DomainInfo};
use fdn_core::{AppName, HostName, Problem};
use fdn_service::now;

use super::auth::{Authorized, Deploy, Look};
use super::error::ApiError;
use crate::app::domain;
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;
type One = web::Path<(AppName, HostName)>;

/// The domains of an app, proven or not, with the records that their owners have to set.
#[utoipa::path(
    tag = "domains",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = [DomainInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/domains")]
pub(crate) async fn domain_list(
    call: Authorized<Look, App>,
    state: Shared,
) -> Answer<Vec<DomainInfo>> {
    Ok(web::Json(
        domain::list(&state, call.tenant()?, &call.input).await?,
    ))
}

/// Ask for a domain. The app answers to it once its owner has set the records of the answer and it was verified; asked for again, it is as
/// it was.
#[utoipa::path(
    tag = "domains",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    request_body = AddDomain,
    responses(
        (status = 200, body = DomainInfo),
        (status = 409, description = "FDN-2004: the app has as many domains as it may", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2023: the name cannot be an app's", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/domains")]
pub(crate) async fn domain_add(
    call: Authorized<Deploy, (App, web::Json<AddDomain>)>,
    state: Shared,
) -> Answer<DomainInfo> {
    let (app, request) = &call.input;
    let made = domain::add(&state, call.tenant()?, &call.actor(), app, request).await?;
    Ok(web::Json(made))
}

/// Look for the proof of a domain now.
#[utoipa::path(
    tag = "domains",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("host" = String, Path, description = "The domain")),
    responses(
        (status = 200, body = DomainInfo),
        (status = 409, description = "FDN-2024: another app has it; FDN-2025: the record is not there", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "FDN-2026: no resolver could say", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/domains/{host}/verify")]
pub(crate) async fn domain_verify(
    call: Authorized<Deploy, One>,
    state: Shared,
) -> Answer<DomainInfo> {
    let (app, host) = &*call.input;
    let done = domain::verify(&state, call.tenant()?, &call.actor(), (app, host)).await?;
    Ok(web::Json(done))
}

/// Let a domain go: the app does not answer to it any more.
#[utoipa::path(
    tag = "domains",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("host" = String, Path, description = "The domain")),
    responses((status = 204, description = "Let go"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/domains/{host}")]
pub(crate) async fn domain_remove(
    call: Authorized<Deploy, One>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, host) = &*call.input;
    domain::remove(&state, call.tenant()?, &call.actor(), (app, host), now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
