//! `/v1/apps/{app}/runs`: runs of a workflow.

use actix_web::{HttpRequest, HttpResponse, get, web};
use fdn_core::runs::RunInfo;
use fdn_core::{AppName, Problem, RunId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Look};
use super::error::ApiError;
use super::page::PageParams;
use crate::app::runs;
use crate::state::State;

type Shared = web::Data<State>;
type App = web::Path<AppName>;
type Run = web::Path<(AppName, RunId)>;

/// Parameters of lists of runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunParams {
    /// Only the run that answers the call of this request id.
    request: Option<String>,
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
}

/// Runs of a workflow, the newest first: those that still run and the last ones that have ended. A gateway tells of a run within a second or two.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), RunParams),
    responses((status = 200, body = [RunInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/runs")]
pub(crate) async fn run_list(
    call: Authorized<Look, (App, web::Query<RunParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let tenant = call.tenant()?;
    let (app, params) = &call.input;
    let page = PageParams {
        limit: params.limit,
        cursor: params.cursor.clone(),
    };
    let wanted = page.validate(&state.settings.api)?;
    let of = params.request.as_deref();
    let rows = runs::list(&state, (tenant, app), of, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |run| run.run.to_string()))
}

/// One run of a workflow: every attempt at every stage, where it ran, when it began and ended, and how.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("run" = String, Path, description = "The run's id"),
    ),
    responses((status = 200, body = RunInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/runs/{run}")]
pub(crate) async fn run_get(
    call: Authorized<Look, Run>,
    state: Shared,
) -> Result<web::Json<RunInfo>, ApiError> {
    let tenant = call.tenant()?;
    let (app, run) = &*call.input;
    Ok(web::Json(runs::get(&state, (tenant, app), *run).await?))
}
