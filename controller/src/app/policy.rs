//! Policies of apps and keys of their callers. Every change is a new revision of the app's desired state; the audit entry and the message to all
//! nodes are written in the same transaction.

use fdn_core::policy::api::{CreateKey, CreatedKey, KeyInfo, PolicyInfo};
use fdn_core::policy::{Policy, key};
use fdn_core::{AppName, Digest, KeyId, Revision, TenantId, Timestamp};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::precondition::{Precondition, tag};
use crate::Error;
use crate::reconcile::desired::announce_to_nodes;
use crate::state::State;
use crate::store::app::{AppRow, app_get, app_upsert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::policy::{
    KeyRow, PolicyRow, key_insert, key_list, key_revoke, key_trim, policy_get, policy_upsert,
};
use crate::store::revision::revision_next;

/// The most valid keys of one app at the same time.
pub const KEYS_MAX: usize = 100;
/// The number of expired and revoked keys that are kept per app.
const KEYS_REMEMBERED: usize = 100;
/// The shortest time to live of a key, in ms.
const TTL_MIN_MS: u64 = 60_000;

/// The policy of an app; an empty one if it has none.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn get(state: &State, tenant: TenantId, app: &AppName) -> Result<PolicyInfo, Error> {
    let mut connection = state.store.read().await?;
    existing(&mut connection, tenant, app).await?;
    let row = policy_get(&mut connection, app).await?;
    Ok(row.map_or_else(
        || PolicyInfo {
            app: app.clone(),
            revision: Revision(0),
            updated_at: None,
            updated_by: None,
            policy: Policy::default(),
        },
        to_info,
    ))
}

fn to_info(row: PolicyRow) -> PolicyInfo {
    PolicyInfo {
        app: row.app,
        revision: row.revision,
        updated_at: Some(row.updated_at),
        updated_by: Some(row.updated_by),
        policy: row.policy,
    }
}

pub(super) async fn existing(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<AppRow, Error> {
    let row = app_get(connection, app).await?;
    row.filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(app))
}

/// Sets the policy of an app; an empty one removes it. Setting the same one again changes nothing.
///
/// # Errors
/// When the policy is not valid, there is no such app, the precondition fails, or the store fails.
pub async fn set(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    (policy, expected): (&Policy, &Precondition),
    now: Timestamp,
) -> Result<PolicyInfo, Error> {
    policy.check()?;
    let _alone = state.changes.lock().await;
    let (row, changed): (PolicyRow, bool) = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let before = policy_get(&mut tx, app).await?;
        let old = existing(&mut tx, tenant, app).await?;
        expected.holds(&tag(before.as_ref().map_or(0, |before| before.revision.get())))?;
        if let Some(before) = before.clone().filter(|before| before.policy == *policy) {
            return Ok((before, false));
        }
        let row = PolicyRow {
            app: app.clone(),
            policy: policy.clone(),
            revision,
            updated_at: now,
            updated_by: actor.to_string(),
        };
        policy_upsert(&mut tx, tenant, &row).await?;
        push(&mut tx, old, revision, now).await?;
        let state = |policy: &Policy| match policy.is_empty() {
            true => None,
            false => serde_json::to_string(policy).ok(),
        };
        let action = if policy.is_empty() { "policy.clear" } else { "policy.set" };
        let entry = AuditEntry {
            before: before.and_then(|before| state(&before.policy)),
            after: state(policy),
            ..audit(actor, tenant, action, app, now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>((row, true))
    })?;
    if changed {
        state.outbox_wake.notify_one();
        info!(%app, revision = %row.revision, %actor, "the policy of an app was set");
    }
    Ok(to_info(row))
}

/// Stores the app under a new revision, and announces its desired state to nodes with everything that belongs to it.
pub(super) async fn push(
    connection: &mut AnyConnection,
    app: AppRow,
    revision: Revision,
    now: Timestamp,
) -> Result<(), Error> {
    let row = AppRow { revision, ..app };
    app_upsert(connection, &row).await?;
    Ok(announce_to_nodes(connection, &row, now).await?)
}

pub(super) fn audit(
    actor: &Actor,
    tenant: TenantId,
    action: &'static str,
    app: &AppName,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: Some(tenant),
        action,
        subject: format!("app/{app}"),
        before: None,
        after: None,
    }
}

/// Creates a key for a caller of an app.
///
/// # Errors
/// When a limit is exceeded, the name is taken, there is no such app, or the store fails.
pub async fn create_key(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    request: &CreateKey,
    now: Timestamp,
) -> Result<CreatedKey, Error> {
    if let Some(ttl) = request.ttl.filter(|ttl| ttl.as_millis() < TTL_MIN_MS) {
        return Err(Error::BadRequest(format!(
            "ttl: a key counts for 1m at least, not {ttl}"
        )));
    }
    let id = KeyId::from_uuid(uuid::Uuid::now_v7());
    let text = key::text(id, Secret::random()?.expose());
    let info = KeyInfo {
        id,
        name: request.name.clone(),
        created_at: now,
        created_by: actor.to_string(),
        expires_at: request
            .ttl
            .map(|ttl| Timestamp(now.get().saturating_add(ttl.as_millis()))),
        revoked_at: None,
    };
    let _alone = state.changes.lock().await;
    let made: Result<(), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        key_trim(&mut tx, app, now, KEYS_REMEMBERED).await?;
        let keys = key_list(&mut tx, app).await?;
        let mut counting = keys.iter().filter(|row| row.info.counts(now));
        if counting.clone().count() >= KEYS_MAX {
            return Err(Error::Conflict(format!(
                "app {app} has {KEYS_MAX} keys, more are not allowed; take some back: fdn key revoke {app} KEY"
            )));
        }
        if counting.any(|row| row.info.name == request.name) {
            return Err(Error::Conflict(format!(
                "app {app} has a key named {}; take it back first, or choose another name", request.name
            )));
        }
        let row = KeyRow { app: app.clone(), info: info.clone(), hash: Digest::of(text.as_bytes()) };
        key_insert(&mut tx, tenant, &row).await?;
        push(&mut tx, old, revision, now).await?;
        let entry = AuditEntry { after: shown(&info), ..audit(actor, tenant, "key.create", app, now) };
        audit_insert(&mut tx, &entry).await?;
        Ok(())
    });
    made?;
    state.outbox_wake.notify_one();
    info!(%app, key = %id, %actor, "a key was made");
    Ok(CreatedKey { key: text, info })
}

fn shown(info: &KeyInfo) -> Option<String> {
    let state =
        serde_json::json!({ "id": info.id, "name": info.name, "expires_at": info.expires_at });
    Some(state.to_string())
}

/// The keys of an app, newest first, including revoked ones.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn keys(state: &State, tenant: TenantId, app: &AppName) -> Result<Vec<KeyInfo>, Error> {
    let mut connection = state.store.read().await?;
    existing(&mut connection, tenant, app).await?;
    let rows = key_list(&mut connection, app).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// Revokes a key. Revoking it again changes nothing.
///
/// # Errors
/// When there is no such app or key, or the store fails.
pub async fn revoke_key(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    id: KeyId,
    now: Timestamp,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let done: bool = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        let keys = key_list(&mut tx, app).await?;
        let info = keys.into_iter().map(|row| row.info).find(|info| info.id == id);
        let info = info.ok_or_else(|| Error::NotFound {
            what: format!("key {id} of app {app}"),
            hint: "`fdn key list APP` shows what exists",
        })?;
        let done = key_revoke(&mut tx, app, id, now).await?;
        if done {
            push(&mut tx, old, revision, now).await?;
            let entry = AuditEntry { before: shown(&info), ..audit(actor, tenant, "key.revoke", app, now) };
            audit_insert(&mut tx, &entry).await?;
        }
        Ok::<_, Error>(done)
    })?;
    if done {
        state.outbox_wake.notify_one();
        info!(%app, key = %id, %actor, "a key was taken back");
    }
    Ok(())
}
