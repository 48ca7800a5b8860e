//! The exchange of a request for an answer: the one place at which transport failures become a [`CliError`].

use fdn_core::{Problem, Timestamp};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use crate::error::CliError;

/// The largest answer that is read, in bytes: the detail of an app with very many versions.
const ANSWER_MAX: usize = 64 << 20;

/// An answer, and the cursor of the next part.
pub(crate) async fn read_part<T: DeserializeOwned>(
    request: RequestBuilder,
) -> Result<(T, Option<String>), CliError> {
    let response = send(request).await?;
    let next = next_cursor(&response);
    Ok((body(response).await?, next))
}

/// The cursor of the next page of a list, from the header `link` (RFC 8288).
pub(super) fn next_cursor(response: &Response) -> Option<String> {
    let link = response.headers().get("link")?.to_str().ok()?;
    let target = link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?;
    let url = response.url().join(target).ok()?;
    url.query_pairs()
        .find(|(key, _)| key == "cursor")
        .map(|(_, cursor)| cursor.into_owned())
}

pub(crate) async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, CliError> {
    body(send(request).await?).await
}

/// Sends a request; fails unless the response has a success status.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, CliError> {
    let response = request.send().await.map_err(|e| connection_error(&e))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (url, status) = (without_query(response.url()), response.status());
    let text = collect(response).await?;
    if let Ok(problem) = serde_json::from_slice::<Problem>(&text) {
        return Err(CliError::Problem(Box::new(problem)));
    }
    // A proxy or load balancer in front of a controller that is down.
    if matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    ) {
        return Err(CliError::Unreachable {
            what: "the controller",
            place: url,
            reason: format!("status {status}"),
        });
    }
    Err(CliError::Foreign {
        url,
        status: status.as_u16(),
    })
}

pub(super) async fn body<T: DeserializeOwned>(response: Response) -> Result<T, CliError> {
    let url = without_query(response.url());
    let bytes = collect(response).await?;
    serde_json::from_slice(&bytes).map_err(|e| CliError::Answer {
        url,
        reason: e.to_string(),
    })
}

pub(crate) async fn collect(mut response: Response) -> Result<Vec<u8>, CliError> {
    let url = without_query(response.url());
    let mut all = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| connection_error(&e))? {
        if all.len() + chunk.len() > ANSWER_MAX {
            return Err(CliError::Answer {
                url,
                reason: format!("it is longer than {ANSWER_MAX} bytes"),
            });
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

pub(super) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// The error for a failed exchange.
#[must_use]
pub fn connection_error(error: &reqwest::Error) -> CliError {
    let place = error.url().map(origin).unwrap_or_default();
    if error.is_timeout() && !error.is_connect() {
        return CliError::Timeout(format!("the controller at {place} was silent for too long"));
    }
    let mut reason = root_cause(error);
    if reason.contains("UnknownIssuer") {
        reason.push_str("; if its authority is a private one, --ca-file names its certificate");
    }
    CliError::Unreachable {
        what: "the controller",
        place,
        reason,
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The innermost cause: "connection refused" rather than "error sending request".
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Reads the `Date` header (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn date_header(text: &str) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp(u64::try_from(since.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_header_is_read() {
        assert_eq!(
            date_header("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Timestamp(784_111_777_000))
        );
        assert_eq!(date_header("yesterday"), None);
        assert_eq!(date_header("Sun, 06 ovD 1994 08:49:37 GMT"), None);
    }
}
