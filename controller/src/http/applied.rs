//! `/v1/sets/{set}`: sets of resources that were applied together from files.

use std::collections::BTreeSet;

use actix_web::{HttpResponse, get, put, web};
use fdn_core::applied::{AppliedSet, Item, SetName};
use fdn_service::now;

use super::auth::{Authorized, Deploy, Look};
use super::conditional::tagged;
use super::error::ApiError;
use crate::app::applied;
use crate::app::precondition::{Precondition, tag_of};
use crate::state::State;

type Shared = web::Data<State>;
type Set = web::Path<SetName>;

/// What was applied together under a name; nothing, if nothing was.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("set" = String, Path, description = "The set's name"),
        ("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's"),
    ),
    responses((status = 200, body = AppliedSet))
)]
#[get("/v1/sets/{set}")]
pub(crate) async fn set_get(
    call: Authorized<Look, Set>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let set = applied::get(&state, call.tenant()?, &call.input).await?;
    Ok(tagged(tag_of(&set.items)?, &set))
}

/// Remember what was applied together under a name, in place of what it was.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(
        ("set" = String, Path, description = "The set's name"),
        ("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's"),
        ("if-match" = Option<String>, Header, description = "Only if this is the set's present ETag"),
    ),
    request_body = BTreeSet<Item>,
    responses((status = 200, body = AppliedSet))
)]
#[put("/v1/sets/{set}")]
pub(crate) async fn set_put(
    call: Authorized<Deploy, (Set, web::Json<BTreeSet<Item>>), Precondition>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (set, items) = &call.input;
    let whose = (call.tenant()?, &call.actor());
    let kept = applied::put(&state, whose, set, (&**items, &call.expected), now()).await?;
    Ok(tagged(tag_of(&kept.items)?, &kept))
}
