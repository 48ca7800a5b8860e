//! `/v1/clusters`, `/v1/nodes`, `/v1/dns-servers`, `/v1/join-tokens`: operations for operators.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use fdn_core::api::{ClusterInfo, NodeInfo};
use fdn_core::fleet::{
    ClusterDetail, CreateCluster, CreateJoinToken, CreatedJoinToken, DnsServerInfo, JoinTokenInfo,
    NodeDetail, RestoreDevice,
};
use fdn_core::{ClusterId, JoinTokenId, NodeId, Problem};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, LookMachines, LookNetwork, OperateMachines};
use super::error::ApiError;
use super::once;
use super::page::PageParams;
use crate::app::{device, fleet, join_token};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type Node = web::Path<NodeId>;

/// All clusters, by name.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [ClusterInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/clusters")]
pub(crate) async fn cluster_list(
    call: Authorized<LookNetwork, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let name = |row: &ClusterInfo| row.cluster.to_string();
    let rows = wanted.cut(fleet::clusters(&state, now()).await?, name);
    Ok(wanted.answer(&request, rows, name))
}

/// Make a cluster.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
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
    call: Authorized<OperateMachines, web::Json<CreateCluster>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(&state, &call, "cluster_create", async |actor, request| {
        fleet::create(&state, actor, request, now()).await
    })
    .await
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
    call: Authorized<LookMachines, web::Path<ClusterId>>,
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
    params(PageParams),
    responses((status = 200, body = [NodeInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/nodes")]
pub(crate) async fn node_list(
    call: Authorized<LookMachines, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let name = |row: &NodeInfo| row.node.to_string();
    let rows = wanted.cut(fleet::nodes(&state, now()).await?, name);
    Ok(wanted.answer(&request, rows, name))
}

/// Everything about a node.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name")),
    responses((status = 200, body = NodeDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/nodes/{node}")]
pub(crate) async fn node_get(
    call: Authorized<LookMachines, Node>,
    state: Shared,
) -> Answer<NodeDetail> {
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
    call: Authorized<OperateMachines, Node>,
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
    call: Authorized<OperateMachines, Node>,
    state: Shared,
) -> Answer<NodeDetail> {
    let detail = fleet::cordon(&state, &call.actor(), &call.input, false, now()).await?;
    Ok(web::Json(detail))
}

/// Let a node put a device back into service that it took out of it.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("node" = String, Path, description = "The node's name")),
    request_body = RestoreDevice,
    responses((status = 200, body = NodeDetail), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/nodes/{node}/restore-device")]
pub(crate) async fn node_restore_device(
    call: Authorized<OperateMachines, (Node, web::Json<RestoreDevice>)>,
    state: Shared,
) -> Answer<NodeDetail> {
    let (node, request) = &call.input;
    let detail = device::restore(&state, &call.actor(), node, &request.device, now()).await?;
    Ok(web::Json(detail))
}

/// Parameters of a node's removal.
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
    call: Authorized<OperateMachines, (Node, web::Query<RemoveParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (node, params) = &call.input;
    fleet::remove(&state, &call.actor(), node, params.force, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// All DNS servers that were let in, by name.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [DnsServerInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/dns-servers")]
pub(crate) async fn dns_server_list(
    call: Authorized<LookMachines, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let key = |row: &DnsServerInfo| row.server.to_string();
    let rows = wanted.cut(fleet::dns_servers(&state).await?, key);
    Ok(wanted.answer(&request, rows, key))
}

/// Remove a DNS server: its certificates no longer count, its name is free.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("server" = String, Path, description = "The server's name")),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/dns-servers/{server}")]
pub(crate) async fn dns_server_remove(
    call: Authorized<OperateMachines, web::Path<NodeId>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    fleet::dns_remove(&state, &call.actor(), &call.input, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Make a join token. It is shown once.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
    request_body = CreateJoinToken,
    responses((status = 200, body = CreatedJoinToken), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/join-tokens")]
pub(crate) async fn join_token_create(
    call: Authorized<OperateMachines, web::Json<CreateJoinToken>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(
        &state,
        &call,
        "join_token_create",
        async |actor, request| join_token::create(&state, actor, request, now()).await,
    )
    .await
}

/// All join tokens, newest first, without their secrets.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [JoinTokenInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/join-tokens")]
pub(crate) async fn join_token_list(
    call: Authorized<OperateMachines, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    // Newest first: the key falls as the time of creation grows.
    let key = |row: &JoinTokenInfo| format!("{:020} {}", u64::MAX - row.created_at.get(), row.id);
    let rows = wanted.cut(join_token::list(&state).await?, key);
    Ok(wanted.answer(&request, rows, key))
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
    call: Authorized<OperateMachines, web::Path<JoinTokenId>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    join_token::revoke(&state, &call.actor(), *call.input, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
