//! `/v1/plan`: plans without deploying.

use actix_web::{post, web};
use fdn_core::preview::{PlanPreview, PlanRequest};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Look};
use super::error::ApiError;
use crate::app::preview;
use crate::state::State;

/// Parameters of a plan's preview.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlanParams {
    /// The tenant whose functions are meant (name or id); by default your only one.
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// Say where clients of an app would be sent, how long their calls would take and what they would cost, before anything is deployed. Nothing is
/// stored. All other apps are taken to stay where they are.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(PlanParams),
    request_body = PlanRequest,
    responses((status = 200, body = PlanPreview))
)]
#[post("/v1/plan")]
pub(crate) async fn plan_preview(
    call: Authorized<Look, (web::Query<PlanParams>, web::Json<PlanRequest>)>,
    state: web::Data<State>,
) -> Result<web::Json<PlanPreview>, ApiError> {
    let (_, request) = &call.input;
    Ok(web::Json(
        preview::plan(&state, call.tenant()?, request, now()).await?,
    ))
}
