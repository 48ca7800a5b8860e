//! Objectives of apps, and the watches of new versions against them. A watch begins and ends with changes of the app's traffic split.
//!
//! A version is watched while calls are split between it and another one. A plain deploy of an app with an objective makes such a split: all
//! calls to the new version, none to the previous one, which nodes keep ready that way. [`watch`] decides the outcome.

pub mod watch;

use fdn_core::policy::Traffic;
use fdn_core::policy::traffic::Share;
use fdn_core::rollout::{Objective, ObjectiveInfo, RolloutInfo, RolloutState};
use fdn_core::{AppName, FunctionName, Revision, TenantId, Timestamp, VersionNumber};
use fdn_scheduling::rollout::candidate;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::policy::{audit, existing, push};
use super::precondition::{Precondition, tag_of};
use crate::Error;
use crate::state::State;
use crate::store::app::AppRow;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::rollout::{
    ObjectiveRow, RolloutRow, bad_version_clear, bad_version_list, counts_delete, objective_delete,
    objective_get, objective_upsert, rollout_delete, rollout_get, rollout_upsert,
};
use crate::store::traffic::{TrafficRow, traffic_delete, traffic_get, traffic_upsert};

/// The objective of an app, and how its newest version meets it.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn get(state: &State, tenant: TenantId, app: &AppName) -> Result<ObjectiveInfo, Error> {
    let mut connection = state.store.read().await?;
    existing(&mut connection, tenant, app).await?;
    let row = objective_get(&mut connection, app).await?;
    let rollout = shown(&mut connection, app).await?;
    Ok(ObjectiveInfo {
        app: app.clone(),
        updated_at: row.as_ref().map(|row| row.updated_at),
        updated_by: row.as_ref().map(|row| row.updated_by.clone()),
        objective: row.map(|row| row.objective),
        rollout,
    })
}

/// The version that is watched or was watched last, in the form of the API.
///
/// # Errors
/// When the store fails.
pub(super) async fn shown(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<RolloutInfo>, Error> {
    let row = rollout_get(connection, app).await?;
    Ok(row.map(|row| RolloutInfo {
        version: row.candidate,
        baseline: row.baseline,
        state: row.state,
        since: row.since,
        calls: row.calls,
        failures: row.failures,
        reason: row.reason,
    }))
}

/// Sets or removes the objective of an app. A watched version is measured against the new one from now on, in a new window. Without an objective no
/// version is watched, and a split that a deploy made for the watch goes with it.
///
/// # Errors
/// When the objective is not valid, the app is a workflow or does not exist, the precondition fails, or the store fails.
pub async fn set(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    (wanted, expected): (Option<&Objective>, &Precondition),
) -> Result<ObjectiveInfo, Error> {
    if let Some(objective) = wanted {
        objective.check()?;
    }
    let now = fdn_service::now();
    let _alone = state.changes.lock().await;
    let done: Result<bool, Error> = in_transaction!(state.store, tx => {
        // Keeps deploys on other controllers out: one that saw the old objective would begin a watch without one.
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        if wanted.is_some() && old.definition.is_some() {
            return Err(Error::Conflict(format!(
                "app {app} is a workflow, whose calls are not split; set objectives of the functions that it runs"
            )));
        }
        let before = objective_get(&mut tx, app).await?.map(|row| row.objective);
        expected.holds(&tag_of(&before)?)?;
        if before.as_ref() == wanted {
            return Ok(false);
        }
        match wanted {
            Some(objective) => {
                let row = ObjectiveRow {
                    app: app.clone(),
                    objective: objective.clone(),
                    updated_at: now,
                    updated_by: actor.to_string(),
                };
                objective_upsert(&mut tx, tenant, &row).await?;
            }
            None => {
                objective_delete(&mut tx, app).await?;
            }
        }
        let watched = rollout_get(&mut tx, app).await?;
        split_changed(&mut tx, tenant, app, (false, now)).await?;
        if wanted.is_none() && watched.is_some_and(|row| deploy_is_watched(&row)) {
            // No verdict will end the split: it would keep the calls from every later version.
            traffic_delete(&mut tx, app).await?;
            push(&mut tx, old, revision, now).await?;
        }
        let text = |objective: &Objective| serde_json::to_string(objective).ok();
        let entry = AuditEntry {
            before: before.as_ref().and_then(text),
            after: wanted.and_then(text),
            ..audit(actor, tenant, if wanted.is_some() { "objective.set" } else { "objective.clear" }, app, now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok(true)
    });
    if done? {
        state.outbox_wake.notify_one();
        info!(%app, %actor, "the objective of an app was set");
    }
    get(state, tenant, app).await
}

/// Whether a version is watched in a split that a deploy made, which ends with the watch.
fn deploy_is_watched(row: &RolloutRow) -> bool {
    row.by_deploy && row.state == RolloutState::Watching
}

/// Begins, changes or ends the watch after a person changed an app's objective, or its split if `own_split`: that split is the person's from then on,
/// whatever it was before, and outlives the watch. Calls sent to a version that is marked as bad clear its mark.
///
/// # Errors
/// When the store fails.
pub(super) async fn split_changed(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
    (own_split, now): (bool, Timestamp),
) -> Result<(), Error> {
    let function: FunctionName = app.clone().into();
    let split = traffic_get(&mut *connection, app).await?;
    let split = split.map(|row| row.traffic).unwrap_or_default();
    for share in split.split.iter().filter(|share| share.weight > 0) {
        bad_version_clear(&mut *connection, (tenant, &function, share.version)).await?;
    }
    let bad = bad_version_list(&mut *connection, tenant, &function).await?;
    let bad: Vec<VersionNumber> = bad.into_keys().collect();
    let objective = objective_get(&mut *connection, app).await?;
    let watched = objective.and_then(|_| candidate(&split, &bad));
    let before = rollout_get(&mut *connection, app).await?;
    let by_deploy = !own_split
        && before.as_ref().is_some_and(|row| {
            deploy_is_watched(row) && watched == Some((row.candidate, row.baseline))
        });
    match watched {
        Some(pair) => begin(connection, app, pair, (by_deploy, false), now).await,
        // An earlier verdict stays visible; a watch without a verdict is deleted.
        None if before.is_some_and(|row| row.state != RolloutState::Watching) => Ok(()),
        None => Ok(rollout_delete(connection, app).await?),
    }
}

async fn begin(
    connection: &mut AnyConnection,
    app: &AppName,
    (candidate, baseline): (VersionNumber, VersionNumber),
    (by_deploy, fresh): (bool, bool),
    now: Timestamp,
) -> Result<(), Error> {
    let row = RolloutRow {
        app: app.clone(),
        id: uuid::Uuid::now_v7().simple().to_string(),
        candidate,
        baseline,
        by_deploy,
        fresh,
        state: RolloutState::Watching,
        since: now,
        calls: 0,
        failures: 0,
        reason: "no calls yet".to_owned(),
    };
    counts_delete(&mut *connection, app).await?;
    Ok(rollout_upsert(connection, &row).await?)
}

/// Begins to watch a version that a deploy makes current, if the app has an objective; called before the app's desired state is announced. A
/// split that a person made stays as it is, and the new version gets no calls.
///
/// # Errors
/// When the store fails.
pub(super) async fn deployed(
    connection: &mut AnyConnection,
    old: &AppRow,
    version: VersionNumber,
    (actor, revision, now): (&str, Revision, Timestamp),
) -> Result<(), Error> {
    let app = &old.name;
    if objective_get(&mut *connection, app).await?.is_none() {
        return Ok(());
    }
    let watched = rollout_get(&mut *connection, app).await?;
    let watched = watched.filter(deploy_is_watched);
    let split = traffic_get(&mut *connection, app).await?;
    let baseline = match (split, watched) {
        (None, _) => old.version,
        // The previous version has not been judged yet: the last good version stays the baseline.
        (Some(_), Some(row)) => row.baseline,
        (Some(_), None) => return Ok(()),
    };
    let share = |version, weight| Share { version, weight };
    let row = TrafficRow {
        app: app.clone(),
        traffic: Traffic {
            split: vec![share(version, 1), share(baseline, 0)],
            ..Traffic::default()
        },
        revision,
        updated_at: now,
        updated_by: actor.to_owned(),
    };
    traffic_upsert(&mut *connection, old.tenant, &row).await?;
    begin(connection, app, (version, baseline), (true, true), now).await
}

/// Ends the watch after a person went back to a version, and clears the bad mark of that version.
///
/// # Errors
/// When the store fails.
pub(super) async fn rolled_back(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
    to: VersionNumber,
) -> Result<(), Error> {
    traffic_delete(&mut *connection, app).await?;
    rollout_delete(&mut *connection, app).await?;
    let function = app.clone().into();
    Ok(bad_version_clear(connection, (tenant, &function, to)).await?)
}
