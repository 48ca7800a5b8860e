//! Setting, listing and removing the secrets of an app without a deploy. A new value makes a new revision of every app that runs the function:
//! nodes use it for the next call and replace instances that hold the old one.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::app::SecretInfo;
use fdn_core::{AppName, FunctionName, Revision, SecretName, TenantId, Timestamp};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tracing::info;

use super::{check_room, check_usable, push_users, set_entry, shown, write};
use crate::Error;
use crate::app::actor::Actor;
use crate::app::policy::{audit, existing};
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::{revision_lock, revision_next};
use crate::store::secret::{SecretRow, secret_delete, secret_list};
use crate::store::version::{version_get, version_list};

/// The secrets of an app, by name.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn list(
    state: &State,
    tenant: TenantId,
    app: &AppName,
) -> Result<Vec<SecretInfo>, Error> {
    let mut connection = state.store.read().await?;
    let function = function_of(&mut connection, tenant, app).await?;
    let used = used(&mut connection, tenant, app).await?;
    let rows = secret_list(&mut connection, tenant, &function).await?;
    Ok(rows.into_iter().map(|row| to_info(row, &used)).collect())
}

fn to_info(row: SecretRow, used: &BTreeSet<SecretName>) -> SecretInfo {
    SecretInfo {
        used: used.contains(&row.name),
        name: row.name,
        revision: row.revision,
        updated_at: row.updated_at,
        updated_by: row.updated_by,
        unchanged: None,
    }
}

/// The function of an app. A workflow has none; its stages' functions have secrets.
async fn function_of(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<FunctionName, Error> {
    let row = existing(connection, tenant, app).await?;
    if row.definition.is_some() {
        return Err(Error::Conflict(format!(
            "app {app} is a workflow, which has no secrets; set those of the functions that it runs"
        )));
    }
    Ok(app.clone().into())
}

/// The secrets that the current version names.
async fn used(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<BTreeSet<SecretName>, Error> {
    let row = existing(connection, tenant, app).await?;
    let version = version_get(connection, tenant, &app.clone().into(), row.version).await?;
    Ok(version
        .map(|v| v.manifest.secrets.into_iter().collect())
        .unwrap_or_default())
}

/// What [`set`] would do, without doing it: whether the secret has this value already. [`set`] reveals the same, so the caller needs the same
/// right.
///
/// # Errors
/// As [`set`], except for the limit on the number of secrets.
pub async fn dry_run(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    (app, name): (&AppName, &SecretName),
    value: &Secret,
) -> Result<SecretInfo, Error> {
    check_usable(state, name, value)?;
    let mut connection = state.store.read().await?;
    let function = function_of(&mut connection, tenant, app).await?;
    let used = used(&mut connection, tenant, app).await?;
    let rows = secret_list(&mut connection, tenant, &function).await?;
    let old = rows.into_iter().find(|row| row.name == *name);
    let Some(old) = old else {
        return Ok(SecretInfo {
            used: used.contains(name),
            name: name.clone(),
            revision: Revision::default(),
            updated_at: fdn_service::now(),
            updated_by: actor.to_string(),
            unchanged: Some(false),
        });
    };
    let same = state.vault.open_value(&old)? == *value;
    // Logged, since many comparisons with different values are attempts to guess it.
    info!(%app, secret = %name, %actor, same, "a value was compared with a secret's");
    Ok(SecretInfo {
        unchanged: Some(same),
        ..to_info(old, &used)
    })
}

/// Sets a secret. Setting the same value again changes nothing.
///
/// # Errors
/// When the value is not allowed, the app has too many secrets, there is no such app, or the store fails.
pub async fn set(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    (app, name): (&AppName, &SecretName),
    value: &Secret,
) -> Result<SecretInfo, Error> {
    check_usable(state, name, value)?;
    let now = fdn_service::now();
    let values = BTreeMap::from([(name.clone(), value.clone())]);
    let _alone = state.changes.lock().await;
    let changed: bool = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let function = function_of(&mut tx, tenant, app).await?;
        let rows = secret_list(&mut tx, tenant, &function).await?;
        let old = rows.iter().find(|row| row.name == *name);
        if let Some(old) = old && state.vault.open_value(old)? == *value {
            return Ok(false);
        }
        check_room(state, app, rows.len(), usize::from(old.is_none()))?;
        let (of, by) = ((tenant, &function), (actor, revision, now));
        write(state, &mut tx, of, &values, by).await?;
        push_users(&mut tx, of, None, (revision, now)).await?;
        audit_insert(&mut tx, &set_entry((tenant, app), (name, old), by)).await?;
        Ok::<_, Error>(true)
    })?;
    if changed {
        state.outbox_wake.notify_one();
        info!(%app, secret = %name, %actor, "a secret was set");
    }
    let all = list(state, tenant, app).await?;
    let set = all.into_iter().find(|info| info.name == *name);
    let set = set.ok_or_else(|| no_secret(app, name))?;
    Ok(SecretInfo {
        unchanged: Some(!changed),
        ..set
    })
}

fn no_secret(app: &AppName, name: &SecretName) -> Error {
    Error::NotFound {
        what: format!("secret {name} of app {app}"),
        hint: "`fdn secret list APP` shows what there is",
    }
}

/// Removes a secret that no version names.
///
/// # Errors
/// When a version names it, there is no such app or secret, or the store fails.
pub async fn remove(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    (app, name): (&AppName, &SecretName),
    now: Timestamp,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let done: Result<(), Error> = in_transaction!(state.store, tx => {
        // No other controller stores a version that names it between the check and the deletion.
        revision_lock(&mut tx).await?;
        let function = function_of(&mut tx, tenant, app).await?;
        let rows = secret_list(&mut tx, tenant, &function).await?;
        let old = rows.iter().find(|row| row.name == *name).ok_or_else(|| no_secret(app, name))?;
        let versions = version_list(&mut tx, tenant, &function).await?;
        if let Some(user) = versions.iter().find(|v| v.manifest.secrets.contains(name)) {
            return Err(Error::Conflict(format!(
                "version {} of app {app} names the secret {name} and could not start without; set another value instead", user.number
            )));
        }
        secret_delete(&mut tx, tenant, &function, name).await?;
        let entry = AuditEntry {
            before: shown(name, old.revision),
            ..audit(actor, tenant, "secret.remove", app, now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok(())
    });
    done?;
    info!(%app, secret = %name, %actor, "a secret was removed");
    Ok(())
}
