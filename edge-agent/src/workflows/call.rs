//! One call of a stage, and its result.

use std::time::Duration;

use actix_http::RequestHead;
use actix_http::header::{HeaderName as ActixName, HeaderValue as ActixValue};
use bytes::Bytes;
use fdn_core::{AppName, ErrorCode, HostName, StageName};
use fdn_scheduling::run::{Failure, FailureKind};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::budget::{Budget, Held};
use crate::gateway::head::Ids;

/// A call of a stage, ready to be sent to the function.
#[derive(Clone, Debug)]
pub struct StageCall {
    /// The app.
    pub app: AppName,
    /// The app's host name.
    pub host: HostName,
    /// The stage.
    pub stage: StageName,
    /// The function and its version, as text; a node that has another version deployed refuses the call.
    pub version: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The method.
    pub method: Method,
    /// The path and query.
    pub uri: Uri,
    /// Header fields for the function, without the hop-by-hop ones.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The host that the client requested.
    pub requested_host: String,
    /// The client's address.
    pub client: Bytes,
    /// The request id and trace context.
    pub ids: Ids,
    /// The time left for this attempt.
    pub left: Duration,
    /// From which its output is taken.
    pub budget: Budget,
}

/// The output of a stage.
#[derive(Debug)]
pub struct Output {
    /// The function's status code.
    pub status: StatusCode,
    /// The function's header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// What the body takes of the run's budget.
    pub held: Held,
}

impl Output {
    /// The output's media type.
    #[must_use]
    pub fn content_type(&self) -> &str {
        let found = self.headers.get(http::header::CONTENT_TYPE);
        found
            .and_then(|value| value.to_str().ok())
            .unwrap_or(fdn_core::workflow::parts::UNKNOWN)
    }

    /// Returns the output if its status is a success (below 400), else the failure that the status means.
    ///
    /// # Errors
    /// When the status is 400 or above.
    pub fn check_status(self) -> Result<Self, Failure> {
        let code = self.status.as_u16();
        if code < 400 {
            return Ok(self);
        }
        let kind = match code {
            408 | 429 | 500.. => FailureKind::Answered,
            _ => FailureKind::Refused,
        };
        let mut reason = format!("the function answered {}", self.status);
        if self.content_type().starts_with("text/plain")
            && let Ok(text) = std::str::from_utf8(&self.body)
        {
            let line: String = text
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(200)
                .collect();
            reason = format!("{reason}: {line}");
        }
        Err(Failure::new(kind, reason))
    }
}

/// The codes with which a gateway tells that it did not let a call begin.
const NOT_LET_IN: [ErrorCode; 6] = [
    ErrorCode::Overloaded,
    ErrorCode::NotReady,
    ErrorCode::TooManyRequests,
    ErrorCode::TooManyAtOnce,
    ErrorCode::UnknownHost,
    ErrorCode::InstanceNotStarted,
];

/// The error code for the caller of a run in which nothing began, from the reason of its last failure. Where that names none, or a host that one
/// gateway does not know yet, the app is not ready.
#[must_use]
pub fn refusal_code(reason: &str) -> ErrorCode {
    let named = |code: &ErrorCode| reason.contains(&format!("{code}: "));
    match NOT_LET_IN.into_iter().find(named) {
        None | Some(ErrorCode::UnknownHost) => ErrorCode::NotReady,
        Some(code) => code,
    }
}

/// Maps an error that the gateway answered in the function's place to a failure. `begun` tells whether the function may have begun.
#[must_use]
pub fn failure_of(code: ErrorCode, begun: bool, reason: &str) -> Failure {
    let kind = match code {
        _ if !begun && NOT_LET_IN.contains(&code) => FailureKind::NotStarted,
        ErrorCode::FunctionTimeout
        | ErrorCode::InstanceLost
        | ErrorCode::InstanceNotStarted
        | ErrorCode::Internal
        | ErrorCode::Overloaded
        | ErrorCode::NotReady => FailureKind::Lost,
        ErrorCode::FunctionTrapped | ErrorCode::NoResponse => FailureKind::Answered,
        _ => FailureKind::Refused,
    };
    Failure::new(kind, format!("{code}: {reason}"))
}

impl StageCall {
    /// The request head, in the types of the gateway's own calls.
    ///
    /// # Errors
    /// When method or target is not valid there.
    pub fn head(&self) -> Result<RequestHead, Failure> {
        let refused = |_| Failure::new(FailureKind::Refused, "the call cannot be expressed");
        let mut head = RequestHead::default();
        head.method = actix_http::Method::from_bytes(self.method.as_str().as_bytes())
            .map_err(|_| refused(()))?;
        head.uri = actix_http::Uri::from_maybe_shared(Bytes::from(self.uri.to_string()))
            .map_err(|_| refused(()))?;
        let headers = head.headers_mut();
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) = (
                ActixName::from_bytes(name.as_str().as_bytes()),
                ActixValue::from_bytes(value.as_bytes()),
            ) {
                headers.append(name, value);
            }
        }
        headers.insert(
            actix_http::header::CONTENT_LENGTH,
            ActixValue::from(self.body.len()),
        );
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: u16, kind: &'static str, body: &'static str) -> Output {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", http::HeaderValue::from_static(kind));
        Output {
            status: StatusCode::from_u16(status).expect("status"),
            headers,
            body: Bytes::from_static(body.as_bytes()),
            held: Budget::new(0).nothing(),
        }
    }

    #[test]
    fn a_status_tells_whether_trying_again_can_help() {
        let kind = |status| {
            output(status, "image/png", "x")
                .check_status()
                .map(drop)
                .map_err(|f| f.kind)
        };
        assert_eq!([kind(200), kind(204), kind(302)], [Ok(()); 3]);
        assert_eq!(
            [kind(500), kind(503), kind(429)],
            [Err(FailureKind::Answered); 3]
        );
        assert_eq!([kind(400), kind(415)], [Err(FailureKind::Refused); 2]);
        let told = output(415, "text/plain; charset=utf-8", "no picture\nat all").check_status();
        let told = told.expect_err("415").reason;
        assert!(
            told.ends_with("415 Unsupported Media Type: no picture"),
            "{told}"
        );
    }

    #[test]
    fn only_what_was_not_let_in_has_surely_not_begun() {
        let kind = |code, begun| failure_of(code, begun, "").kind;
        assert_eq!(kind(ErrorCode::Overloaded, false), FailureKind::NotStarted);
        assert_eq!(kind(ErrorCode::Overloaded, true), FailureKind::Lost);
        assert_eq!(kind(ErrorCode::FunctionTimeout, false), FailureKind::Lost);
        assert_eq!(
            kind(ErrorCode::FunctionTrapped, true),
            FailureKind::Answered
        );
        assert_eq!(kind(ErrorCode::BodyTooLarge, false), FailureKind::Refused);
        assert_eq!(
            kind(ErrorCode::TooManyAtOnce, false),
            FailureKind::NotStarted
        );
    }

    #[test]
    fn a_run_that_never_began_is_answered_with_what_its_last_refusal_says() {
        let told = |code| refusal_code(&failure_of(code, false, "busy").reason);
        assert_eq!(told(ErrorCode::Overloaded), ErrorCode::Overloaded);
        assert_eq!(told(ErrorCode::TooManyAtOnce), ErrorCode::TooManyAtOnce);
        assert_eq!(told(ErrorCode::UnknownHost), ErrorCode::NotReady);
        let away = "cluster us-east: FDN-3007: the node is busy";
        assert_eq!(refusal_code(away), ErrorCode::Overloaded);
        let away = "cluster us-east was not reached: connection refused";
        assert_eq!(refusal_code(away), ErrorCode::NotReady);
    }
}
