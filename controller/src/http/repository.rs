//! The code repository: signing keys, the signature policy, labels, the catalogue.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use fdn_core::account::{TenantInfo, TenantRef};
use fdn_core::api::DeployResponse;
use fdn_core::label::Labels;
use fdn_core::repository::{
    CatalogueEntry, DeployCatalogue, PutSigningKey, SetSignaturePolicy, SigningKeyInfo,
};
use fdn_core::{AppName, FunctionName, Problem, SigningKeyName, VersionNumber};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Deploy, Look, LookNetwork, ManageSigning};
use super::conditional::tagged;
use super::error::ApiError;
use super::once;
use super::page::PageParams;
use crate::app::label::label_tag;
use crate::app::precondition::{Precondition, tag};
use crate::app::{catalogue, label, signing};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type Tenant = web::Path<TenantRef>;
type Key = web::Path<(TenantRef, SigningKeyName)>;
type App = web::Path<AppName>;
type Name = web::Path<FunctionName>;

/// The public keys whose signatures count in a tenant, by name.
#[utoipa::path(
    tag = "signatures",
    security(("session" = [])),
    params(("tenant" = String, Path, description = "The tenant's name or id"), PageParams),
    responses((status = 200, body = [SigningKeyInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tenants/{tenant}/signing-keys")]
pub(crate) async fn signing_key_list(
    call: Authorized<Look, (Tenant, web::Query<PageParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.1.validate(&state.settings.api)?;
    let rows = signing::keys(&state, call.tenant()?).await?;
    let rows = wanted.cut(rows, |key| key.name.to_string());
    Ok(wanted.answer(&request, rows, |key| key.name.to_string()))
}

/// Add a public key, or replace the one of its name. The same key again changes nothing.
#[utoipa::path(
    tag = "signatures",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("name" = String, Path, description = "The key's name: a DNS label"),
    ),
    request_body = PutSigningKey,
    responses(
        (status = 200, body = SigningKeyInfo),
        (status = 422, description = "FDN-1032: the key cannot be used", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/tenants/{tenant}/signing-keys/{name}")]
pub(crate) async fn signing_key_put(
    call: Authorized<ManageSigning, (Key, web::Json<PutSigningKey>)>,
    state: Shared,
) -> Answer<SigningKeyInfo> {
    let (path, request) = &call.input;
    let which = (call.tenant()?, &path.1);
    Ok(web::Json(
        signing::put_key(&state, &call.actor(), which, request).await?,
    ))
}

/// Remove a public key: new uploads that it signed are refused, versions that were accepted stay.
#[utoipa::path(
    tag = "signatures",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("name" = String, Path, description = "The key's name"),
    ),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/tenants/{tenant}/signing-keys/{name}")]
pub(crate) async fn signing_key_remove(
    call: Authorized<ManageSigning, Key>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    signing::remove_key(&state, &call.actor(), (call.tenant()?, &call.input.1)).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Say whether uploads of a tenant must be signed.
#[utoipa::path(
    tag = "signatures",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("if-match" = Option<String>, Header, description = "Only if this is its present ETag"),
    ),
    request_body = SetSignaturePolicy,
    responses(
        (status = 200, body = TenantInfo),
        (status = 409, description = "FDN-2004: there is no key to sign with", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "FDN-2013: it has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/tenants/{tenant}/signature-policy")]
pub(crate) async fn signature_policy_set(
    call: Authorized<ManageSigning, (Tenant, web::Json<SetSignaturePolicy>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (tenant, policy) = (call.tenant()?, call.input.1.policy);
    let info = signing::set_policy(&state, &call.actor(), tenant, policy, &call.expected).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Parameters of labels.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LabelParams {
    /// Those of this version; those of the function itself if absent.
    #[param(value_type = Option<u32>)]
    version: Option<VersionNumber>,
}

/// Labels of a function itself, or of one of its versions.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), LabelParams),
    responses((status = 200, body = Labels), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/labels")]
pub(crate) async fn label_get(
    call: Authorized<Look, (App, web::Query<LabelParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, params) = &call.input;
    let labels = label::get(&state, (call.tenant()?, app), params.version).await?;
    Ok(tagged(label_tag(&labels), &labels))
}

/// Replace all labels of a function itself, or of one of its versions.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        LabelParams,
        ("if-match" = Option<String>, Header, description = "Only if this is the labels' present ETag"),
    ),
    request_body = Labels,
    responses(
        (status = 200, body = Labels),
        (status = 412, description = "FDN-2013: they have changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/labels")]
pub(crate) async fn label_set(
    call: Authorized<Deploy, (App, web::Query<LabelParams>, web::Json<Labels>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, params, labels) = &call.input;
    let which = (call.tenant()?, &**app);
    let request = (&**labels, &call.expected);
    label::set(&state, &call.actor(), which, params.version, request).await?;
    Ok(tagged(label_tag(labels), &**labels))
}

/// The ready functions that can be deployed by name.
#[utoipa::path(
    tag = "catalogue",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [CatalogueEntry]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/catalogue")]
pub(crate) async fn catalogue_list(
    call: Authorized<LookNetwork, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let rows = wanted.cut(catalogue::list(&state).await?, |entry| {
        entry.name.to_string()
    });
    Ok(wanted.answer(&request, rows, |entry| entry.name.to_string()))
}

/// Deploy a ready function: it goes through every check that an upload goes through.
#[utoipa::path(
    tag = "catalogue",
    security(("session" = [])),
    params(
        ("name" = String, Path, description = "The function's name in the catalogue"),
        ("tenant" = Option<String>, Query, description = "The tenant of a new app (name or id), if the caller is a member of several"),
        ("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer"),
    ),
    request_body = DeployCatalogue,
    responses(
        (status = 200, description = "Deployed, or unchanged", body = DeployResponse),
        (status = 503, description = "FDN-2038: the function is not what its checksum says", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/catalogue/{name}/deploy")]
pub(crate) async fn catalogue_deploy(
    call: Authorized<Deploy, (Name, web::Json<DeployCatalogue>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (actor, tenant, key) = (call.actor(), call.tenant()?, call.key.clone());
    let (name, deploy) = call.input;
    let (name, deploy) = (name.into_inner(), deploy.into_inner());
    let request = once::Request {
        operation: "catalogue_deploy",
        key,
        body: once::text(&(tenant, &name, &deploy))?,
    };
    once::run_to_completion(
        state.into_inner(),
        actor,
        request,
        async move |state, actor| {
            catalogue::deploy_entry(state, actor, tenant, &name, deploy).await
        },
    )
    .await
}
