//! Rollback of an app to an earlier version, and its deletion.

use std::sync::Arc;

use fdn_core::{AppName, FunctionName, TenantId, Timestamp, VersionNumber};
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::deploy::audit;
use super::precondition::Precondition;
use super::rollout::rolled_back;
use super::workflow::{check_unused, version_of};
use crate::Error;
use crate::reconcile::desired::{announce_deletion, announce_to_nodes};
use crate::state::State;
use crate::store::app::{AppRow, app_delete, app_get, app_upsert};
use crate::store::audit::audit_insert;
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::rollout::bad_version_list;
use crate::store::version::{function_delete, version_get};

/// The ETag of an app: it changes with every deploy and rollback, but not when the planner moves the app.
#[must_use]
pub fn app_tag(version: VersionNumber, deployed_at: Timestamp) -> String {
    format!("\"{version}-{}\"", deployed_at.get())
}

/// Makes an earlier version current for all calls, which ends a split between versions: version `to`, or else the one that was current before. If
/// that version is current already, nothing changes, not even a split.
///
/// # Errors
/// When there is no such app or version, no version is named and the one before broke its objective, or the store fails.
pub async fn rollback(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    to: Option<VersionNumber>,
    expected: &Precondition,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    let changed: Option<AppRow> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = app_get(&mut tx, app).await?.filter(|row| row.tenant == tenant);
        let old = old.ok_or_else(|| Error::no_app(app))?;
        expected.holds(&app_tag(old.version, old.deployed_at))?;
        let version = match to {
            Some(version) => version,
            None => version_before(&mut tx, &old).await?,
        };
        if version == old.version {
            return Ok(None);
        }
        let function = app.clone().into();
        if version_get(&mut tx, tenant, &function, version).await?.is_none() {
            return Err(Error::NotFound {
                what: format!("version {version} of app {app}"),
                hint: "`fdn describe` lists its versions",
            });
        }
        let (workflow, definition) = version_of(&mut tx, tenant, app, version).await?;
        let row = AppRow {
            workflow,
            definition,
            version,
            previous: Some(old.version),
            revision,
            deployed_at: now,
            ..old
        };
        app_upsert(&mut tx, &row).await?;
        // A rollback is meant for every call: end a split or staged rollout.
        rolled_back(&mut tx, tenant, app, version).await?;
        announce_to_nodes(&mut tx, &row, now).await?;
        audit_insert(&mut tx, &audit(actor, "rollback", &row, row.previous, Some(version), now)).await?;
        Ok(Some(row))
    })?;
    if let Some(row) = changed {
        state.outbox_wake.notify_one();
        state.planner_wake.notify_one();
        info!(%app, version = %row.version, revision = %row.revision, %actor, "rolled back");
    }
    Ok(())
}

/// The version that was current before the present one. After an automatic rollback that is the very version that broke its objective: nobody gets it
/// back without naming it, least of all somebody who wants to be safe and rolls back once more.
///
/// # Errors
/// When there is none, it broke its objective, or the store fails.
async fn version_before(
    connection: &mut AnyConnection,
    row: &AppRow,
) -> Result<VersionNumber, Error> {
    let app = &row.name;
    let before = row.previous.ok_or_else(|| {
        Error::Conflict(format!(
            "app {app} has no version before {}; `fdn describe {app}` lists its versions",
            row.version
        ))
    })?;
    let function: FunctionName = app.clone().into();
    let bad = bad_version_list(connection, row.tenant, &function).await?;
    if bad.contains_key(&before) {
        return Err(Error::Conflict(format!(
            "{before} of {app} was taken back; name the version you mean: fdn rollback {app} VERSION"
        )));
    }
    Ok(before)
}

/// Deletes an app with its versions. Version numbers are never reused; artifacts are collected after a grace time. Once begun, the deletion is
/// completed even if the caller no longer waits.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn delete(
    state: Arc<State>,
    actor: Actor,
    (tenant, app): (TenantId, AppName),
    expected: Precondition,
) -> Result<(), Error> {
    let deleting =
        tokio::spawn(async move { delete_inner(&state, &actor, (tenant, &app), &expected).await });
    deleting
        .await
        .map_err(|e| Error::Internal(format!("deleting broke: {e}")))?
}

async fn delete_inner(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    expected: &Precondition,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = app_get(&mut tx, app).await?.filter(|row| row.tenant == tenant);
        let old = old.ok_or_else(|| Error::no_app(app))?;
        expected.holds(&app_tag(old.version, old.deployed_at))?;
        let function = app.clone().into();
        check_unused(&mut tx, tenant, app).await?;
        app_delete(&mut tx, app).await?;
        function_delete(&mut tx, tenant, &function, now).await?;
        announce_deletion(&mut tx, app, revision, now).await?;
        audit_insert(&mut tx, &audit(actor, "delete", &old, Some(old.version), None, now)).await?;
        Ok::<_, Error>(())
    })?;
    state.outbox_wake.notify_one();
    info!(%app, %actor, "deleted");
    Ok(())
}
