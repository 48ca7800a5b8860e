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

use crate::{Body, Centre, LinkError};

/// The longest answer that is read, in bytes; does not apply to artifacts.
const ANSWER_MAX: usize = 4 << 20;
/// How many bytes of an error answer are quoted if it is not a problem document.
const SAID_MAX: usize = 200;

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
    centre: &dyn Centre,
    path: &str,
    body: &Q,
) -> Result<Response<Body>, LinkError> {
    let foreign = |e: &dyn std::fmt::Display| LinkError::Foreign(e.to_string());
    let bytes = serde_json::to_vec(body).map_err(|e| foreign(&e))?;
    let mut request = Request::new(Bytes::from(bytes));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|e| foreign(&e))?;
    let kind = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    centre.ask(request).await
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
            let said = &bytes[..bytes.len().min(SAID_MAX)];
            String::from_utf8_lossy(said).into_owned()
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
pub async fn ask_json<Q: Serialize + Sync, A: DeserializeOwned>(
    centre: &dyn Centre,
    path: &str,
    body: &Q,
    limit: Duration,
) -> Result<A, LinkError> {
    let asked = async {
        let answer = post(centre, path, body).await?;
        if !answer.status().is_success() {
            return Err(refusal(answer).await);
        }
        let bytes = read_body(answer.into_body(), ANSWER_MAX).await?;
        serde_json::from_slice(&bytes).map_err(|e| LinkError::Foreign(e.to_string()))
    };
    let answered = tokio::time::timeout(limit, asked).await;
    answered.unwrap_or(Err(LinkError::Slow(limit)))
}

/// Sends one message as a report; the exchange may take `limit`.
///
/// # Errors
/// When the controller did not accept it.
pub async fn report(
    centre: &dyn Centre,
    message: Message,
    limit: Duration,
) -> Result<(), LinkError> {
    let report = Report {
        messages: vec![message],
    };
    let told = async {
        let answer = post(centre, "/edge/v1/report", &report).await?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(refusal(answer).await)
        }
    };
    let told = tokio::time::timeout(limit, told).await;
    told.unwrap_or(Err(LinkError::Slow(limit)))
}
