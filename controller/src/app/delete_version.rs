//! Deletion of one version of an app that nothing refers to any more: to clean up, and to free space.

use fdn_core::rollout::RolloutState;
use fdn_core::{AppName, TenantId, VersionNumber};
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::deploy::audit;
use crate::Error;
use crate::state::State;
use crate::store::app::{AppRow, app_forget_previous, app_get};
use crate::store::audit::audit_insert;
use crate::store::in_transaction;
use crate::store::revision::revision_lock;
use crate::store::rollout::rollout_get;
use crate::store::traffic::traffic_get;
use crate::store::version::{version_delete, version_get};
use crate::store::workflow::workflow_list_using_version;

/// Deletes a version. Its number is never reused; its artifact is collected after a grace time, unless another version has the same one.
///
/// # Errors
/// When there is no such app or version, the version is current or referred to, or the store fails.
pub async fn delete_version(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    version: VersionNumber,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    let function = app.clone().into();
    in_transaction!(state.store, tx => {
        // Keeps other changes of what the app runs out, on this controller and on others.
        revision_lock(&mut tx).await?;
        let row = app_get(&mut tx, app).await?.filter(|row| row.tenant == tenant);
        let row = row.ok_or_else(|| Error::no_app(app))?;
        if version_get(&mut tx, tenant, &function, version).await?.is_none() {
            return Err(Error::NotFound {
                what: format!("version {version} of app {app}"),
                hint: "`fdn describe` lists its versions",
            });
        }
        check_unused(&mut tx, &row, version).await?;
        app_forget_previous(&mut tx, app, version).await?;
        version_delete(&mut tx, tenant, (&function, version), now).await?;
        audit_insert(&mut tx, &audit(actor, "version.delete", &row, Some(version), None, now)).await?;
        Ok::<_, Error>(())
    })?;
    info!(%app, %version, %actor, "a version was deleted");
    Ok(())
}

/// Fails if something refers to the version; the error says what, and what to do about it.
async fn check_unused(
    connection: &mut AnyConnection,
    app: &AppRow,
    version: VersionNumber,
) -> Result<(), Error> {
    let name = &app.name;
    let refuse = |why: String| Err(Error::Conflict(why));
    if app.version == version {
        return refuse(format!(
            "version {version} of {name} is the current one; deploy another or go back to one first"
        ));
    }
    let split = traffic_get(&mut *connection, name).await?;
    let split = split.map(|row| row.traffic.split).unwrap_or_default();
    if split.iter().any(|share| share.version == version) {
        return refuse(format!(
            "version {version} of {name} stands in the split of its calls; `fdn traffic set {name} …` without it first"
        ));
    }
    let watched = rollout_get(&mut *connection, name).await?;
    let watched = watched.filter(|row| row.state == RolloutState::Watching);
    if watched.is_some_and(|row| row.candidate == version || row.baseline == version) {
        return refuse(format!(
            "{name} is watched for its objective, and would go back to version {version}; wait until that has ended"
        ));
    }
    let function = name.clone().into();
    let users = workflow_list_using_version(connection, app.tenant, (&function, version)).await?;
    if let Some(user) = users.first() {
        return refuse(format!(
            "version {version} of {name} is run by a version of workflow {user}; delete that version of {user} first"
        ));
    }
    Ok(())
}
