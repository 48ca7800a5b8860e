//! Environment variables of an app, changed without an upload: a new version with the same component.

use std::collections::BTreeMap;

use fdn_core::api::DeployResponse;
use fdn_core::app::ChangeEnv;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, TenantId};
use tracing::info;

use super::actor::Actor;
use super::deploy::{audit, supersede};
use super::policy::existing;
use super::precondition::Precondition;
use super::repository::check_storage;
use crate::Error;
use crate::app::change::app_tag;
use crate::state::State;
use crate::store::app::AppRow;
use crate::store::audit::audit_insert;
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::version::{VersionRow, function_version_next, version_get, version_insert};

/// Creates a version from the current one with other variables, and makes it current. Returns the response and the app's new ETag. If the
/// variables are the same already, nothing changes.
///
/// # Errors
/// When the manifest would become invalid, the tenant's storage is used up, the app is a workflow or does not exist, or the store fails.
pub async fn change(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    change: &ChangeEnv,
    expected: &Precondition,
) -> Result<(DeployResponse, String), Error> {
    let _alone = state.changes.lock().await;
    let now = fdn_service::now();
    let done: Result<(AppRow, VersionRow, bool), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        expected.holds(&app_tag(old.version, old.deployed_at))?;
        if old.definition.is_some() {
            return Err(Error::Conflict(format!(
                "app {app} is a workflow, which has no variables; change those of the functions that it runs"
            )));
        }
        let function = app.clone().into();
        let current = version_get(&mut tx, tenant, &function, old.version).await?;
        let current = current.ok_or_else(|| Error::no_app(app))?;
        let mut manifest = current.manifest.clone();
        manifest.env.retain(|name, _| !change.unset.contains(name));
        manifest.env.extend(change.set.clone());
        if manifest == current.manifest {
            return Ok((old, current, true));
        }
        manifest.check(&state.settings.bounds)?;
        for form in &current.forms {
            form.manifest.over(&manifest).check(&state.settings.bounds)?;
        }
        // The component counts once more: each version does, with its own size.
        check_storage(&mut tx, &state.settings.repository, tenant, current.bytes()).await?;
        let version = VersionRow {
            number: function_version_next(&mut tx, tenant, &function, now).await?,
            manifest,
            secrets: BTreeMap::new(),
            created_at: now,
            created_by: actor.to_string(),
            ..current
        };
        version_insert(&mut tx, &version).await?;
        let workflow = Workflow::single(function, version.number);
        let row = supersede(&mut tx, old, workflow, version.number, (actor, revision, now)).await?;
        audit_insert(&mut tx, &audit(actor, "env.set", &row, row.previous, Some(version.number), now)).await?;
        Ok((row, version, false))
    });
    let (row, version, unchanged) = done?;
    if !unchanged {
        state.outbox_wake.notify_one();
        state.planner_wake.notify_one();
        info!(%app, version = %row.version, revision = %row.revision, %actor, "variables of an app were changed");
    }
    let tag = app_tag(row.version, row.deployed_at);
    let done = DeployResponse {
        app: row.name,
        version: row.version,
        digest: version.digest,
        size: version.size,
        host: row.host,
        revision: row.revision,
        unchanged,
        validation: Vec::new(),
    };
    Ok((done, tag))
}
