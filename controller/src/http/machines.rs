//! Operations for machines without an edge connection: enrolling, and renewing an expired certificate. All others are requests to the edge listener.

use actix_web::{HttpRequest, HttpResponse, post, web};
use fdn_core::Problem;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, RenewRequest, RenewResponse};
use fdn_service::now;

use super::auth::anonymous_actor;
use super::error::ApiError;
use crate::app::enrol;
use crate::state::State;

type Shared = web::Data<State>;

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
        enrol::enrol(&state, &body, &anonymous_actor(&request, &state), now()).await?;
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
        enrol::renew(&state, &body, &anonymous_actor(&request, &state), now()).await?;
    Ok(secret(&answer))
}

fn secret<T: serde::Serialize>(answer: &T) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(answer)
}
