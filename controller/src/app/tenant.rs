//! Management of tenants and their members, by admins and owners.

use fdn_core::account::{CreateTenant, MemberInfo, PutMember, TenantInfo, TenantRef, UpdateTenant};
use fdn_core::repository::StorageLimit;
use fdn_core::{Revision, TenantId, TenantRole, Timestamp, UserName};
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::policy::push;
use super::precondition::{Precondition, tag};
use super::repository::limited;
use crate::Error;
use crate::state::State;
use crate::store::app::app_list_of;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::{revision_lock, revision_next};
use crate::store::tenant::{
    member_count_owners, member_delete, member_get, member_list, member_upsert, tenant_get,
    tenant_insert, tenant_limit_get, tenant_limit_set, tenant_list, tenant_update,
};
use crate::store::user::user_get;

/// The state of a tenant in the audit log.
fn state_of(tenant: &TenantInfo, limit: &StorageLimit) -> String {
    json!({ "name": tenant.name, "suspended_at": tenant.suspended_at, "storage": limit })
        .to_string()
}

pub(super) fn audit(
    actor: &Actor,
    tenant: TenantId,
    action: &'static str,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: Some(tenant),
        action,
        subject: format!("tenant/{tenant}"),
        before: None,
        after: None,
    }
}

fn taken(name: &fdn_core::TenantName) -> Error {
    Error::Conflict(format!("there is a tenant {name} already"))
}

pub(super) async fn existing(
    state: &State,
    connection: &mut AnyConnection,
    tenant: &TenantRef,
) -> Result<TenantInfo, Error> {
    let found = tenant_get(connection, tenant).await?;
    let found = found.ok_or_else(|| Error::no_tenant(tenant))?;
    Ok(limited(found, &state.settings.repository))
}

/// Creates a tenant.
///
/// # Errors
/// When the name is taken, the owner does not exist, or the store fails.
pub async fn create(
    state: &State,
    actor: &Actor,
    request: &CreateTenant,
    now: Timestamp,
) -> Result<TenantInfo, Error> {
    let id = TenantId::from_uuid(uuid::Uuid::now_v7());
    let made: TenantInfo = in_transaction!(state.store, tx => {
        if !tenant_insert(&mut tx, id, &request.name, now).await? {
            return Err(taken(&request.name));
        }
        if let Some(owner) = &request.owner {
            known_user(&mut tx, owner).await?;
            member_upsert(&mut tx, id, owner, TenantRole::Owner, (&actor.name, now)).await?;
        }
        let made = existing(state, &mut tx, &TenantRef::Id(id)).await?;
        let after = json!({ "name": made.name, "owner": request.owner }).to_string();
        let entry = AuditEntry { after: Some(after), ..audit(actor, id, "tenant.create", now) };
        audit_insert(&mut tx, &entry).await?;
        Ok(made)
    })?;
    info!(tenant = %made.name, %id, %actor, "a tenant was made");
    Ok(made)
}

async fn known_user(connection: &mut AnyConnection, user: &UserName) -> Result<(), Error> {
    match user_get(connection, user.as_str()).await? {
        Some(_) => Ok(()),
        None => Err(Error::no_user(user)),
    }
}

/// At most `limit` tenants, by name, after `after`: those of `member`, or all.
///
/// # Errors
/// When the store fails.
pub async fn list(
    state: &State,
    member: Option<&str>,
    after: &str,
    limit: u32,
) -> Result<Vec<TenantInfo>, Error> {
    let rows = tenant_list(&mut *state.store.read().await?, member, after, limit).await?;
    let settings = &state.settings.repository;
    Ok(rows.into_iter().map(|row| limited(row, settings)).collect())
}

/// Returns a tenant.
///
/// # Errors
/// When there is no such tenant or the store fails.
pub async fn get(state: &State, tenant: TenantId) -> Result<TenantInfo, Error> {
    let connection = &mut *state.store.read().await?;
    existing(state, connection, &TenantRef::Id(tenant)).await
}

/// Announces the desired state of a tenant's apps anew, which tells gateways whether to serve them.
async fn announce_apps(
    connection: &mut AnyConnection,
    tenant: TenantId,
    revision: Revision,
    now: Timestamp,
) -> Result<(), Error> {
    for app in app_list_of(&mut *connection, tenant).await? {
        push(&mut *connection, app, revision, now).await?;
    }
    Ok(())
}

/// Renames, suspends or resumes a tenant, or sets its storage limits. Gateways refuse calls of a suspended tenant's apps as soon as they learn of
/// it, and serve them again once it is resumed: what the apps need stays ready there.
///
/// # Errors
/// When there is no such tenant, the precondition fails, the name is taken, or the store fails.
pub async fn update(
    state: &State,
    actor: &Actor,
    tenant: TenantId,
    request: &UpdateTenant,
    expected: &Precondition,
) -> Result<TenantInfo, Error> {
    let (now, by_id) = (fdn_service::now(), TenantRef::Id(tenant));
    let _alone = state.changes.lock().await;
    let updated: TenantInfo = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(state, &mut tx, &by_id).await?;
        if old.deleted_at.is_some() {
            return Err(Error::no_tenant(&by_id));
        }
        expected.holds(&tag(old.generation))?;
        let suspended_at = match request.suspended {
            Some(true) => old.suspended_at.or(Some(now)),
            Some(false) => None,
            None => old.suspended_at,
        };
        let name = request.name.clone().unwrap_or_else(|| old.name.clone());
        if name != old.name && tenant_get(&mut tx, &TenantRef::Name(name.clone())).await?.is_some() {
            return Err(taken(&name));
        }
        let new = TenantInfo { name, suspended_at, ..old.clone() };
        let old_limit = tenant_limit_get(&mut tx, tenant).await?;
        let limit = request.storage.unwrap_or(old_limit);
        if new == old && limit == old_limit {
            return Ok(old);
        }
        if !tenant_update(&mut tx, &new).await? {
            return Err(Error::Conflict(format!("tenant {} was changed by somebody else", old.name)));
        }
        tenant_limit_set(&mut tx, tenant, &limit).await?;
        if new.suspended_at.is_some() != old.suspended_at.is_some() {
            announce_apps(&mut tx, tenant, revision, now).await?;
        }
        let entry = AuditEntry {
            before: Some(state_of(&old, &old_limit)),
            after: Some(state_of(&new, &limit)),
            ..audit(actor, tenant, "tenant.update", now)
        };
        audit_insert(&mut tx, &entry).await?;
        existing(state, &mut tx, &by_id).await
    })?;
    state.outbox_wake.notify_one();
    info!(tenant = %updated.name, suspended = updated.suspended_at.is_some(), %actor, "a tenant was changed");
    Ok(updated)
}

/// At most `limit` members of a tenant, by name, after `after`.
///
/// # Errors
/// When the store fails.
pub async fn members(
    state: &State,
    tenant: TenantId,
    after: &str,
    limit: u32,
) -> Result<Vec<MemberInfo>, Error> {
    Ok(member_list(&mut *state.store.read().await?, tenant, after, limit).await?)
}

/// Returns a member.
///
/// # Errors
/// When there is no such member or the store fails.
pub async fn member(state: &State, tenant: TenantId, user: &UserName) -> Result<MemberInfo, Error> {
    let found = member_get(&mut *state.store.read().await?, tenant, user).await?;
    found.ok_or_else(|| no_member(user))
}

fn no_member(user: &UserName) -> Error {
    Error::NotFound {
        what: format!("member {user}"),
        hint: "`fdn member list` shows who is one",
    }
}

/// Fails if a tenant that had an owner now has none.
async fn owner_left(
    connection: &mut AnyConnection,
    tenant: TenantId,
    before: u64,
) -> Result<(), Error> {
    if before > 0 && member_count_owners(connection, tenant).await? == 0 {
        return Err(Error::LastOfItsKind(
            "this is the tenant's last owner; make somebody else an owner first".to_owned(),
        ));
    }
    Ok(())
}

/// Adds a member or changes a member's role. Setting the same role again changes nothing.
///
/// # Errors
/// When the user does not exist, the precondition fails, no owner would be left, or the store fails.
pub async fn put_member(
    state: &State,
    actor: &Actor,
    (tenant, user): (TenantId, &UserName),
    request: PutMember,
    expected: &Precondition,
) -> Result<MemberInfo, Error> {
    let (now, role) = (fdn_service::now(), request.role);
    let member: MemberInfo = in_transaction!(state.store, tx => {
        // The lock makes counting and changing owners one step across all controllers.
        revision_lock(&mut tx).await?;
        known_user(&mut tx, user).await?;
        let old = member_get(&mut tx, tenant, user).await?;
        match &old {
            Some(old) => expected.holds(&tag(old.generation))?,
            None => expected.holds_for_nothing()?,
        }
        if let Some(same) = old.clone().filter(|old| old.role == role) {
            return Ok(same);
        }
        let owners = member_count_owners(&mut tx, tenant).await?;
        member_upsert(&mut tx, tenant, user, role, (&actor.name, now)).await?;
        owner_left(&mut tx, tenant, owners).await?;
        let entry = AuditEntry {
            subject: format!("member/{user}"),
            before: old.map(|old| json!({ "role": old.role }).to_string()),
            after: Some(json!({ "role": role }).to_string()),
            ..audit(actor, tenant, "member.put", now)
        };
        audit_insert(&mut tx, &entry).await?;
        let new = member_get(&mut tx, tenant, user).await?;
        new.ok_or_else(|| no_member(user))
    })?;
    info!(%tenant, %user, %role, %actor, "a member has a role");
    Ok(member)
}

/// Removes a member.
///
/// # Errors
/// When there is no such member, the precondition fails, no owner would be left, or the store fails.
pub async fn remove_member(
    state: &State,
    actor: &Actor,
    (tenant, user): (TenantId, &UserName),
    expected: &Precondition,
) -> Result<(), Error> {
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        revision_lock(&mut tx).await?;
        let old = member_get(&mut tx, tenant, user).await?.ok_or_else(|| no_member(user))?;
        expected.holds(&tag(old.generation))?;
        let owners = member_count_owners(&mut tx, tenant).await?;
        member_delete(&mut tx, tenant, user).await?;
        owner_left(&mut tx, tenant, owners).await?;
        let entry = AuditEntry {
            subject: format!("member/{user}"),
            before: Some(json!({ "role": old.role }).to_string()),
            ..audit(actor, tenant, "member.remove", now)
        };
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    info!(%tenant, %user, %actor, "a member was removed");
    Ok(())
}
