//! Errors in HTTP responses: the only place that turns a code into a status and a problem document (RFC 9457).
//!
//! The caller is told what it can act on. The causes of internal failures and of failed dependencies are logged once, under the request's id, in
//! [`super::observe`].

use std::fmt;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, ResponseError};
use fdn_core::{ByteSize, Coded, ErrorCode, Fault, Problem};

use crate::Error;
use crate::error::chain;
use crate::upload::refused_at;

/// An error to be returned to a caller.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl<E: Into<Error>> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The failure of a response, kept in its extensions until the request's id is added.
#[derive(Clone)]
pub(crate) struct Failure {
    /// The problem for the caller.
    pub(crate) problem: Problem,
    /// The causes for the log.
    pub(crate) causes: String,
}

/// The problem document of an error.
pub(crate) fn problem(error: &Error) -> Problem {
    let code = error.code();
    match (code.fault(), error) {
        // The error's own text says what to do; its causes do not leak, because they are only in `source`.
        (Fault::Caller | Fault::Function | Fault::Dependency, error) => {
            Problem::new(code, error.to_string()).at_step(refused_at(error))
        }
        (Fault::Internal, _) => Problem::new(
            code,
            "the log of the controller has the details under this request's id",
        ),
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code().http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let problem = problem(&self.0);
        let mut response = HttpResponse::build(self.status_code());
        match &self.0 {
            Error::TooMany { after, .. } => {
                response.insert_header((header::RETRY_AFTER, seconds(*after)));
            }
            error if error.code() == ErrorCode::Unauthenticated => {
                response
                    .insert_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
            }
            error if error.code().http_status() == 503 => {
                response.insert_header((header::RETRY_AFTER, seconds(Duration::from_secs(1))));
            }
            _ => {}
        }
        let mut response = response.content_type(Problem::MEDIA_TYPE).json(&problem);
        response.extensions_mut().insert(Failure {
            problem,
            causes: chain(&self.0),
        });
        response
    }
}

fn seconds(span: Duration) -> String {
    span.as_secs_f64().ceil().max(1.0).to_string()
}

/// Makes the framework's own errors look like ours.
pub(crate) fn configure(config: &mut ServiceConfig, limit: ByteSize) {
    let bad = |error: &dyn fmt::Display| ApiError(Error::BadRequest(error.to_string()));
    config
        .app_data(
            web::JsonConfig::default()
                .limit(limit.as_usize())
                .error_handler(move |error, _| {
                    use actix_web::error::JsonPayloadError as Json;
                    match error {
                        Json::Overflow { .. } | Json::OverflowKnownLength { .. } => {
                            ApiError(Error::BodyTooLarge(limit)).into()
                        }
                        Json::ContentType => {
                            bad(&"the body must be JSON: send `content-type: application/json`")
                                .into()
                        }
                        other => bad(&other).into(),
                    }
                }),
        )
        .app_data(web::PayloadConfig::default().limit(limit.as_usize()))
        .app_data(
            web::PathConfig::default()
                .error_handler(move |error, _| bad(&path_text(&error)).into()),
        )
        .app_data(web::QueryConfig::default().error_handler(move |error, _| bad(&error).into()));
}

/// The useful part of a path error: the framework puts its own words before ours.
fn path_text(error: &actix_web::error::PathError) -> String {
    error
        .to_string()
        .trim_start_matches("Path deserialize error: ")
        .to_owned()
}

/// The response for every unknown path.
pub(crate) async fn nothing_here(
    request: actix_web::HttpRequest,
) -> Result<HttpResponse, ApiError> {
    Err(ApiError(Error::NotFound {
        what: format!("{} {}", request.method(), request.path()),
        hint: "/api/openapi.json lists what does",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[test]
    fn internal_causes_stay_inside() {
        let error = ApiError(StoreError::corrupt("users.password_hash", "s3cret").into());
        let response = error.error_response();
        let extensions = response.extensions();
        let failure = extensions.get::<Failure>().expect("kept for the log");
        assert_eq!(response.status(), 500);
        assert!(!failure.problem.detail.contains("s3cret") && failure.causes.contains("s3cret"));
    }

    #[test]
    fn callers_are_told_when_to_come_again() {
        let error = ApiError(Error::TooMany {
            what: "too many logins",
            after: Duration::from_millis(1200),
        });
        let response = error.error_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers().get("retry-after").expect("header"), "2");
        let error = ApiError(Error::Unauthenticated("no"));
        assert_eq!(
            error
                .error_response()
                .headers()
                .get("www-authenticate")
                .expect("header"),
            "Bearer"
        );
    }

    #[test]
    fn every_code_has_a_status() {
        for code in ErrorCode::ALL {
            assert!(
                StatusCode::from_u16(code.http_status())
                    .is_ok_and(|s| s.is_client_error() || s.is_server_error()),
                "{code}"
            );
        }
    }
}
