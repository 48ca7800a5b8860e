//! What machines call: to be let in, to renew their certificate, to be head of their cluster.

use actix_web::{HttpRequest, HttpResponse, post, web};
use fdn_core::enrol::{
    EnrolRequest, EnrolResponse, LeaseRequest, LeaseResponse, RenewRequest, RenewResponse,
};
use fdn_core::{ClusterId, Problem};
use fdn_service::now;

use super::auth::{Authorized, Serve, stranger};
use super::error::ApiError;
use crate::app::{enrol, lease};
use crate::state::State;

type Shared = web::Data<State>;
type Cluster = web::Path<ClusterId>;

/// Let a machine in: a join token and a certificate signing request for a certificate.
#[utoipa::path(
    tag = "machines",
    security(()),
    request_body = EnrolRequest,
    responses(
        (status = 200, description = "Let in. The answer holds secrets.", body = EnrolResponse),
        (status = 403, description = "FDN-7001 to FDN-7005: the token is not good for this machine", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "FDN-7006: another node has this name", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-7007: the certificate signing request cannot be used", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/nodes/enrol")]
pub(crate) async fn node_enrol(
    body: web::Json<EnrolRequest>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let answer: EnrolResponse =
        enrol::enrol(&state, &body, &stranger(&request, &state), now()).await?;
    Ok(secret(&answer))
}

/// Renew a node's certificate. The request is signed by the present certificate's key.
#[utoipa::path(
    tag = "machines",
    security(()),
    request_body = RenewRequest,
    responses(
        (status = 200, body = RenewResponse),
        (status = 403, description = "FDN-7008: the present certificate does not count", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/nodes/renew")]
pub(crate) async fn node_renew(
    body: web::Json<RenewRequest>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let answer: RenewResponse =
        enrol::renew(&state, &body, &stranger(&request, &state), now()).await?;
    Ok(secret(&answer))
}

fn secret<T: serde::Serialize>(answer: &T) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(answer)
}

/// Be, or stay, the head of a cluster; or learn who is.
#[utoipa::path(
    tag = "machines",
    security(("network" = [])),
    params(("cluster" = String, Path, description = "The cluster's name")),
    request_body = LeaseRequest,
    responses((status = 200, body = LeaseResponse), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/internal/v1/clusters/{cluster}/head-lease")]
pub(crate) async fn head_lease(
    call: Authorized<Serve, (Cluster, web::Json<LeaseRequest>)>,
    state: Shared,
) -> Result<web::Json<LeaseResponse>, ApiError> {
    let (cluster, request) = &call.input;
    let answer = lease::ask(&state, &call.caller, cluster, request, now()).await?;
    Ok(web::Json(answer))
}
