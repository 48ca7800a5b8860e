//! Budgets of tenants, and the alerts they raised.

use fdn_core::billing::{Budget, BudgetAlert, BudgetName, Money};
use fdn_core::{TenantId, Timestamp};
use sqlx::{AnyConnection, Row};

use super::{StoreError, month};
use crate::store::row::{json, number, parsed, stored, to_json};

/// Inserts or updates a budget.
///
/// # Errors
/// When the database fails.
pub async fn budget_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    budget: &Budget,
    actor: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO budgets (tenant, name, budget, changed_at, changed_by) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (tenant, name) DO UPDATE SET budget = excluded.budget, changed_at = excluded.changed_at, \
         changed_by = excluded.changed_by",
    )
    .bind(tenant.to_string())
    .bind(budget.name.as_str())
    .bind(to_json(budget, "budgets.budget")?)
    .bind(stored(now.get()))
    .bind(actor)
    .execute(connection)
    .await?;
    Ok(())
}

/// Budgets of a tenant, by name.
///
/// # Errors
/// When the database fails.
pub async fn budget_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<Vec<Budget>, StoreError> {
    let rows = sqlx::query("SELECT budget FROM budgets WHERE tenant = $1 ORDER BY name")
        .bind(tenant.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| json(row, "budget")).collect()
}

/// Budgets of a tenant that were last changed before `before`, by name.
///
/// # Errors
/// When the database fails.
pub async fn budget_list_before(
    connection: &mut AnyConnection,
    tenant: TenantId,
    before: Timestamp,
) -> Result<Vec<Budget>, StoreError> {
    let rows = sqlx::query(
        "SELECT budget FROM budgets WHERE tenant = $1 AND changed_at < $2 ORDER BY name",
    )
    .bind(tenant.to_string())
    .bind(stored(before.get()))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| json(row, "budget")).collect()
}

/// Removes a budget; returns whether there was one. Its alerts stay.
///
/// # Errors
/// When the database fails.
pub async fn budget_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    name: &BudgetName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM budgets WHERE tenant = $1 AND name = $2")
        .bind(tenant.to_string())
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// The tenants that have a budget.
///
/// # Errors
/// When the database fails.
pub async fn budget_tenants(connection: &mut AnyConnection) -> Result<Vec<TenantId>, StoreError> {
    let rows = sqlx::query("SELECT DISTINCT tenant FROM budgets ORDER BY tenant")
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| parsed(row, "tenant")).collect()
}

/// Inserts an alert unless the threshold has raised one this month; returns whether it is new.
///
/// # Errors
/// When the database fails.
pub async fn alert_insert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    alert: &BudgetAlert,
) -> Result<bool, StoreError> {
    let new = sqlx::query(
        "INSERT INTO budget_alerts (tenant, budget, month, threshold, spent, spend_max, currency, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, budget, month, threshold) DO NOTHING",
    )
    .bind(tenant.to_string())
    .bind(alert.budget.as_str())
    .bind(i64::from(alert.month.index()))
    .bind(i64::from(alert.threshold))
    .bind(alert.spent.micros)
    .bind(alert.limit.micros)
    .bind(alert.limit.currency.to_string())
    .bind(stored(alert.at.get()))
    .execute(connection)
    .await?;
    Ok(new.rows_affected() == 1)
}

/// Alerts of a tenant, newest first: at most `limit`, after skipping the first `from`.
///
/// # Errors
/// When the database fails.
pub async fn alert_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    (from, limit): (u64, u32),
) -> Result<Vec<BudgetAlert>, StoreError> {
    let rows = sqlx::query(
        "SELECT budget, month, threshold, spent, spend_max, currency, at FROM budget_alerts WHERE tenant = $1 \
         ORDER BY at DESC, budget, month, threshold DESC LIMIT $2 OFFSET $3",
    )
    .bind(tenant.to_string())
    .bind(i64::from(limit))
    .bind(stored(from))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let currency = parsed(row, "currency")?;
            let threshold = number(row, "threshold")?;
            Ok(BudgetAlert {
                budget: parsed(row, "budget")?,
                month: month(row, "month")?,
                threshold: u16::try_from(threshold)
                    .map_err(|e| StoreError::corrupt("threshold", e))?,
                spent: Money::new(row.try_get("spent")?, currency),
                limit: Money::new(row.try_get("spend_max")?, currency),
                at: Timestamp(number(row, "at")?),
            })
        })
        .collect()
}
