//! Labels of functions and versions. They have no effect on the network, so nodes do not get them.

use fdn_core::label::Labels;
use fdn_core::{AppName, Digest, TenantId, VersionNumber};
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::policy::{audit, existing};
use super::precondition::Precondition;
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::label::{label_get, label_set};
use crate::store::revision::revision_lock;
use crate::store::version::version_get;

/// The ETag of labels, derived from their content.
#[must_use]
pub fn label_tag(labels: &Labels) -> String {
    format!("\"{}\"", Digest::of(labels.to_string().as_bytes()).short())
}

/// The labels of an app's function, or of one of its versions.
///
/// # Errors
/// When there is no such app or version, or the store fails.
pub async fn get(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    version: Option<VersionNumber>,
) -> Result<Labels, Error> {
    read(&mut *state.store.read().await?, (tenant, app), version).await
}

async fn read(
    connection: &mut AnyConnection,
    (tenant, app): (TenantId, &AppName),
    version: Option<VersionNumber>,
) -> Result<Labels, Error> {
    existing(&mut *connection, tenant, app).await?;
    let function = app.clone().into();
    if let Some(number) = version
        && version_get(&mut *connection, tenant, &function, number)
            .await?
            .is_none()
    {
        return Err(Error::NotFound {
            what: format!("version {number} of app {app}"),
            hint: "`fdn describe` lists its versions",
        });
    }
    Ok(label_get(connection, tenant, &function, version).await?)
}

/// Replaces all labels of an app's function, or of one of its versions. Setting the same labels changes nothing.
///
/// # Errors
/// When there is no such app or version, the precondition fails, or the store fails.
pub async fn set(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    version: Option<VersionNumber>,
    (labels, expected): (&Labels, &Precondition),
) -> Result<(), Error> {
    let now = fdn_service::now();
    let changed: bool = in_transaction!(state.store, tx => {
        // The app must not be deleted between reading and writing.
        revision_lock(&mut tx).await?;
        let old = read(&mut tx, (tenant, app), version).await?;
        expected.holds(&label_tag(&old))?;
        if old == *labels {
            return Ok(false);
        }
        label_set(&mut tx, tenant, &app.clone().into(), version, labels).await?;
        let state_of = |labels: &Labels| Some(json!({ "version": version, "labels": labels }).to_string());
        let entry = AuditEntry {
            before: state_of(&old),
            after: state_of(labels),
            ..audit(actor, tenant, "labels.set", app, now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(true)
    })?;
    if changed {
        info!(%app, %labels, %actor, "labels were set");
    }
    Ok(())
}
