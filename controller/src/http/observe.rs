//! Middleware around every request: a request id, metrics, and a log line for failures.

use std::time::Instant;

use actix_web::HttpMessage as _;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web;
use fdn_core::Fault;
use fdn_core::api::header::REQUEST_ID;
use tracing::{debug, error, warn};

use super::error::Failure;
use crate::state::State;

/// The longest request id accepted from a client.
const ID_MAX: usize = 64;

/// The request's id, for handlers.
pub(super) struct RequestId(pub(super) String);

/// The client's request id if it is acceptable, else a new one.
fn request_id(request: &ServiceRequest) -> String {
    let sane = |id: &&str| {
        !id.is_empty()
            && id.len() <= ID_MAX
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let given = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(sane);
    given.map_or_else(|| uuid::Uuid::now_v7().simple().to_string(), str::to_owned)
}

/// The middleware.
pub(crate) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let start = Instant::now();
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let state = request.app_data::<web::Data<State>>().cloned();
    let method = request.method().clone();
    let mut response = match next.call(request).await {
        Ok(response) => response.map_into_boxed_body(),
        Err(error) => return Err(error),
    };
    let route = response
        .request()
        .match_pattern()
        .unwrap_or_else(|| "none".to_owned());
    let failure = response.response().extensions().get::<Failure>().cloned();
    if let Some(failure) = failure {
        log(&failure, &id, &route);
        let problem = failure.problem.with_request_id(&id);
        if let Ok(body) = serde_json::to_vec(&problem) {
            response = response.map_body(|_, _| BoxBody::new(body));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(REQUEST_ID), value);
    }
    if let Some(state) = state {
        let method = method_label(&method);
        let status = response.status();
        state
            .metrics
            .requests
            .with_label_values(&[method, &route, status.as_str()])
            .inc();
        state
            .metrics
            .request_seconds
            .with_label_values(&[&route])
            .observe(start.elapsed().as_secs_f64());
    }
    Ok(response)
}

/// The method as a label. Any text may come as a method, and a path tells its route whether or not that takes the method: only known ones become
/// labels.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("any")
}

fn log(failure: &Failure, id: &str, route: &str) {
    let (code, causes) = (failure.problem.code, &failure.causes);
    match code.fault() {
        Fault::Internal => error!(request = id, route, %code, causes, "a request failed"),
        Fault::Dependency => warn!(request = id, route, %code, causes, "a request failed"),
        Fault::Caller | Fault::Function => {
            debug!(request = id, route, %code, causes, "a request was refused")
        }
    }
}
