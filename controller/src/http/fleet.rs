//! `/v1/clusters`, `/v1/nodes`, `/v1/join-tokens`: what operators call.

use actix_web::{HttpResponse, delete, get, post, web};
use fdn_core::api::{ClusterInfo, NodeInfo};
use fdn_core::fleet::{
    ClusterDetail, CreateCluster, CreateJoinToken, CreatedJoinToken, JoinTokenInfo, NodeDetail,
};
use fdn_core::{ClusterId, JoinTokenId, NodeId, Problem};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Operate, Read};
use super::error::ApiError;
use crate::app::{fleet, join_token};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type Node = web::Path<NodeId>;

/// All clusters, by name.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    responses((status = 200, body = [ClusterInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/clusters")]
pub(crate) async fn cluster_list(_: Authorized<Read>, state: Shared) -> Answer<Vec<ClusterInfo>> {
    Ok(web::Json(fleet::clusters(&state, now()).await?))
}

/// Make a cluster.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    request_body = CreateCluster,
    responses(
        (status = 200, body = ClusterInfo),
        (status = 400, description = "FDN-2005: the region is new and nobody said where it is", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "FDN-2004: there is one of this name", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/clusters")]
pub(crate) async fn cluster_create(
    call: Authorized<Operate, web::Json<CreateCluster>>,
    state: Shared,
) -> Answer<ClusterInfo> {
    let made = fleet::create(&state, &call.actor(), &call.input, now()).await?;
    Ok(web::Json(made))
}

/// Everything about a cluster.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("cluster" = String, Path, description = "The cluster's name")),
    responses((status = 200, body = ClusterDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/clusters/{cluster}")]
pub(crate) async fn cluster_get(
    call: Authorized<Read, web::Path<ClusterId>>,
    state: Shared,
) -> Answer<ClusterDetail> {
    Ok(web::Json(
        fleet::cluster_detail(&state, &call.input, now()).await?,
    ))
}

/// All nodes, by name.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    responses((status = 200, body = [NodeInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/nodes")]
pub(crate) async fn node_list(_: Authorized<Read>, state: Shared) -> Answer<Vec<NodeInfo>> {
    Ok(web::Json(fleet::nodes(&state, now()).await?))
}

/// Everything about a node.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name")),
    responses((status = 200, body = NodeDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/nodes/{node}")]
pub(crate) async fn node_get(call: Authorized<Read, Node>, state: Shared) -> Answer<NodeDetail> {
    Ok(web::Json(
        fleet::node_detail(&state, &call.input, now()).await?,
    ))
}

/// Let a node take no new work. Its state becomes `draining`, then `drained`.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name")),
    responses((status = 200, body = NodeDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/nodes/{node}/drain")]
pub(crate) async fn node_drain(
    call: Authorized<Operate, Node>,
    state: Shared,
) -> Answer<NodeDetail> {
    let detail = fleet::cordon(&state, &call.actor(), &call.input, true, now()).await?;
    Ok(web::Json(detail))
}

/// Let a node take work again.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name")),
    responses((status = 200, body = NodeDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/nodes/{node}/uncordon")]
pub(crate) async fn node_uncordon(
    call: Authorized<Operate, Node>,
    state: Shared,
) -> Answer<NodeDetail> {
    let detail = fleet::cordon(&state, &call.actor(), &call.input, false, now()).await?;
    Ok(web::Json(detail))
}

/// How to remove a node.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveParams {
    /// Whether to remove it although it takes or does work.
    #[serde(default)]
    force: bool,
}

/// Remove a node: its certificates no longer count, its name is free.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name"), RemoveParams),
    responses(
        (status = 204, description = "Removed"),
        (status = 409, description = "FDN-7009: it still takes or does work", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/nodes/{node}")]
pub(crate) async fn node_remove(
    call: Authorized<Operate, (Node, web::Query<RemoveParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (node, params) = &call.input;
    fleet::remove(&state, &call.actor(), node, params.force, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Make a join token. It is shown once.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    request_body = CreateJoinToken,
    responses((status = 200, body = CreatedJoinToken), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/join-tokens")]
pub(crate) async fn join_token_create(
    call: Authorized<Operate, web::Json<CreateJoinToken>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let made = join_token::create(&state, &call.actor(), &call.input, now()).await?;
    Ok(HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(made))
}

/// All join tokens, newest first, without their secrets.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    responses((status = 200, body = [JoinTokenInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/join-tokens")]
pub(crate) async fn join_token_list(
    _: Authorized<Operate>,
    state: Shared,
) -> Answer<Vec<JoinTokenInfo>> {
    Ok(web::Json(join_token::list(&state).await?))
}

/// Take a join token back.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("token" = String, Path, description = "The token's id")),
    responses((status = 204, description = "Taken back"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/join-tokens/{token}")]
pub(crate) async fn join_token_revoke(
    call: Authorized<Operate, web::Path<JoinTokenId>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    join_token::revoke(&state, &call.actor(), *call.input, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
