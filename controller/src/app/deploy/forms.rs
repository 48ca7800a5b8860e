//! The forms of an upload other than the first. Each has an artifact of its own, validated like any other; nothing is stored unless all are
//! accepted.

use std::collections::BTreeMap;

use fdn_core::api::ValidationStep;
use fdn_core::form::{FormManifest, FormSpec};
use fdn_core::manifest::{Manifest, ManifestError};
use fdn_core::{FormName, SecretName, TenantId};
use fdn_service::secret::Secret;

use super::{signing, validate_artifact};
use crate::Error;
use crate::state::State;
use crate::upload::signature::{Signature, Signer};
use crate::upload::{Compiled, Component};

/// The artifact of a form as it was sent.
pub struct FormUpload {
    /// The component or image.
    pub component: Component,
    /// The signature, if the artifact has one.
    pub signature: Option<Signature>,
}

/// A form that is to become part of a version.
pub(super) struct FormCandidate {
    pub(super) manifest: FormManifest,
    pub(super) component: Component,
    signature: Option<Signature>,
    /// The machine code that the component was validated with, if nodes are to get it.
    pub(super) compiled: Option<Compiled>,
    pub(super) signer: Option<Signer>,
}

impl FormCandidate {
    /// The form as it is stored.
    pub(super) fn spec(&self) -> FormSpec {
        FormSpec {
            manifest: self.manifest.clone(),
            digest: self.component.digest(),
            size: self.component.size(),
        }
    }
}

/// Matches the forms of the manifest with the artifacts that were sent.
///
/// # Errors
/// When a form has no artifact, or an artifact no form.
pub(super) fn candidates(
    forms: Vec<FormManifest>,
    mut sent: BTreeMap<FormName, FormUpload>,
) -> Result<Vec<FormCandidate>, ManifestError> {
    let mut candidates = Vec::with_capacity(forms.len());
    for manifest in forms {
        let name = &manifest.name;
        let Some(upload) = sent.remove(name) else {
            return Err(ManifestError(format!(
                "the form {name} has no artifact; send one with `fdn deploy --form {name}=FILE`"
            )));
        };
        candidates.push(FormCandidate {
            manifest,
            component: upload.component,
            signature: upload.signature,
            compiled: None,
            signer: None,
        });
    }
    match sent.keys().next() {
        Some(name) => Err(ManifestError(format!(
            "an artifact was sent for the form {name}, which no [[forms]] names; add it there"
        ))),
        None => Ok(candidates),
    }
}

/// Runs every check of every form. Returns the results, each prefixed with the form's name.
///
/// # Errors
/// With the first check that fails.
pub(super) async fn validate(
    state: &State,
    tenant: TenantId,
    function: &Manifest,
    secrets: &BTreeMap<SecretName, Secret>,
    forms: &mut [FormCandidate],
) -> Result<Vec<ValidationStep>, Error> {
    let mut steps = Vec::new();
    for form in forms {
        let manifest = form.manifest.over(function);
        let (signer, first) = signing::check(
            state,
            tenant,
            &manifest,
            &form.component,
            form.signature.take(),
        )
        .await?;
        let validated = validate_artifact(state, &form.component, &manifest, secrets).await?;
        let name = &form.manifest.name;
        let found = std::iter::once(first).chain(validated.steps);
        steps.extend(found.map(|found| ValidationStep {
            step: format!("{name}: {}", found.step),
            ..found
        }));
        form.signer = signer;
        form.compiled = validated.compiled;
    }
    Ok(steps)
}
