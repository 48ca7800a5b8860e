//! Error answers of the gateway itself: `application/problem+json` (RFC 9457) with a stable code, which reveal no internals beyond the kind of
//! reason. Details are in the app's log.

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_http::{Response, StatusCode, header as http_header};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::{ErrorCode, Problem, Retry};

use super::body::GatewayBody;
use crate::invocations::Refused;

/// How long clients are asked to wait before a retry, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error answer of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemResponse {
    /// The error code.
    pub code: ErrorCode,
    /// What happened and what to do, for the client.
    pub detail: &'static str,
}

impl ProblemResponse {
    /// An answer with this code and this text for the client.
    #[must_use]
    pub const fn new(code: ErrorCode, detail: &'static str) -> Self {
        Self { code, detail }
    }

    /// The answer for a call that failed with `code`.
    #[must_use]
    pub fn of_call(code: ErrorCode) -> Self {
        let detail = match code {
            ErrorCode::FunctionTrapped => {
                "the function ended abnormally; its log has the reason under this request id"
            }
            ErrorCode::FunctionTimeout => "the function did not answer in time",
            ErrorCode::FunctionCpuLimit => "the function used more CPU time than it may",
            ErrorCode::FunctionMemoryLimit => "the function asked for more memory than it may have",
            ErrorCode::ResponseTooLarge => "the function's answer is larger than it may be",
            ErrorCode::NoResponse => "the function ended without an answer",
            ErrorCode::Overloaded => "the node is busy; try again later",
            ErrorCode::TooManyRequests => "as many calls of this app wait as may; try again later",
            ErrorCode::InstanceLost => "the instance ended while it served this call",
            ErrorCode::BodyTooLarge => "the request body is larger than this app accepts",
            ErrorCode::BadRequest => "the request cannot be handed to the function",
            _ => "the call failed; the node's log has the reason under this request id",
        };
        Self { code, detail }
    }

    /// The answer for a call that was not admitted.
    #[must_use]
    pub fn of_refusal(refused: Refused) -> Self {
        match refused {
            Refused::FunctionFull => Self::of_call(ErrorCode::TooManyRequests),
            Refused::AppFull => Self::new(
                ErrorCode::TooManyAtOnce,
                "as many calls of this app run on this node as may; try again later",
            ),
            Refused::TenantFull => Self::new(
                ErrorCode::TooManyAtOnce,
                "as many calls of this app's tenant run on this node as may; try again later",
            ),
            Refused::Full => Self::of_call(ErrorCode::Overloaded),
            Refused::Late => Self::new(
                ErrorCode::Overloaded,
                "no instance of the app became free in time; try again later",
            ),
            Refused::TooLarge => Self::new(
                ErrorCode::Overloaded,
                "the app needs more than this node has",
            ),
        }
    }

    /// Builds the HTTP response.
    #[must_use]
    pub fn respond(self, request_id: &Bytes) -> Response<GatewayBody> {
        let id = String::from_utf8_lossy(request_id);
        let problem = Problem::new(self.code, self.detail).with_request_id(id);
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem consists of strings and numbers, so it can always be serialized.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::with_body(status, GatewayBody::full(Bytes::from(body)));
        let headers = response.headers_mut();
        headers.insert(
            http_header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        headers.insert(
            HeaderName::from_static(header::ERROR),
            HeaderValue::from_static(self.code.as_str()),
        );
        add_retry_after(self.code, headers);
        response
    }
}

/// Asks the client to try again soon, where an error with this code is over soon.
pub(crate) fn add_retry_after(code: ErrorCode, headers: &mut HeaderMap) {
    if code.retry() == Retry::Later && matches!(code.http_status(), 429 | 503) {
        headers.insert(http_header::RETRY_AFTER, RETRY_AFTER);
    }
}
