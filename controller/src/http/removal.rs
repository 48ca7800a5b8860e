//! `DELETE /v1/users/{user}` and `DELETE /v1/tenants/{tenant}`.

use actix_web::{HttpResponse, delete, web};
use fdn_core::account::TenantRef;
use fdn_core::{Problem, UserName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Administer, Authorized};
use super::error::ApiError;
use crate::Error;
use crate::app::precondition::Precondition;
use crate::app::removal;
use crate::state::State;
use crate::store::tenant::tenant_get;

type Shared = web::Data<State>;
type User = web::Path<UserName>;
type Tenant = web::Path<TenantRef>;

/// Delete a user with memberships, sessions and API tokens. The audit log keeps the name.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(
        ("user" = String, Path, description = "The user's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the user's present ETag"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "FDN-2018: a tenant would have no owner, or the network no admin", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "FDN-2013: the user has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/users/{user}")]
pub(crate) async fn user_delete(
    call: Authorized<Administer, User, Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    removal::delete_user(&state, &call.actor(), &call.input, &call.expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Parameters of a tenant's deletion.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TenantDeleteParams {
    /// Whether its apps are deleted with it; without this, a tenant that has apps is not deleted.
    #[serde(default)]
    force: bool,
}

/// Delete a tenant. What it used and its bills stay, under its id.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        TenantDeleteParams,
        ("if-match" = Option<String>, Header, description = "Only if this is its present ETag"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "FDN-2036: it has apps", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "FDN-2013: it has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/tenants/{tenant}")]
pub(crate) async fn tenant_delete(
    call: Authorized<Administer, (Tenant, web::Query<TenantDeleteParams>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (named, params) = &call.input;
    let found = tenant_get(&mut *state.store.read().await?, named).await?;
    let id = found.ok_or_else(|| Error::no_tenant(named))?.id;
    removal::delete_tenant(&state, &call.actor(), id, params.force, &call.expected).await?;
    Ok(HttpResponse::NoContent().finish())
}
