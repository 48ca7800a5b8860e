//! Reading an upload part by part (RFC 7578) as it arrives, within bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_multipart::{Field, Multipart, MultipartError};
use fdn_core::SecretName;
use fdn_service::secret::Secret;
use futures::{Stream, StreamExt};

use crate::Error;
use crate::app::deploy::Upload;
use crate::state::State;
use crate::upload::{Component, UploadError};

/// The most octets read after an upload was refused, so that the client gets to read why.
const DRAIN: u64 = 256 << 20;
/// For how long.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// What has arrived.
#[derive(Default)]
struct Parts {
    manifest: Option<String>,
    secrets: Option<BTreeMap<SecretName, Secret>>,
    component: Option<Component>,
}

/// Reads all parts.
///
/// # Errors
/// When a part is unknown, missing, doubled or too large, or the body breaks off. What had arrived is gone then.
pub(crate) async fn receive(state: &State, mut body: Multipart) -> Result<Upload, Error> {
    match parts(state, &mut body).await {
        Ok(upload) => Ok(upload),
        Err(error) => {
            // An answer to a client that is still sending is lost when the connection is closed under it.
            drop(tokio::time::timeout(DRAIN_TIME, drain(&mut body)).await);
            Err(error)
        }
    }
}

async fn parts(state: &State, body: &mut Multipart) -> Result<Upload, Error> {
    let idle = state.settings.uploads.idle_timeout.as_duration();
    let limit = state.settings.uploads.body_limit;
    let mut parts = Parts::default();
    while let Some(mut field) = next(body, idle).await? {
        let name = field.name().unwrap_or_default().to_owned();
        let twice = match name.as_str() {
            "manifest" => {
                let text = text(&mut field, "manifest", limit, idle).await?;
                parts.manifest.replace(text).is_some()
            }
            "secrets" => {
                let text = text(&mut field, "secrets", limit, idle).await?;
                parts.secrets.replace(secrets(&text)?).is_some()
            }
            "component" => {
                let component = component(state, &mut field, idle).await?;
                parts.component.replace(component).is_some()
            }
            _ => {
                return Err(Error::BadRequest(format!("the part {name:?} is not known; send manifest, secrets and component")));
            }
        };
        if twice {
            return Err(Error::BadRequest(format!("the part {name} stands twice; send it once")));
        }
    }
    let component = parts
        .component
        .ok_or_else(|| Error::BadRequest("the part component is missing; send the WebAssembly component in it".to_owned()))?;
    Ok(Upload { manifest: parts.manifest, secrets: parts.secrets.unwrap_or_default(), component })
}

/// The next item of a stream that must not stand still.
async fn next<T>(
    stream: &mut (impl Stream<Item = Result<T, MultipartError>> + Unpin),
    idle: Duration,
) -> Result<Option<T>, Error> {
    match tokio::time::timeout(idle, stream.next()).await {
        Err(_) => Err(UploadError::Idle(idle).into()),
        Ok(None) => Ok(None),
        Ok(Some(Ok(item))) => Ok(Some(item)),
        Ok(Some(Err(error))) => Err(refusal(error)),
    }
}

fn refusal(error: MultipartError) -> Error {
    match error {
        MultipartError::Incomplete | MultipartError::Payload(_) => UploadError::Incomplete.into(),
        MultipartError::ContentTypeMissing
        | MultipartError::ContentTypeParse
        | MultipartError::ContentTypeIncompatible
        | MultipartError::BoundaryMissing => {
            Error::BadRequest("the upload must be multipart/form-data with a boundary".to_owned())
        }
        other => Error::BadRequest(format!("the upload cannot be understood: {other}")),
    }
}

async fn text(field: &mut Field, name: &str, limit: fdn_core::ByteSize, idle: Duration) -> Result<String, Error> {
    let mut octets = Vec::new();
    while let Some(piece) = next(field, idle).await? {
        if octets.len() + piece.len() > limit.as_usize() {
            return Err(Error::BodyTooLarge(limit));
        }
        octets.extend_from_slice(&piece);
    }
    String::from_utf8(octets).map_err(|_| Error::BadRequest(format!("the part {name} must be UTF-8 text")))
}

fn secrets(text: &str) -> Result<BTreeMap<SecretName, Secret>, Error> {
    // The parser's message would quote values; its place is enough.
    serde_json::from_str(text).map_err(|e| {
        Error::BadRequest(format!(
            "the part secrets must be a JSON object of environment variable names and texts (line {}, column {})",
            e.line(),
            e.column()
        ))
    })
}

async fn component(state: &State, field: &mut Field, idle: Duration) -> Result<Component, Error> {
    let mut spool = state.uploads.spool()?;
    while let Some(piece) = next(field, idle).await? {
        spool.write(&piece).await?;
    }
    Ok(spool.finish().await?)
}

/// Reads the rest of a body and drops it.
async fn drain(body: &mut Multipart) {
    let mut left = DRAIN;
    while let Some(Ok(mut field)) = body.next().await {
        while let Some(Ok(piece)) = field.next().await {
            left = left.saturating_sub(piece.len() as u64);
            if left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_quoted() {
        assert_eq!(secrets(r#"{"KEY":"value"}"#).expect("valid").len(), 1);
        for bad in [r#"{"KEY": 5}"#, r#"["hunter2"]"#, r#"{"1BAD":"hunter2"}"#, r#"{"KEY":"hunter2""#] {
            let error = secrets(bad).expect_err(bad).to_string();
            assert!(error.contains("JSON object") && !error.contains("hunter2"), "{error}");
        }
    }
}
