//! Budgets of tenants.

use fdn_core::billing::{Budget, BudgetAlert, BudgetName, BudgetSet, SetBudget};
use fdn_core::{TenantId, Timestamp};
use tracing::info;

use super::bill::Page;
use crate::Error;
use crate::app::actor::Actor;
use crate::app::job::JobError;
use crate::jobs::webhooks;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::billing::budget::{alert_list, budget_delete, budget_list, budget_upsert};
use crate::store::in_transaction;
use crate::store::revision::revision_lock;

/// The budgets of a tenant, by name.
///
/// # Errors
/// When the store fails.
pub async fn list(state: &State, tenant: TenantId) -> Result<Vec<Budget>, Error> {
    Ok(budget_list(&mut *state.store.read().await?, tenant).await?)
}

/// Creates or replaces a budget. Thresholds that have raised their alert this month do not raise another one.
///
/// # Errors
/// When it is not valid, its webhook address is not allowed, there are too many budgets, or the store fails.
pub async fn set(
    state: &State,
    (tenant, actor): (TenantId, &Actor),
    name: &BudgetName,
    request: &SetBudget,
    now: Timestamp,
) -> Result<BudgetSet, Error> {
    let settings = &state.settings.billing;
    if let Some(url) = &request.webhook {
        webhooks::check(url, state.settings.jobs.webhooks.private).map_err(JobError::Webhook)?;
    }
    let budget = Budget::new(name.clone(), request, settings.currency)?;
    in_transaction!(state.store, tx => {
        // The lock makes counting and inserting one step across all controllers.
        revision_lock(&mut tx).await?;
        let all = budget_list(&mut tx, tenant).await?;
        let old = all.iter().find(|old| old.name == *name);
        if old.is_none() && all.len() >= settings.budgets_max as usize {
            return Err(Error::Conflict(format!("there are {} budgets; remove one: fdn budget remove NAME", all.len())));
        }
        budget_upsert(&mut tx, tenant, &budget, &actor.to_string(), now).await?;
        let entry = audit((tenant, actor), "budget.set", name, (old, Some(&budget)), now);
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(())
    })?;
    info!(budget = %name, limit = %budget.limit, %actor, "a budget was set");
    let secret = || webhooks::budget_secret(state, tenant).expose().to_owned();
    Ok(BudgetSet {
        webhook_secret: budget.webhook.as_ref().map(|_| secret()),
        budget,
    })
}

/// Removes a budget.
///
/// # Errors
/// When there is no such budget or the store fails.
pub async fn remove(
    state: &State,
    (tenant, actor): (TenantId, &Actor),
    name: &BudgetName,
    now: Timestamp,
) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        let all = budget_list(&mut tx, tenant).await?;
        let old = all.iter().find(|old| old.name == *name);
        if !budget_delete(&mut tx, tenant, name).await? {
            return Err(Error::NotFound {
                what: format!("budget {name}"),
                hint: "`fdn budget list` shows what exists",
            });
        }
        audit_insert(&mut tx, &audit((tenant, actor), "budget.remove", name, (old, None), now)).await?;
        Ok::<_, Error>(())
    })?;
    info!(budget = %name, %actor, "a budget was removed");
    Ok(())
}

/// The budget alerts of a tenant, newest first.
///
/// # Errors
/// When the store fails.
pub async fn alerts(
    state: &State,
    tenant: TenantId,
    page: Page,
) -> Result<Vec<BudgetAlert>, Error> {
    let mut connection = state.store.read().await?;
    Ok(alert_list(&mut connection, tenant, (page.from, page.limit)).await?)
}

fn audit(
    (tenant, actor): (TenantId, &Actor),
    action: &'static str,
    name: &BudgetName,
    (before, after): (Option<&Budget>, Option<&Budget>),
    now: Timestamp,
) -> AuditEntry {
    let text = |budget: Option<&Budget>| budget.and_then(|b| serde_json::to_string(b).ok());
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: Some(tenant),
        action,
        subject: format!("budget/{name}"),
        before: text(before),
        after: text(after),
    }
}
