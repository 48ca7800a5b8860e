//! `/v1/`: what people and their tools call.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use actix_multipart::Multipart;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use fdn_core::api::{
    AppDetail, AppSummary, DeployResponse, Explanation, LogLine, LoginRequest, LoginResponse,
    NetworkInfo, RollbackRequest,
};
use fdn_core::{AppName, Problem};
use futures::StreamExt;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Authorized, Manage, Read};
use super::error::ApiError;
use super::multipart;
use crate::app::logs::LogQuery;
use crate::app::{change, deploy, describe, explain, login as accounts, logs};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;

fn peer(request: &HttpRequest) -> Option<IpAddr> {
    request
        .peer_addr()
        .map(|address| address.ip().to_canonical())
}

/// Exchange name and password for a token.
#[utoipa::path(
    tag = "accounts",
    security(()),
    request_body = LoginRequest,
    responses(
        (status = 200, body = LoginResponse),
        (status = 401, description = "FDN-2001: user or password is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "FDN-2006: too many failures", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/login")]
pub(crate) async fn login(
    state: Shared,
    request: HttpRequest,
    body: web::Json<LoginRequest>,
) -> Answer<LoginResponse> {
    // A connection without an address is one that this process made to itself.
    let address = peer(&request).unwrap_or(IpAddr::from([127, 0, 0, 1]));
    Ok(web::Json(
        accounts::login(&state, body.into_inner(), address).await?,
    ))
}

/// What a client must know of the network.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    responses((status = 200, body = NetworkInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/network")]
pub(crate) async fn network_get(_: Authorized<Read>, state: Shared) -> Answer<NetworkInfo> {
    Ok(web::Json(describe::network(&state)))
}

/// All apps, by name.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    responses((status = 200, body = [AppSummary]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps")]
pub(crate) async fn app_list(_: Authorized<Read>, state: Shared) -> Answer<Vec<AppSummary>> {
    Ok(web::Json(describe::apps(&state).await?))
}

/// The parts of an upload.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "documents the parts; they are read one by one as they arrive"
)]
pub(crate) struct UploadParts {
    /// The text of `fdn.toml`; the defaults if absent.
    manifest: Option<String>,
    /// A JSON object of names and values: one value for each of the manifest's `secrets`. Those not sent keep their present values.
    secrets: Option<String>,
    /// The WebAssembly component.
    #[schema(format = Binary, content_media_type = "application/wasm")]
    component: String,
}

/// Upload a component; it becomes the current version of the app once every check has passed.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name: a DNS label")),
    request_body(content = UploadParts, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "Deployed, or unchanged", body = DeployResponse),
        (status = 413, description = "FDN-1007: too large", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-1001 to FDN-1010: refused; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/versions")]
pub(crate) async fn app_deploy(
    call: Authorized<Manage, (App, Multipart)>,
    state: Shared,
) -> Answer<DeployResponse> {
    let actor = call.actor();
    let (app, parts) = call.input;
    let upload = multipart::receive(&state, parts).await?;
    Ok(web::Json(
        deploy::deploy(state.into_inner(), actor, app.into_inner(), upload).await?,
    ))
}

/// Everything about an app.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = AppDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}")]
pub(crate) async fn app_get(call: Authorized<Read, App>, state: Shared) -> Answer<AppDetail> {
    Ok(web::Json(describe::app(&state, &call.input).await?))
}

/// Make an earlier version current.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    request_body = RollbackRequest,
    responses((status = 200, body = AppDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/apps/{app}/rollback")]
pub(crate) async fn app_rollback(
    call: Authorized<Manage, (App, web::Json<RollbackRequest>)>,
    state: Shared,
) -> Answer<AppDetail> {
    let (app, body) = &call.input;
    change::rollback(&state, &call.actor(), app, body.version).await?;
    Ok(web::Json(describe::app(&state, app).await?))
}

/// Delete an app with its versions.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}")]
pub(crate) async fn app_delete(
    call: Authorized<Manage, App>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let actor = call.actor();
    change::delete(state.into_inner(), actor, call.input.into_inner()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Whom to explain for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainParams {
    /// The client's address or prefix; the caller's own if absent.
    #[param(example = "203.0.113.7")]
    client: Option<String>,
}

/// Why a client's calls go where they go.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ExplainParams),
    responses((status = 200, body = Explanation), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/explain")]
pub(crate) async fn app_explain(
    call: Authorized<Read, (App, web::Query<ExplainParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Answer<Explanation> {
    let (app, params) = &call.input;
    let client = explain::client(params.client.as_deref(), peer(&request))?;
    Ok(web::Json(explain::explain(&state, app, client).await?))
}

/// Which lines are wanted.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParams {
    /// Whether to go on when the last line was sent.
    #[serde(default)]
    follow: bool,
    /// How many of the last lines.
    #[serde(default = "default_tail")]
    tail: u32,
}

const fn default_tail() -> u32 {
    100
}

/// What an app's functions wrote, on all nodes, oldest first; one JSON object a line.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), LogParams),
    responses(
        (status = 200, body = LogLine, content_type = "application/x-ndjson"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/apps/{app}/logs")]
pub(crate) async fn app_logs(
    call: Authorized<Read, (App, web::Query<LogParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, params) = call.input;
    let query = LogQuery {
        follow: params.follow,
        tail: params.tail,
    };
    let lines = logs::logs(Arc::clone(&state), app.into_inner(), query).await?;
    // A compressing or buffering proxy would hold lines back.
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        .insert_header(("cache-control", "no-store"))
        .insert_header(("content-encoding", "identity"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(lines.map(Ok::<_, Infallible>)))
}
