//! `/v1/apps/{app}/env`: environment variables of an app, changed without an upload.

use actix_web::{HttpResponse, patch, web};
use fdn_core::api::DeployResponse;
use fdn_core::app::ChangeEnv;
use fdn_core::{AppName, Problem};

use super::auth::{Authorized, Deploy};
use super::conditional::tagged;
use super::error::ApiError;
use crate::app::env;
use crate::app::precondition::Precondition;
use crate::state::State;

type App = web::Path<AppName>;

/// Set variables and take some away: a new version with the same component becomes current.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the app's present ETag"),
    ),
    request_body = ChangeEnv,
    responses(
        (status = 200, body = DeployResponse),
        (status = 422, description = "FDN-1010: the manifest would not be valid", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[patch("/v1/apps/{app}/env")]
pub(crate) async fn env_change(
    call: Authorized<Deploy, (App, web::Json<ChangeEnv>), Precondition>,
    state: web::Data<State>,
) -> Result<HttpResponse, ApiError> {
    let (app, wanted) = &call.input;
    let which = (call.tenant()?, &**app);
    let (done, tag) = env::change(&state, &call.actor(), which, wanted, &call.expected).await?;
    Ok(tagged(tag, &done))
}
