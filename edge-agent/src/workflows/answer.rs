//! Responses to the caller of a workflow.

use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{Response, StatusCode};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::workflow::parts::{Multipart, Part};
use fdn_core::{ErrorCode, Problem, StageName};

use super::budget::Budget;
use super::call::Output;
use crate::gateway::body::GatewayBody;
use crate::gateway::head;
use crate::gateway::problem::add_retry_after;

/// Header that tells which cluster ran which stage.
const STAGES: HeaderName = HeaderName::from_static("x-fdn-stages");
/// The largest number of stages for which the header is sent.
const STAGES_TOLD: usize = 64;

/// The response of a workflow with one exit: the exit's output.
pub(super) fn single(output: Output) -> Response<GatewayBody> {
    let status = StatusCode::from_u16(output.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = Response::with_body(status, ());
    head::to_client(&output.headers, response.headers_mut());
    response.set_body(GatewayBody::full(output.body))
}

/// The response of a workflow with several exits: their outputs as parts. `None` if these copies of the outputs are larger than what `budget` has left.
pub(super) fn several(
    outputs: &[(&StageName, Output)],
    budget: &Budget,
) -> Option<Response<GatewayBody>> {
    // Before it is made: what has no room is not copied first.
    let least: usize = outputs.iter().map(|(_, output)| output.body.len()).sum();
    let mut held = budget.take(least)?;
    let parts: Vec<Part<'_>> = outputs
        .iter()
        .map(|(stage, output)| Part {
            stage,
            content_type: output.content_type(),
            body: &output.body,
        })
        .collect();
    let whole = Multipart::new(&parts);
    if !held.grow(whole.body.len().saturating_sub(least)) {
        return None;
    }
    let body = GatewayBody::full(Bytes::from(whole.body));
    let mut response = Response::with_body(StatusCode::OK, body);
    if let Ok(kind) = HeaderValue::from_str(&whole.content_type) {
        response
            .headers_mut()
            .insert(actix_http::header::CONTENT_TYPE, kind);
    }
    Some(response)
}

/// The response of a failed run: a problem with stage, attempt and reason.
pub(super) fn failed(problem: Problem, request: &Bytes) -> Response<GatewayBody> {
    let code: ErrorCode = problem.code;
    let problem = problem.with_request_id(String::from_utf8_lossy(request));
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // A problem consists of strings and numbers and can always be serialized.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::with_body(status, GatewayBody::full(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(
        actix_http::header::CONTENT_TYPE,
        HeaderValue::from_static(Problem::MEDIA_TYPE),
    );
    headers.insert(
        HeaderName::from_static(header::ERROR),
        HeaderValue::from_static(code.as_str()),
    );
    add_retry_after(code, headers);
    response
}

/// Adds the header that tells which cluster ran which stage.
pub(super) fn add_stages_header(
    response: &mut Response<GatewayBody>,
    ran: &[(&StageName, String)],
) {
    if ran.len() > STAGES_TOLD {
        return;
    }
    let stages: Vec<String> = ran
        .iter()
        .map(|(stage, cluster)| format!("{stage}={cluster}"))
        .collect();
    if let Ok(stages) = HeaderValue::from_str(&stages.join(", ")) {
        response.headers_mut().insert(STAGES, stages);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    const EACH: usize = 300 << 10;

    fn output(budget: &Budget) -> Output {
        Output {
            status: http::StatusCode::OK,
            headers: HeaderMap::new(),
            body: vec![b'x'; EACH].into(),
            held: budget.take(EACH).expect("there is room"),
        }
    }

    #[test]
    fn several_outputs_are_joined_only_within_what_the_run_may_still_keep() {
        let (a, b): (StageName, StageName) = ("a".parse().expect("a"), "b".parse().expect("b"));
        let budget = Budget::new(1 << 20);
        let mut outputs = vec![(&a, output(&budget))];
        assert!(several(&outputs, &budget).is_some());
        assert_eq!(budget.left(), (1 << 20) - EACH, "it is the caller's now");
        outputs.push((&b, output(&budget)));
        assert!(several(&outputs, &budget).is_none());
        assert_eq!(budget.left(), (1 << 20) - 2 * EACH);
        // The output itself has room, the head of its part has none.
        let budget = Budget::new(2 * EACH);
        assert!(several(&[(&a, output(&budget))], &budget).is_none());
    }
}
