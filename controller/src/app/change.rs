//! Going back to an earlier version, and deleting.

use std::sync::Arc;

use fdn_core::workflow::Workflow;
use fdn_core::{AppName, VersionNumber};
use tracing::{info, warn};

use super::deploy::{artifact_release, audit};
use crate::Error;
use crate::error::chain;
use crate::reconcile::desired::{tell_gone, tell_nodes};
use crate::state::State;
use crate::store::app::{AppRow, app_delete, app_get, app_upsert};
use crate::store::audit::audit_insert;
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::version::{function_delete, version_get, version_list};

/// Makes an earlier version current: the one named, else the one that was current before. The version that is current already changes
/// nothing.
///
/// # Errors
/// When there is no such app or version, or the store fails.
pub async fn rollback(
    state: &State,
    actor: &str,
    app: &AppName,
    to: Option<VersionNumber>,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    let changed: Option<AppRow> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = app_get(&mut tx, app).await?.ok_or_else(|| Error::no_app(app))?;
        let version = to.or(old.previous).ok_or_else(|| {
            Error::Conflict(format!("app {app} has no version before {}; `fdn describe {app}` lists its versions", old.version))
        })?;
        if version == old.version {
            return Ok(None);
        }
        let function = app.clone().into();
        if version_get(&mut tx, &function, version).await?.is_none() {
            return Err(Error::NotFound {
                what: format!("version {version} of app {app}"),
                hint: "`fdn describe` lists its versions",
            });
        }
        let row = AppRow {
            workflow: Workflow::single(function, version),
            version,
            previous: Some(old.version),
            revision,
            deployed_at: now,
            ..old
        };
        app_upsert(&mut tx, &row).await?;
        tell_nodes(&mut tx, &row, now).await?;
        audit_insert(&mut tx, &audit(actor, "rollback", app, row.previous, Some(version), now)).await?;
        Ok(Some(row))
    })?;
    if let Some(row) = changed {
        state.outbox_wake.notify_one();
        state.planner_wake.notify_one();
        info!(%app, version = %row.version, revision = %row.revision, actor, "rolled back");
    }
    Ok(())
}

/// Deletes an app with its versions. Their numbers are never given again. Once begun it goes on to its end, even if the caller no
/// longer waits.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn delete(state: Arc<State>, actor: String, app: AppName) -> Result<(), Error> {
    let deleting = tokio::spawn(async move { delete_inner(&state, &actor, &app).await });
    deleting
        .await
        .map_err(|e| Error::Internal(format!("deleting broke: {e}")))?
}

async fn delete_inner(state: &State, actor: &str, app: &AppName) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    let versions = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = app_get(&mut tx, app).await?.ok_or_else(|| Error::no_app(app))?;
        let function = app.clone().into();
        let versions = version_list(&mut tx, &function).await?;
        app_delete(&mut tx, app).await?;
        function_delete(&mut tx, &function, now).await?;
        tell_gone(&mut tx, app, revision, now).await?;
        audit_insert(&mut tx, &audit(actor, "delete", app, Some(old.version), None, now)).await?;
        Ok::<_, Error>(versions)
    })?;
    state.outbox_wake.notify_one();
    info!(%app, actor, "deleted");
    for version in versions {
        if let Err(error) = artifact_release(state, version.digest).await {
            warn!(digest = %version.digest, error = chain(&error), "an artifact that nobody uses stays in the artifact store");
        }
    }
    Ok(())
}
