//! `/v1/tenants`, their members, and the audit log.

use actix_web::{HttpRequest, HttpResponse, delete, get, patch, post, put, web};
use fdn_core::account::{
    AuditRecord, CreateTenant, MemberInfo, PutMember, TenantInfo, TenantRef, UpdateTenant,
};
use fdn_core::{Problem, Right, Timestamp, UserName};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Administer, Authorized, Look, ManageMembers, ReadAudit};
use super::conditional::tagged;
use super::error::ApiError;
use super::once;
use super::page::PageParams;
use crate::Error;
use crate::app::precondition::{Precondition, tag};
use crate::app::tenant;
use crate::state::State;
use crate::store::audit::{AuditFilter, audit_list};

type Shared = web::Data<State>;
type Tenant = web::Path<TenantRef>;
type Member = web::Path<(TenantRef, UserName)>;

/// Make a tenant.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
    request_body = CreateTenant,
    responses(
        (status = 200, body = TenantInfo),
        (status = 409, description = "FDN-2004: the name is taken", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/tenants")]
pub(crate) async fn tenant_create(
    call: Authorized<Administer, web::Json<CreateTenant>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(&state, &call, "tenant_create", async |actor, request| {
        tenant::create(&state, actor, request, now()).await
    })
    .await
}

/// The caller's tenants, by name; an admin's are all.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [TenantInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tenants")]
pub(crate) async fn tenant_list(
    call: Authorized<Look, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let rows = match call.named_tenant() {
        Some(only) => wanted.cut(vec![tenant::get(&state, only).await?], |t| {
            t.name.to_string()
        }),
        None => {
            let member = call.person()?.list_filter(Right::Look);
            tenant::list(&state, member.as_deref(), &wanted.after, wanted.rows()).await?
        }
    };
    Ok(wanted.answer(&request, rows, |tenant| tenant.name.to_string()))
}

/// One tenant.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(("tenant" = String, Path, description = "The tenant's name or id")),
    responses((status = 200, body = TenantInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tenants/{tenant}")]
pub(crate) async fn tenant_describe(
    call: Authorized<Look, Tenant>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = tenant::get(&state, call.tenant()?).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Rename, suspend or resume a tenant.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("if-match" = Option<String>, Header, description = "Only if this is its present ETag"),
    ),
    request_body = UpdateTenant,
    responses(
        (status = 200, body = TenantInfo),
        (status = 412, description = "FDN-2013: it has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[patch("/v1/tenants/{tenant}")]
pub(crate) async fn tenant_update(
    call: Authorized<Administer, (Tenant, web::Json<UpdateTenant>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (named, request) = &call.input;
    let found = crate::store::tenant::tenant_get(&mut *state.store.read().await?, named).await?;
    let id = found.ok_or_else(|| Error::no_tenant(named))?.id;
    let info = tenant::update(&state, &call.actor(), id, request, &call.expected).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// A tenant's members, by name.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(("tenant" = String, Path, description = "The tenant's name or id"), PageParams),
    responses((status = 200, body = [MemberInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tenants/{tenant}/members")]
pub(crate) async fn member_list(
    call: Authorized<Look, (Tenant, web::Query<PageParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.1.validate(&state.settings.api)?;
    let rows = tenant::members(&state, call.tenant()?, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |member| member.user.to_string()))
}

/// One member.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(("tenant" = String, Path, description = "The tenant's name or id"), ("user" = String, Path, description = "The user's name")),
    responses((status = 200, body = MemberInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/tenants/{tenant}/members/{user}")]
pub(crate) async fn member_get(
    call: Authorized<Look, Member>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let info = tenant::member(&state, call.tenant()?, &call.input.1).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Add a member, or change one's role.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("user" = String, Path, description = "The user's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the member's present ETag"),
    ),
    request_body = PutMember,
    responses(
        (status = 200, body = MemberInfo),
        (status = 409, description = "FDN-2018: no owner would be left", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "FDN-2013: it has changed", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/tenants/{tenant}/members/{user}")]
pub(crate) async fn member_put(
    call: Authorized<ManageMembers, (Member, web::Json<PutMember>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (path, request) = &call.input;
    let who = (call.tenant()?, &path.1);
    let info = tenant::put_member(&state, &call.actor(), who, request.0, &call.expected).await?;
    Ok(tagged(tag(info.generation), &info))
}

/// Remove a member.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(
        ("tenant" = String, Path, description = "The tenant's name or id"),
        ("user" = String, Path, description = "The user's name"),
        ("if-match" = Option<String>, Header, description = "Only if this is the member's present ETag"),
    ),
    responses(
        (status = 204, description = "Removed"),
        (status = 409, description = "FDN-2018: no owner would be left", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/tenants/{tenant}/members/{user}")]
pub(crate) async fn member_remove(
    call: Authorized<ManageMembers, Member, Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let who = (call.tenant()?, &call.input.1);
    tenant::remove_member(&state, &call.actor(), who, &call.expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Parameters of the audit log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// Of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// By this user, node or join token.
    actor: Option<String>,
    /// Of this action, such as `deploy`.
    action: Option<String>,
    /// On this subject, such as `app/hello`.
    subject: Option<String>,
    /// At this time or later, in milliseconds since 1970.
    #[param(value_type = Option<u64>)]
    since: Option<Timestamp>,
    /// Before this time, in milliseconds since 1970.
    #[param(value_type = Option<u64>)]
    until: Option<Timestamp>,
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
}

/// Who changed what, newest first: an owner sees the own tenants, an admin everything.
#[utoipa::path(
    tag = "tenants",
    security(("session" = [])),
    params(AuditParams),
    responses((status = 200, body = [AuditRecord]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/audit")]
pub(crate) async fn audit_log(
    call: Authorized<ReadAudit, web::Query<AuditParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let params = &call.input;
    let page = PageParams {
        limit: params.limit,
        cursor: params.cursor.clone(),
    };
    let wanted = page.validate(&state.settings.api)?;
    let text = |param: &Option<String>| param.clone().unwrap_or_default();
    let filter = AuditFilter {
        tenant: call.named_tenant(),
        owner: call.person()?.list_filter(Right::ReadAudit),
        actor: text(&params.actor),
        action: text(&params.action),
        subject: text(&params.subject),
        since: moment("since", params.since)?,
        until: moment("until", params.until)?,
        before: position(&wanted.after)?,
    };
    let rows = audit_list(&mut *state.store.read().await?, &filter, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |record| {
        format!("{} {}", record.at.get(), record.id)
    }))
}

/// Checks that a time is one that the store can hold; `name` is for the error.
pub(super) fn moment(name: &str, at: Option<Timestamp>) -> Result<Option<Timestamp>, Error> {
    match at {
        Some(at) if i64::try_from(at.get()).is_err() => Err(Error::BadRequest(format!(
            "{name}: milliseconds since 1970, at most {}",
            i64::MAX
        ))),
        at => Ok(at),
    }
}

/// The position in the log at which a page begins.
fn position(after: &str) -> Result<Option<(Timestamp, String)>, Error> {
    if after.is_empty() {
        return Ok(None);
    }
    let bad = || Error::BadRequest("cursor: take it from the link of the page before".to_owned());
    let (at, id) = after.split_once(' ').ok_or_else(bad)?;
    let at = at.parse().map_err(|_| bad())?;
    Ok(Some((Timestamp(at), id.to_owned())))
}
