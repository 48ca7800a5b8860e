//! Requests to the controllers, with limits on time and on the size of answers.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fdn_core::Problem;
use fdn_core::feed::Report;
use fdn_core::message::Message;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Body, ControllerLink, LinkError};

/// The longest answer that is read, in bytes; does not apply to artifacts.
const ANSWER_MAX: usize = 4 << 20;
/// How many bytes of an error answer are quoted if it is not a problem document.
const QUOTED_MAX: usize = 200;

/// Reads the body of an answer, of at most `limit` bytes.
///
/// # Errors
/// When it is longer, or the connection breaks.
pub async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, LinkError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| LinkError::Broken(e.to_string()))?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if bytes.len() + piece.len() > limit {
            return Err(LinkError::TooLong(limit));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

async fn post<Q: Serialize + Sync>(
    controllers: &dyn ControllerLink,
    path: &str,
    body: &Q,
) -> Result<Response<Body>, LinkError> {
    let invalid = |e: &dyn std::fmt::Display| LinkError::InvalidAnswer(e.to_string());
    let bytes = serde_json::to_vec(body).map_err(|e| invalid(&e))?;
    let mut request = Request::new(Bytes::from(bytes));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|e| invalid(&e))?;
    let kind = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    controllers.send(request).await
}

/// The error that an unsuccessful answer describes.
pub(crate) async fn refusal(answer: Response<Body>) -> LinkError {
    let status = answer.status().as_u16();
    let bytes = read_body(answer.into_body(), ANSWER_MAX).await;
    let bytes = bytes.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&bytes).ok();
    let detail = match &problem {
        Some(problem) => format!("{}: {}", problem.code.as_str(), problem.detail),
        None => {
            let quoted = &bytes[..bytes.len().min(QUOTED_MAX)];
            String::from_utf8_lossy(quoted).into_owned()
        }
    };
    LinkError::Status {
        status,
        detail,
        problem: problem.map(Box::new),
    }
}

/// Sends a JSON body and returns the JSON answer; the whole exchange may take `limit`.
///
/// # Errors
/// When there is no answer, or it is a refusal.
pub async fn post_json<Q: Serialize + Sync, A: DeserializeOwned>(
    controllers: &dyn ControllerLink,
    path: &str,
    body: &Q,
    limit: Duration,
) -> Result<A, LinkError> {
    let exchange = async {
        let answer = post(controllers, path, body).await?;
        if !answer.status().is_success() {
            return Err(refusal(answer).await);
        }
        let bytes = read_body(answer.into_body(), ANSWER_MAX).await?;
        serde_json::from_slice(&bytes).map_err(|e| LinkError::InvalidAnswer(e.to_string()))
    };
    let answered = tokio::time::timeout(limit, exchange).await;
    answered.unwrap_or(Err(LinkError::Timeout(limit)))
}

/// Sends one message as a report; the exchange may take `limit`.
///
/// # Errors
/// When the controller did not accept it.
pub async fn report(
    controllers: &dyn ControllerLink,
    message: Message,
    limit: Duration,
) -> Result<(), LinkError> {
    let report = Report {
        messages: vec![message],
    };
    let sent = async {
        let answer = post(controllers, "/edge/v1/report", &report).await?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(refusal(answer).await)
        }
    };
    let sent = tokio::time::timeout(limit, sent).await;
    sent.unwrap_or(Err(LinkError::Timeout(limit)))
}
