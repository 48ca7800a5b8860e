//! `/v1/dns/txt`: TXT records of names in the zone, such as those that certificate authorities ask for.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use fdn_core::txt::{AddTxt, SetTxt, TxtInfo};
use fdn_core::{Problem, RecordName, Right};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Look, ManageRecords};
use super::error::ApiError;
use super::page::PageParams;
use crate::app::txt::{self, Requester};
use crate::state::State;
use crate::store::txt::TxtVisibility;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type Name = web::Path<RecordName>;

/// Parameters of the list of TXT records.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TxtParams {
    /// Those of this tenant's apps (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
}

/// The text records that were set below apps of the caller's tenants, by name. Whoever may set them in the whole zone sees all.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(TxtParams),
    responses((status = 200, body = [TxtInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/dns/txt")]
pub(crate) async fn txt_list(
    call: Authorized<Look, web::Query<TxtParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let page = PageParams {
        limit: call.input.limit,
        cursor: call.input.cursor.clone(),
    };
    let wanted = page.validate(&state.settings.api)?;
    let visibility = TxtVisibility {
        tenant: call.named_tenant(),
        member: call.person()?.list_filter(Right::ManageRecords),
    };
    let rows = txt::list(&state, &visibility, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |row| row.name.to_string()))
}

/// Set the text records of a name, whole: below the host name of an app, with an underscore before the label next to it, or, with a role in the
/// network, anywhere in the zone but at an app's own name.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(
        ("name" = String, Path, description = "The name, in the zone"),
        ("tenant" = Option<String>, Query, description = "The tenant of the app that the name is below (name or id); another's is refused"),
    ),
    request_body = SetTxt,
    responses(
        (status = 200, body = TxtInfo),
        (status = 403, description = "FDN-2071: the name is not the caller's to set", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "FDN-2072: as many are set as may be", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2070: the name, a value or a time is not one that records can have", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/dns/txt/{name}")]
pub(crate) async fn txt_set(
    call: Authorized<ManageRecords, (Name, web::Json<SetTxt>)>,
    state: Shared,
) -> Answer<TxtInfo> {
    let (name, request) = &call.input;
    let actor = call.actor();
    let requester = Requester {
        caller: &call.caller,
        tenant: call.named_tenant(),
        actor: &actor,
    };
    Ok(web::Json(
        txt::set(&state, requester, name, request, now()).await?,
    ))
}

/// Add a value to the text records of a name. A certificate for a name and its wildcard needs two at the same time.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(
        ("name" = String, Path, description = "The name, in the zone"),
        ("tenant" = Option<String>, Query, description = "The tenant of the app that the name is below (name or id); another's is refused"),
    ),
    request_body = AddTxt,
    responses(
        (status = 200, body = TxtInfo),
        (status = 403, description = "FDN-2071: the name is not the caller's to set", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "FDN-2072: as many are set as may be", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2070: the name, a value or a time is not one that records can have", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/dns/txt/{name}")]
pub(crate) async fn txt_add(
    call: Authorized<ManageRecords, (Name, web::Json<AddTxt>)>,
    state: Shared,
) -> Answer<TxtInfo> {
    let (name, request) = &call.input;
    let actor = call.actor();
    let requester = Requester {
        caller: &call.caller,
        tenant: call.named_tenant(),
        actor: &actor,
    };
    Ok(web::Json(
        txt::add(&state, requester, name, request, now()).await?,
    ))
}

/// Parameters of a removal of TXT records.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveTxtParams {
    /// The tenant of the app that the name is below (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// This value; all of the name if absent.
    value: Option<String>,
}

/// Take a value of a name's text records away, or all.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("name" = String, Path, description = "The name, in the zone"), RemoveTxtParams),
    responses(
        (status = 204, description = "Taken away"),
        (status = 403, description = "FDN-2071: the name is not the caller's to set", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2070: the name is not in the zone", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/dns/txt/{name}")]
pub(crate) async fn txt_remove(
    call: Authorized<ManageRecords, (Name, web::Query<RemoveTxtParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (name, params) = &call.input;
    let actor = call.actor();
    let requester = Requester {
        caller: &call.caller,
        tenant: call.named_tenant(),
        actor: &actor,
    };
    txt::remove(&state, requester, name, params.value.as_deref(), now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
