//! Values of secrets: which ones a version has, how they are stored, and how they are sent to nodes.
//!
//! In the store they are in envelopes ([`crate::vault`]), under the function and not under one of its versions. They are sealed for nodes under
//! the network key, each for exactly one function and name, only when a message is about to be sent or a snapshot is read ([`fill`]): neither the
//! outbox nor a row of a version contains any.

pub mod manage;
pub mod migrate;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::manifest::{Manifest, ManifestError};
use fdn_core::message::{AppDesired, FunctionSpec, Sealed};
use fdn_core::{AppName, FunctionName, Revision, SecretName, TenantId, Timestamp};
use fdn_service::ServiceError;
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tracing::error;

use super::actor::Actor;
use super::policy::audit;
use crate::Error;
use crate::error::chain;
use crate::reconcile::desired::announce_to_nodes;
use crate::state::State;
use crate::store::app::{AppRow, app_get, app_list, app_upsert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::secret::{SecretRow, secret_list, secret_upsert};
use crate::store::version::VersionRow;

/// The context that a value is sealed for on its way to nodes.
#[must_use]
pub fn context(function: &FunctionName, name: &SecretName) -> String {
    format!("{function}/{name}")
}

/// All values of a function's secrets, including those in the row of `version` that were never moved into the vault.
///
/// # Errors
/// When one cannot be decrypted or the store fails.
pub(super) async fn current(
    state: &State,
    connection: &mut AnyConnection,
    version: &VersionRow,
) -> Result<BTreeMap<SecretName, Secret>, Error> {
    let mut values = BTreeMap::new();
    for (name, sealed) in &version.secrets {
        let value = state.key.open(&context(&version.function, name), sealed)?;
        values.insert(name.clone(), Secret::new(value));
    }
    for row in secret_list(connection, version.tenant, &version.function).await? {
        values.insert(row.name.clone(), state.vault.open_value(&row)?);
    }
    Ok(values)
}

/// Checks that a function still has the secrets that its next version takes over: all but the `fresh` ones, which are stored with the version. They
/// were read before the version was validated, and could be removed meanwhile, since no stored version named them.
///
/// # Errors
/// When some were removed, or the store fails.
pub(super) async fn check_kept(
    connection: &mut AnyConnection,
    (tenant, app): (TenantId, &AppName),
    secrets: &BTreeMap<SecretName, Secret>,
    fresh: &BTreeSet<SecretName>,
) -> Result<(), Error> {
    let rows = secret_list(connection, tenant, &app.clone().into()).await?;
    let gone: Vec<&str> = secrets
        .keys()
        .filter(|name| !fresh.contains(*name))
        .filter(|name| !rows.iter().any(|row| row.name == **name))
        .map(SecretName::as_str)
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let gone = gone.join(", ");
    Err(Error::Conflict(format!(
        "secrets of app {app} were removed while the version was checked: {gone}; deploy again, and send values for them"
    )))
}

/// Stores values of a function's secrets.
///
/// # Errors
/// When the function does not exist or the store fails.
pub(super) async fn write(
    state: &State,
    connection: &mut AnyConnection,
    (tenant, function): (TenantId, &FunctionName),
    values: &BTreeMap<SecretName, Secret>,
    (actor, revision, now): (&Actor, Revision, Timestamp),
) -> Result<(), Error> {
    if values.is_empty() {
        return Ok(());
    }
    let key = state.vault.key_of(&mut *connection, tenant, now).await?;
    for (name, value) in values {
        let row = SecretRow {
            function: function.clone(),
            name: name.clone(),
            sealed: state.vault.seal(&key, (function, name), value)?,
            key: key.clone(),
            revision,
            updated_at: now,
            updated_by: actor.to_string(),
        };
        secret_upsert(&mut *connection, tenant, &row).await?;
    }
    Ok(())
}

/// Stores the values that come with a new version of an app's function: those of the `fresh` secrets. They are also sent to everything else that
/// runs the function. Each that was `sent` and is another than before leaves an entry in the audit log, as after [`manage::set`]; the others were set
/// long ago, and are only moved.
///
/// # Errors
/// When the app would have too many secrets, a present value cannot be decrypted, or the store fails.
pub(super) async fn write_fresh(
    state: &State,
    connection: &mut AnyConnection,
    (tenant, app): (TenantId, &AppName),
    (secrets, fresh, sent): (
        &BTreeMap<SecretName, Secret>,
        &BTreeSet<SecretName>,
        &BTreeSet<SecretName>,
    ),
    by: (&Actor, Revision, Timestamp),
) -> Result<(), Error> {
    let mut values = secrets.clone();
    values.retain(|name, _| fresh.contains(name));
    if values.is_empty() {
        return Ok(());
    }
    let function: FunctionName = app.clone().into();
    let rows = secret_list(&mut *connection, tenant, &function).await?;
    let old = |name: &SecretName| rows.iter().find(|row| row.name == *name);
    let is_new = |name: &SecretName| sent.contains(name) && old(name).is_none();
    let new = values.keys().filter(|name| is_new(name)).count();
    check_room(state, app, rows.len(), new)?;
    for (name, value) in &values {
        if !sent.contains(name) {
            continue;
        }
        let old = old(name);
        if let Some(old) = old
            && state.vault.open_value(old)? == *value
        {
            continue;
        }
        let entry = set_entry((tenant, app), (name, old), by);
        audit_insert(&mut *connection, &entry).await?;
    }
    let of = (tenant, &function);
    write(state, &mut *connection, of, &values, by).await?;
    let (_, revision, now) = by;
    push_users(connection, of, Some(app), (revision, now)).await
}

/// The audit log's entry for a value that was set.
fn set_entry(
    (tenant, app): (TenantId, &AppName),
    (name, old): (&SecretName, Option<&SecretRow>),
    (actor, revision, now): (&Actor, Revision, Timestamp),
) -> AuditEntry {
    AuditEntry {
        before: old.and_then(|row| shown(name, row.revision)),
        after: shown(name, revision),
        ..audit(actor, tenant, "secret.set", app, now)
    }
}

/// The audit log's record of a secret: its name and revision, never the value.
fn shown(name: &SecretName, revision: Revision) -> Option<String> {
    Some(serde_json::json!({ "secret": name, "revision": revision }).to_string())
}

/// Announces the desired state anew of every app that runs a function, except `except`.
///
/// # Errors
/// When the store fails.
pub(super) async fn push_users(
    connection: &mut AnyConnection,
    (tenant, function): (TenantId, &FunctionName),
    except: Option<&AppName>,
    (revision, now): (Revision, Timestamp),
) -> Result<(), Error> {
    for app in app_list(&mut *connection).await? {
        let runs = app.tenant == tenant
            && app
                .workflow
                .stages()
                .iter()
                .any(|stage| stage.function == *function);
        if runs && Some(&app.name) != except {
            let row = AppRow { revision, ..app };
            app_upsert(&mut *connection, &row).await?;
            announce_to_nodes(&mut *connection, &row, now).await?;
        }
    }
    Ok(())
}

/// Adds the values, sealed for nodes, to the desired state of an app. A value that cannot be decrypted because its row was changed is left out
/// and logged as an error: nodes report it as missing, and other apps are not affected.
///
/// # Errors
/// When a master key is missing or the store fails: the message waits until it can be completed.
pub async fn fill(
    state: &State,
    connection: &mut AnyConnection,
    desired: &mut AppDesired,
) -> Result<(), Error> {
    let Some(spec) = &mut desired.spec else {
        return Ok(());
    };
    let names_some = |function: &FunctionSpec| !function.manifest.secrets.is_empty();
    if !spec.functions.iter().any(names_some) {
        return Ok(());
    }
    let Some(app) = app_get(&mut *connection, &desired.app).await? else {
        // The app was deleted; the message that says so comes next.
        return Ok(());
    };
    for function in &mut spec.functions {
        if function.manifest.secrets.is_empty() {
            continue;
        }
        for row in secret_list(&mut *connection, app.tenant, &function.function).await? {
            if !function.manifest.secrets.contains(&row.name) {
                continue;
            }
            match sealed_for_nodes(state, &row) {
                Ok(sealed) => {
                    function.secrets.insert(row.name, sealed);
                }
                Err(failure @ Error::Service(ServiceError::Sealed)) => {
                    state.metrics.apps.secrets_unreadable.inc();
                    error!(app = %desired.app, secret = %row.name, error = chain(&failure), "a secret cannot be opened");
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(())
}

fn sealed_for_nodes(state: &State, row: &SecretRow) -> Result<Sealed, Error> {
    let value = state.vault.open_value(row)?;
    let context = context(&row.function, &row.name);
    Ok(state.key.seal(&context, value.expose())?)
}

/// Rejects a value that an environment variable cannot hold, without quoting it.
///
/// # Errors
/// When the value contains a NUL character.
pub(super) fn check(name: &SecretName, value: &Secret) -> Result<(), ManifestError> {
    if value.expose().contains('\0') {
        return Err(ManifestError(format!(
            "the secret {name} must be free of NUL characters"
        )));
    }
    Ok(())
}

/// Checks that a value that somebody sent may be set.
fn check_usable(state: &State, name: &SecretName, value: &Secret) -> Result<(), Error> {
    check(name, value)?;
    if value.expose().len() as u64 > state.settings.secrets.value_limit.as_bytes() {
        return Err(Error::Secret(
            "the value is larger than secrets.value_limit allows",
        ));
    }
    Ok(())
}

/// Checks that an app that has `present` secrets may have `new` ones besides.
fn check_room(state: &State, app: &AppName, present: usize, new: usize) -> Result<(), Error> {
    let most = state.settings.secrets.per_app;
    if new > 0 && present.saturating_add(new) > most {
        return Err(Error::Conflict(format!(
            "app {app} may have {most} secrets and has {present}, {new} more are not allowed; remove some: fdn secret remove {app} NAME"
        )));
    }
    Ok(())
}

/// Checks the values that came with an upload, before anything is compiled or stored. Their number is checked again when they are stored
/// ([`write_fresh`]).
///
/// # Errors
/// When a value is not allowed, or the app would have too many secrets.
pub(super) fn check_sent(
    state: &State,
    app: &AppName,
    sent: &BTreeMap<SecretName, Secret>,
    current: Option<&BTreeMap<SecretName, Secret>>,
) -> Result<(), Error> {
    for (name, value) in sent {
        check_usable(state, name, value)?;
    }
    let is_new = |name: &SecretName| current.is_none_or(|values| !values.contains_key(name));
    let new = sent.keys().filter(|name| is_new(name)).count();
    check_room(state, app, current.map_or(0, BTreeMap::len), new)
}

/// The values of the manifest's secrets: those that were sent, else the current ones.
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
        check(name, &value)?;
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
