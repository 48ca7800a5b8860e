//! Reads an upload part by part (RFC 7578) as it arrives, within limits.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_multipart::{Field, Multipart, MultipartError};
use fdn_core::label::Labels;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::{ByteSize, FormName, SecretName, TenantId};
use fdn_service::secret::Secret;
use futures::{Stream, StreamExt};

use crate::Error;
use crate::app::deploy::{FormUpload, Upload};
use crate::state::State;
use crate::upload::signature::Signature;
use crate::upload::{Component, Spool, UploadError, UploadPlace};

/// The most bytes read after an upload was refused, so that the client can read why.
const DRAIN: u64 = 256 << 20;
/// The longest time for that.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// The parts that have arrived.
#[derive(Default)]
struct Parts {
    manifest: Option<String>,
    secrets: Option<BTreeMap<SecretName, Secret>>,
    labels: Option<Labels>,
    signature: Option<String>,
    signature_payload: Option<String>,
    component: Option<Component>,
    forms: BTreeMap<FormName, FormParts>,
}

/// The parts that have arrived of a further form.
#[derive(Default)]
struct FormParts {
    component: Option<Component>,
    signature: Option<String>,
    signature_payload: Option<String>,
}

/// Reads an upload.
struct Reader {
    body: Multipart,
    limit: ByteSize,
    /// Whether the body has ended, successfully or not: then it must not be read any further.
    over: bool,
}

/// Reads all parts of an upload for `tenant`.
///
/// # Errors
/// When there are too many uploads, or a part is unknown, missing, repeated or too large, or the body breaks off. What had arrived is deleted then.
pub(crate) async fn receive(
    state: &State,
    tenant: TenantId,
    body: Multipart,
) -> Result<Upload, Error> {
    let place = state.uploads.acquire_place(tenant)?;
    let mut reader = Reader {
        body,
        limit: state.settings.uploads.body_limit,
        over: false,
    };
    match reader.parts(state, place).await {
        Ok(upload) => Ok(upload),
        Err(error) => {
            // A response to a client that is still sending is lost if the connection is closed under it.
            drop(tokio::time::timeout(DRAIN_TIME, reader.drain()).await);
            Err(error)
        }
    }
}

/// The next item of a stream. Sets `over` if the stream fails, as it does when the client is too slow.
async fn next<T>(
    stream: &mut (impl Stream<Item = Result<T, MultipartError>> + Unpin),
    over: &mut bool,
) -> Result<Option<T>, Error> {
    let outcome = stream.next().await.transpose();
    *over |= outcome.is_err();
    outcome.map_err(refusal)
}

impl Reader {
    async fn parts(&mut self, state: &State, place: UploadPlace) -> Result<Upload, Error> {
        let mut parts = Parts::default();
        while let Some(mut field) = next(&mut self.body, &mut self.over).await? {
            let name = field.name().unwrap_or_default().to_owned();
            let twice = match name.as_str() {
                "manifest" => {
                    let text = self.text(&mut field, "manifest").await?;
                    parts.manifest.replace(text).is_some()
                }
                "secrets" => {
                    let text = self.text(&mut field, "secrets").await?;
                    parts.secrets.replace(secrets(&text)?).is_some()
                }
                "labels" => {
                    let text = self.text(&mut field, "labels").await?;
                    parts.labels.replace(labels(&text)?).is_some()
                }
                "signature" => {
                    let text = self.text(&mut field, "signature").await?;
                    parts.signature.replace(text).is_some()
                }
                "signature_payload" => {
                    let text = self.text(&mut field, "signature_payload").await?;
                    parts.signature_payload.replace(text).is_some()
                }
                "component" => {
                    let runtime = runtime(state, parts.manifest.as_deref(), None)?;
                    let spool = state.uploads.spool(runtime)?;
                    let component = self.component(&mut field, spool).await?;
                    parts.component.replace(component).is_some()
                }
                _ => self.form(state, &mut parts, &name, &mut field).await?,
            };
            if twice {
                return Err(Error::BadRequest(format!(
                    "the part {name} stands twice; send it once"
                )));
            }
        }
        self.over = true;
        let component = parts.component.ok_or_else(|| {
            Error::BadRequest(
                "the part component is missing; send the WebAssembly component or the image archive in it".to_owned(),
            )
        })?;
        Ok(Upload {
            manifest: parts.manifest,
            secrets: parts.secrets.unwrap_or_default(),
            labels: parts.labels,
            signature: signature(parts.signature, parts.signature_payload)?,
            component,
            forms: forms(parts.forms)?,
            place,
        })
    }

    /// Reads a part of a further form, such as `form.gpu`; returns whether the part had arrived before.
    async fn form(
        &mut self,
        state: &State,
        parts: &mut Parts,
        name: &str,
        field: &mut Field,
    ) -> Result<bool, Error> {
        let known = name.split_once('.').and_then(|(part, form)| {
            let is_one = ["form", "signature", "signature_payload"].contains(&part);
            Some((part, form.parse::<FormName>().ok()?)).filter(|_| is_one)
        });
        let Some((part, form)) = known else {
            return Err(Error::BadRequest(format!(
                "the part {name:?} is not known; send manifest, secrets, labels, signature, signature_payload and component, and of another form \
                 than the first form.NAME, signature.NAME and signature_payload.NAME"
            )));
        };
        let manifest = parts.manifest.as_deref();
        if parts.forms.len() >= state.settings.bounds.forms && !parts.forms.contains_key(&form) {
            let most = state.settings.bounds.forms;
            return Err(Error::BadRequest(format!(
                "forms: {most} at most, beside the first"
            )));
        }
        if part == "form" {
            let spool = state
                .uploads
                .spool(runtime(state, manifest, Some(&form))?)?;
            let component = self.component(field, spool).await?;
            let of = parts.forms.entry(form).or_default();
            return Ok(of.component.replace(component).is_some());
        }
        let text = self.text(field, name).await?;
        let of = parts.forms.entry(form).or_default();
        Ok(match part {
            "signature" => of.signature.replace(text).is_some(),
            _ => of.signature_payload.replace(text).is_some(),
        })
    }

    async fn text(&mut self, field: &mut Field, name: &str) -> Result<String, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = next(field, &mut self.over).await? {
            if bytes.len() + piece.len() > self.limit.as_usize() {
                return Err(Error::BodyTooLarge(self.limit));
            }
            bytes.extend_from_slice(&piece);
        }
        String::from_utf8(bytes)
            .map_err(|_| Error::BadRequest(format!("the part {name} must be UTF-8 text")))
    }

    async fn component(&mut self, field: &mut Field, mut spool: Spool) -> Result<Component, Error> {
        while let Some(piece) = next(field, &mut self.over).await? {
            spool.write(&piece).await?;
        }
        Ok(spool.finish().await?)
    }

    /// Reads the rest of a body and drops it.
    async fn drain(&mut self) {
        let mut left = DRAIN;
        while !self.over {
            let Some(Ok(mut field)) = self.body.next().await else {
                return;
            };
            while let Some(piece) = field.next().await {
                let Ok(piece) = piece else { return };
                left = left.saturating_sub(piece.len() as u64);
                if left == 0 {
                    return;
                }
            }
        }
    }
}

/// The runtime of the upload, from the manifest if that came before it; without one it is a component, whose limits are lower. For a further form
/// the manifest must have come.
fn runtime(
    state: &State,
    manifest: Option<&str>,
    form: Option<&FormName>,
) -> Result<RuntimeKind, Error> {
    let manifest = match manifest {
        Some(text) => Manifest::from_toml(text, &state.settings.bounds)?,
        None => Manifest::default(),
    };
    let Some(name) = form else {
        return Ok(manifest.runtime);
    };
    let known = manifest.forms.iter().find(|form| form.name == *name);
    known.map(|form| form.runtime).ok_or_else(|| {
        Error::BadRequest(format!(
            "the part form.{name} is of a form that no [[forms]] of the manifest names; send the part manifest before it"
        ))
    })
}

/// The further forms, each with its artifact.
fn forms(parts: BTreeMap<FormName, FormParts>) -> Result<BTreeMap<FormName, FormUpload>, Error> {
    let whole = parts.into_iter().map(|(name, parts)| {
        let component = parts.component.ok_or_else(|| {
            Error::BadRequest(format!(
                "a signature came for the form {name}, and no part form.{name}"
            ))
        })?;
        let signature = signature(parts.signature, parts.signature_payload)?;
        let upload = FormUpload {
            component,
            signature,
        };
        Ok((name, upload))
    });
    whole.collect()
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

fn secrets(text: &str) -> Result<BTreeMap<SecretName, Secret>, Error> {
    // The parser's message would quote values; the position is enough.
    serde_json::from_str(text).map_err(|e| {
        Error::BadRequest(format!(
            "the part secrets must be a JSON object of environment variable names and texts (line {}, column {})",
            e.line(),
            e.column()
        ))
    })
}

fn labels(text: &str) -> Result<Labels, Error> {
    serde_json::from_str(text).map_err(|e| {
        Error::BadRequest(format!(
            "the part labels must be a JSON object of labels: {e}"
        ))
    })
}

fn signature(text: Option<String>, payload: Option<String>) -> Result<Option<Signature>, Error> {
    match (text, payload) {
        (Some(text), payload) => Ok(Some(Signature {
            text,
            payload: payload.map(String::into_bytes),
        })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Error::BadRequest(
            "the part signature_payload came without the part signature".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_quoted() {
        assert_eq!(secrets(r#"{"KEY":"value"}"#).expect("valid").len(), 1);
        for bad in [
            r#"{"KEY": 5}"#,
            r#"["hunter2"]"#,
            r#"{"1BAD":"hunter2"}"#,
            r#"{"KEY":"hunter2""#,
        ] {
            let error = secrets(bad).expect_err(bad).to_string();
            assert!(
                error.contains("JSON object") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
