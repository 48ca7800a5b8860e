//! `/v1/apps/{app}/workflow`: workflow definitions.

use actix_web::{HttpResponse, get, put, web};
use fdn_core::api::WorkflowDetail;
use fdn_core::workflow::Declaration;
use fdn_core::{AppName, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, DeployNew, Look};
use super::conditional::tagged;
use super::error::ApiError;
use crate::Error;
use crate::app::precondition::Precondition;
use crate::app::workflow;
use crate::state::State;

type App = web::Path<AppName>;

/// Parameters of a workflow's deployment.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PutParams {
    /// Only judge and plan: nothing is stored.
    #[serde(default)]
    dry_run: bool,
    /// The tenant that a new app belongs to; by default your only one.
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// Judge a workflow and make it the app's current version. All its mistakes are told at once, each with its stage.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name: a DNS label"),
        PutParams,
        ("if-match" = Option<String>, Header, description = "Only if this is the app's present ETag"),
    ),
    request_body(content((Declaration = "application/yaml"), (Declaration = "application/json"))),
    responses(
        (status = 200, description = "Deployed, unchanged, or judged", body = WorkflowDetail),
        (status = 409, description = "FDN-2004: the app is a plain function", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-6002: not valid; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/workflow")]
pub(crate) async fn workflow_put(
    call: Authorized<DeployNew, (App, web::Query<PutParams>, web::Bytes), Precondition>,
    state: web::Data<State>,
) -> Result<HttpResponse, ApiError> {
    let (actor, tenant) = (call.actor(), call.tenant()?);
    let (app, params, bytes) = call.input;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Error::BadRequest("the workflow is not UTF-8 text".to_owned()))?;
    let request = workflow::Request {
        tenant,
        actor: &actor,
        app: &app,
        text,
    };
    let options = (params.dry_run, &call.expected);
    let (detail, tag) = workflow::deploy(&state, &request, options).await?;
    Ok(match tag {
        Some(tag) => tagged(tag, &detail),
        // The app does not exist, and the request was a dry run.
        None => HttpResponse::Ok().json(&detail),
    })
}

/// An app's workflow, and where its stages run.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = WorkflowDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/workflow")]
pub(crate) async fn workflow_get(
    call: Authorized<Look, App>,
    state: web::Data<State>,
) -> Result<HttpResponse, ApiError> {
    let (detail, tag) = workflow::get(&state, call.tenant()?, &call.input).await?;
    Ok(tagged(tag, &detail))
}
