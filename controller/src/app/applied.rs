//! Applied sets: what was applied together from declared files (`fdn apply`), stored by name, so that a later apply can delete what is no longer
//! declared and leave alone what others created.

use fdn_core::applied::{AppliedSet, ITEMS_MAX, Item, SETS_MAX, SetName};
use fdn_core::{TenantId, Timestamp};
use std::collections::BTreeSet;

use super::actor::Actor;
use super::precondition::{Precondition, tag_of};
use crate::Error;
use crate::state::State;
use crate::store::applied::{applied_count, applied_get, applied_upsert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::revision_lock;

/// Returns a set; an empty one if nothing was applied under this name.
///
/// # Errors
/// When the store fails.
pub async fn get(state: &State, tenant: TenantId, set: &SetName) -> Result<AppliedSet, Error> {
    let found = applied_get(&mut *state.store.read().await?, tenant, set).await?;
    Ok(found.unwrap_or_else(|| AppliedSet::empty(set.clone())))
}

/// Stores what was applied. Storing the same items again changes nothing.
///
/// # Errors
/// When there are too many items or sets, the set has been changed by somebody else, or the store fails.
pub async fn put(
    state: &State,
    (tenant, actor): (TenantId, &Actor),
    set: &SetName,
    (items, expected): (&BTreeSet<Item>, &Precondition),
    now: Timestamp,
) -> Result<AppliedSet, Error> {
    if items.len() > ITEMS_MAX {
        return Err(Error::BadRequest(format!(
            "items: at most {ITEMS_MAX}, not {}",
            items.len()
        )));
    }
    let wanted = AppliedSet {
        set: set.clone(),
        items: items.clone(),
        applied_at: Some(now),
        applied_by: Some(actor.to_string()),
    };
    in_transaction!(state.store, tx => {
        // The lock makes counting and inserting one step across all controllers.
        revision_lock(&mut tx).await?;
        let before = applied_get(&mut tx, tenant, set).await?;
        let none = BTreeSet::new();
        expected.holds(&tag_of(before.as_ref().map_or(&none, |before| &before.items))?)?;
        if let Some(same) = before.clone().filter(|before| before.items == *items) {
            return Ok(same);
        }
        if before.is_none() && applied_count(&mut tx, tenant).await? >= SETS_MAX {
            return Err(Error::Conflict(format!("there are {SETS_MAX} sets; apply under one of their names")));
        }
        applied_upsert(&mut tx, tenant, &wanted).await?;
        let text = |items: &BTreeSet<Item>| Some(serde_json::json!({ "items": items }).to_string());
        let entry = AuditEntry {
            at: now,
            actor: actor.clone(),
            tenant: Some(tenant),
            action: "set.put",
            subject: format!("set/{set}"),
            before: before.and_then(|before| text(&before.items)),
            after: text(items),
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(wanted.clone())
    })
}
