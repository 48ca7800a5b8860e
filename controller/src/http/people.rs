//! `/v1/network` and `/v1/apps`: the network, and the apps with their versions, plans and logs.

use std::convert::Infallible;

use actix_multipart::Multipart;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use fdn_core::api::{
    AppDetail, AppSummary, DeployResponse, Explanation, LogLine, NetworkInfo, RollbackRequest,
};
use fdn_core::label::LabelSelector;
use fdn_core::{AppName, Problem, Right, VersionNumber};
use futures::StreamExt;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Authorized, Deploy, DeployNew, Look, LookNetwork, address, require};
use super::conditional::tagged;
use super::error::ApiError;
use super::page::PageParams;
use super::{multipart, once};
use crate::app::logs::LogQuery;
use crate::app::precondition::Precondition;
use crate::app::{change, delete_version, deploy, describe, explain, logs};
use crate::state::State;
use crate::store::app::AppFilter;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// What a client must know of the network.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    responses((status = 200, body = NetworkInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/network")]
pub(crate) async fn network_get(_: Authorized<LookNetwork>, state: Shared) -> Answer<NetworkInfo> {
    Ok(web::Json(describe::network(&state)))
}

/// Parameters of the list of apps.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppListParams {
    /// Those of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// Those with these labels: `KEY` or `KEY=VALUE`, several with commas between them. A label of the current version counts before one of
    /// the function.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "team=shop")]
    label: LabelSelector,
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
}

/// The apps of the caller's tenants, by name; an admin's are all.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(AppListParams),
    responses((status = 200, body = [AppSummary]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps")]
pub(crate) async fn app_list(
    call: Authorized<Look, web::Query<AppListParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let page = PageParams {
        limit: call.input.limit,
        cursor: call.input.cursor.clone(),
    };
    let wanted = page.validate(&state.settings.api)?;
    let filter = AppFilter {
        tenant: call.named_tenant(),
        member: call.person()?.list_filter(Right::Look),
        labels: call.input.label.clone(),
    };
    let rows = describe::apps(&state, &filter, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |app| app.app.to_string()))
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
    /// A JSON object: labels of the version.
    labels: Option<String>,
    /// A signature over the component in base64, as `cosign sign-blob --key` makes it.
    signature: Option<String>,
    /// For an image in a registry: the simple signing payload that was signed.
    signature_payload: Option<String>,
    /// The WebAssembly component.
    #[schema(format = Binary, content_media_type = "application/wasm")]
    component: String,
    /// The artifact of the form NAME, which a table `[[forms]]` of the manifest names; the manifest comes before it. Its signature is in
    /// `signature.NAME`, and `signature_payload.NAME`.
    #[schema(rename = "form.NAME", format = Binary, content_media_type = "application/octet-stream")]
    form: Option<String>,
}

/// Upload a component; it becomes the current version of the app once every check has passed.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name: a DNS label"),
        ("tenant" = Option<String>, Query, description = "The tenant of a new app (name or id), if the caller is a member of several"),
        ("idempotency-key" = Option<String>, Header, description = "The same upload again with the same key gets the first one's answer"),
    ),
    request_body(content = UploadParts, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "Deployed, or unchanged", body = DeployResponse),
        (status = 413, description = "FDN-1007: too large", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "FDN-2004: the app is a workflow, or would have more secrets than it may; FDN-2035: the tenant stores as much as it may", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-1001 to FDN-1031: refused; FDN-2021: the value of a secret cannot be used; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/versions")]
pub(crate) async fn app_deploy(
    call: Authorized<DeployNew, (App, Multipart)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (actor, tenant, key) = (call.actor(), call.tenant()?, call.key.clone());
    let (app, parts) = call.input;
    let app = app.into_inner();
    let upload = multipart::receive(&state, tenant, parts).await?;
    if !upload.secrets.is_empty() {
        require(&call.caller, Right::ManageSecrets, tenant)?;
    }
    let secrets: Vec<_> = upload.secrets.iter().collect();
    let forms = upload.forms.iter();
    let forms = forms.map(|(name, form)| (name, form.component.digest()));
    let forms: Vec<_> = forms.collect();
    let component = upload.component.digest();
    let request = once::Request {
        operation: "app_deploy",
        key,
        body: match forms.is_empty() {
            true => once::text(&(tenant, &app, &upload.manifest, secrets, component))?,
            false => once::text(&(tenant, &app, &upload.manifest, secrets, component, forms))?,
        },
    };
    once::run_to_completion(state.into_inner(), actor, request, move |state, actor| {
        deploy::deploy(state, actor, tenant, app, upload)
    })
    .await
}

/// Everything about an app.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = AppDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}")]
pub(crate) async fn app_get(
    call: Authorized<Look, App>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let detail = describe::app(&state, call.tenant()?, &call.input).await?;
    Ok(shown(&detail))
}

/// A response with an app and its tag.
fn shown(detail: &AppDetail) -> HttpResponse {
    let AppSummary {
        version,
        deployed_at,
        ..
    } = detail.summary;
    tagged(change::app_tag(version, deployed_at), detail)
}

/// Make an earlier version current.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the app's present ETag"),
    ),
    request_body = RollbackRequest,
    responses((status = 200, body = AppDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/apps/{app}/rollback")]
pub(crate) async fn app_rollback(
    call: Authorized<Deploy, (App, web::Json<RollbackRequest>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, body) = &call.input;
    let which = (call.tenant()?, &**app);
    change::rollback(&state, &call.actor(), which, body.version, &call.expected).await?;
    Ok(shown(&describe::app(&state, call.tenant()?, app).await?))
}

/// Delete an app with its versions.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the app's present ETag"),
    ),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}")]
pub(crate) async fn app_delete(
    call: Authorized<Deploy, App, Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (actor, tenant) = (call.actor(), call.tenant()?);
    let which = (tenant, call.input.into_inner());
    change::delete(state.into_inner(), actor, which, call.expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Delete one version of an app that is not current and that nothing else refers to.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        ("version" = u32, Path, description = "The version's number", minimum = 1),
    ),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/versions/{version}")]
pub(crate) async fn version_delete(
    call: Authorized<Deploy, web::Path<(AppName, VersionNumber)>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, version) = &*call.input;
    let which = (call.tenant()?, app);
    delete_version::delete_version(&state, &call.actor(), which, *version).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Parameters of explanations.
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
    call: Authorized<Look, (App, web::Query<ExplainParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Answer<Explanation> {
    let (app, params) = &call.input;
    let client = explain::client(params.client.as_deref(), address(&request, &state))?;
    let tenant = call.tenant()?;
    Ok(web::Json(
        explain::explain(&state, tenant, app, client).await?,
    ))
}

/// Parameters of logs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParams {
    /// Whether to go on when the last line was sent.
    #[serde(default)]
    follow: bool,
    /// How many of the last lines.
    #[serde(default = "default_tail")]
    #[param(value_type = Option<u64>, maximum = 4294967295u64)]
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
    call: Authorized<Look, (App, web::Query<LogParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let tenant = call.tenant()?;
    let (app, params) = call.input;
    let query = LogQuery {
        follow: params.follow,
        tail: params.tail,
    };
    let (state, app) = (state.into_inner(), app.into_inner());
    let lines = logs::logs(state, call.caller, tenant, app, query).await?;
    // A compressing or buffering proxy would delay lines.
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        .insert_header(("cache-control", "no-store"))
        .insert_header(("content-encoding", "identity"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(lines.map(Ok::<_, Infallible>)))
}
