//! Traffic splits: an app's calls divided between versions of its function. A change is a new revision of the app's desired state; nodes do not
//! load versions again that they have, so new weights apply as soon as the message arrives.

use fdn_core::policy::Traffic;
use fdn_core::policy::api::TrafficInfo;
use fdn_core::{AppName, Revision, TenantId, Timestamp};
use tracing::info;

use super::actor::Actor;
use super::policy::{audit, existing, push};
use super::precondition::{Precondition, tag};
use super::rollout::{shown, split_changed};
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::traffic::{TrafficRow, traffic_delete, traffic_get, traffic_upsert};
use crate::store::version::version_get;

/// The split of an app; an empty one if all calls go to the current version.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn get(state: &State, tenant: TenantId, app: &AppName) -> Result<TrafficInfo, Error> {
    let mut connection = state.store.read().await?;
    let current = existing(&mut connection, tenant, app).await?.version;
    let row = traffic_get(&mut connection, app).await?;
    let rollout = shown(&mut connection, app).await?;
    Ok(TrafficInfo {
        rollout,
        app: app.clone(),
        current,
        revision: row.as_ref().map_or(Revision(0), |row| row.revision),
        updated_at: row.as_ref().map(|row| row.updated_at),
        updated_by: row.as_ref().map(|row| row.updated_by.clone()),
        traffic: row.map(|row| row.traffic).unwrap_or_default(),
    })
}

/// Sets the split of an app; an empty one sends all calls to the current version.
///
/// # Errors
/// When the split is not valid or names a version that does not exist, there is no such app, the precondition fails, or the store fails.
pub async fn set(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    (traffic, expected): (&Traffic, &Precondition),
    now: Timestamp,
) -> Result<TrafficInfo, Error> {
    traffic.check()?;
    let _alone = state.changes.lock().await;
    let changed: bool = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        let function = app.clone().into();
        for share in &traffic.split {
            if version_get(&mut tx, tenant, &function, share.version).await?.is_none() {
                return Err(Error::NotFound {
                    what: format!("version {} of app {app}", share.version),
                    hint: "`fdn describe` lists its versions",
                });
            }
        }
        let before = traffic_get(&mut tx, app).await?;
        expected.holds(&tag(before.as_ref().map_or(0, |row| row.revision.get())))?;
        let before = before.map(|row| row.traffic);
        if before.clone().unwrap_or_default() == *traffic {
            return Ok(false);
        }
        if traffic.is_empty() {
            traffic_delete(&mut tx, app).await?;
        } else {
            let row = TrafficRow {
                app: app.clone(),
                traffic: traffic.clone(),
                revision,
                updated_at: now,
                updated_by: actor.to_string(),
            };
            traffic_upsert(&mut tx, tenant, &row).await?;
        }
        split_changed(&mut tx, tenant, app, (true, now)).await?;
        push(&mut tx, old, revision, now).await?;
        let entry = AuditEntry {
            before: before.and_then(|before| serde_json::to_string(&before).ok()),
            after: (!traffic.is_empty()).then(|| serde_json::to_string(traffic).ok()).flatten(),
            ..audit(actor, tenant, "traffic.set", app, now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(true)
    })?;
    if changed {
        state.outbox_wake.notify_one();
        info!(%app, %actor, "the calls of an app were split");
    }
    get(state, tenant, app).await
}
