//! Deletion of users and tenants. Their names stay in the audit log and on bills.

use fdn_core::account::TenantRef;
use fdn_core::{NetworkRole, Revision, TenantId, TenantRole, Timestamp, UserName};
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::precondition::{Precondition, tag};
use super::repository::RepositoryError;
use super::{tenant, user};
use crate::Error;
use crate::reconcile::desired::announce_deletion;
use crate::state::State;
use crate::store::app::{app_delete, app_list_of};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::revision::{revision_lock, revision_next};
use crate::store::tenant::{member_count_owners, member_delete, membership_list, tenant_delete};
use crate::store::user::{user_count_admins, user_delete};
use crate::store::version::{function_delete, function_list};
use crate::store::workflow::workflow_delete_all;
use crate::store::{DEFAULT_TENANT, in_transaction};

/// Deletes a user with memberships, sessions and API tokens.
///
/// # Errors
/// When there is no such user, the precondition fails, a tenant would have no owner or the network no admin, or the store fails.
pub async fn delete_user(
    state: &State,
    actor: &Actor,
    name: &UserName,
    expected: &Precondition,
) -> Result<(), Error> {
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        // The lock makes counting and removing owners and admins one step across all controllers.
        revision_lock(&mut tx).await?;
        let old = user::existing(&mut tx, name).await?.info;
        expected.holds(&tag(old.generation))?;
        for membership in membership_list(&mut tx, name.as_str()).await? {
            let owners = member_count_owners(&mut tx, membership.id).await?;
            member_delete(&mut tx, membership.id, name).await?;
            if membership.role == TenantRole::Owner
                && owners > 0
                && member_count_owners(&mut tx, membership.id).await? == 0
            {
                return Err(Error::LastOfItsKind(format!(
                    "{name} is the last owner of tenant {}; make somebody else an owner first", membership.tenant
                )));
            }
        }
        user_delete(&mut tx, name).await?;
        if old.network_role == Some(NetworkRole::Admin) && user_count_admins(&mut tx).await? == 0 {
            return Err(user::last_admin());
        }
        let entry = AuditEntry {
            before: Some(json!({ "network_role": old.network_role, "disabled_at": old.disabled_at }).to_string()),
            ..user::audit(actor, name, "user.delete", now)
        };
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    info!(user = %name, %actor, "a user was deleted");
    Ok(())
}

/// Deletes a tenant: its apps with their versions if `force`, its members, keys and budgets. Its usage and bills are kept under its id.
///
/// # Errors
/// When there is no such tenant, the precondition fails, it has apps and `force` is not set, it is the default tenant, or the store fails.
pub async fn delete_tenant(
    state: &State,
    actor: &Actor,
    id: TenantId,
    force: bool,
    expected: &Precondition,
) -> Result<(), Error> {
    if id == DEFAULT_TENANT {
        return Err(Error::Conflict(
            "this tenant was there from the beginning and stays; its apps can be deleted"
                .to_owned(),
        ));
    }
    let _alone = state.changes.lock().await;
    let (now, by_id) = (fdn_service::now(), TenantRef::Id(id));
    let apps: u64 = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = tenant::existing(state, &mut tx, &by_id).await?;
        expected.holds(&tag(old.generation))?;
        if old.deleted_at.is_some() {
            return Err(Error::no_tenant(&by_id));
        }
        if old.apps > 0 && !force {
            return Err(RepositoryError::TenantNotEmpty { tenant: old.name, apps: old.apps }.into());
        }
        clear(&mut tx, id, revision, now).await?;
        tenant_delete(&mut tx, id, now).await?;
        let entry = AuditEntry {
            before: Some(json!({ "name": old.name, "apps": old.apps, "members": old.members }).to_string()),
            ..tenant::audit(actor, id, "tenant.delete", now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(old.apps)
    })?;
    state.outbox_wake.notify_one();
    info!(tenant = %id, apps, %actor, "a tenant was deleted");
    Ok(())
}

/// Deletes a tenant's apps and functions.
async fn clear(
    connection: &mut AnyConnection,
    tenant: TenantId,
    revision: Revision,
    now: Timestamp,
) -> Result<(), Error> {
    for app in app_list_of(&mut *connection, tenant).await? {
        app_delete(&mut *connection, &app.name).await?;
        announce_deletion(&mut *connection, &app.name, revision, now).await?;
    }
    // First, since workflows refer to versions of functions.
    workflow_delete_all(&mut *connection, tenant).await?;
    for function in function_list(&mut *connection, tenant).await? {
        function_delete(&mut *connection, tenant, &function, now).await?;
    }
    Ok(())
}
