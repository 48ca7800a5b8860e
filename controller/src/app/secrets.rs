//! Values of secrets: which ones a version has, and how they are kept. Stored and sent they are sealed for exactly one app and name.

use std::collections::BTreeMap;

use fdn_core::manifest::{Manifest, ManifestError};
use fdn_core::message::Sealed;
use fdn_core::{AppName, SecretName};
use fdn_service::seal::NetworkKey;
use fdn_service::secret::Secret;

use crate::Error;

/// What a secret is sealed for.
fn context(app: &AppName, name: &SecretName) -> String {
    format!("{app}/{name}")
}

/// Seals values for storing and sending.
///
/// # Errors
/// When the operating system gives no randomness.
pub(super) fn seal(
    key: &NetworkKey,
    app: &AppName,
    values: &BTreeMap<SecretName, Secret>,
) -> Result<BTreeMap<SecretName, Sealed>, Error> {
    let sealed = values
        .iter()
        .map(|(name, value)| Ok((name.clone(), key.seal(&context(app, name), value.expose())?)));
    sealed.collect()
}

/// Opens what was sealed for an app.
///
/// # Errors
/// When it was sealed with another key or for another app.
pub(super) fn open(
    key: &NetworkKey,
    app: &AppName,
    sealed: &BTreeMap<SecretName, Sealed>,
) -> Result<BTreeMap<SecretName, Secret>, Error> {
    let values = sealed.iter().map(|(name, sealed)| {
        Ok((
            name.clone(),
            Secret::new(key.open(&context(app, name), sealed)?),
        ))
    });
    values.collect()
}

/// The values of the manifest's secrets: those that were sent, else those that are current.
pub(super) fn values(
    manifest: &Manifest,
    mut sent: BTreeMap<SecretName, Secret>,
    current: Option<&BTreeMap<SecretName, Secret>>,
) -> Result<BTreeMap<SecretName, Secret>, ManifestError> {
    let mut values = BTreeMap::new();
    for name in &manifest.secrets {
        let kept = || current.and_then(|current| current.get(name).cloned());
        let value = sent.remove(name).or_else(kept).ok_or_else(|| {
            ManifestError(format!(
                "the secret {name} has no value; send one with `fdn deploy --secret {name}=-`"
            ))
        })?;
        if value.expose().contains('\0') {
            return Err(ManifestError(format!(
                "the secret {name} must be free of NUL characters"
            )));
        }
        values.insert(name.clone(), value);
    }
    match sent.keys().next() {
        Some(name) => Err(ManifestError(format!(
            "a value was sent for the secret {name}, which `secrets` does not name; add it there"
        ))),
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(secrets: &[&str]) -> Manifest {
        Manifest {
            secrets: secrets.iter().map(|s| s.parse().expect("name")).collect(),
            ..Manifest::default()
        }
    }

    fn sent(pairs: &[(&str, &str)]) -> BTreeMap<SecretName, Secret> {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("name"), Secret::new(*value)))
            .collect()
    }

    #[test]
    fn every_secret_has_a_value_and_every_value_a_secret() {
        let given = values(&manifest(&["A"]), sent(&[("A", "1")]), None).expect("complete");
        assert_eq!(given, sent(&[("A", "1")]));
        let missing = values(&manifest(&["A", "B"]), sent(&[("A", "1")]), None)
            .expect_err("missing")
            .to_string();
        assert!(missing.contains("secret B has no value"), "{missing}");
        let foreign = values(&manifest(&[]), sent(&[("A", "1")]), None)
            .expect_err("foreign")
            .to_string();
        assert!(
            foreign.contains("secret A, which `secrets` does not name"),
            "{foreign}"
        );
        assert!(values(&manifest(&["A"]), sent(&[("A", "a\0b")]), None).is_err());
    }
}
