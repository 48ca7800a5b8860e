//! Sets of resources that were applied together from files, by tenant and name.

use fdn_core::applied::{AppliedSet, SetName};
use fdn_core::{TenantId, Timestamp};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, stored, to_json};

/// The stored set of this name; `None` if there is none.
///
/// # Errors
/// When the database fails.
pub async fn applied_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    set: &SetName,
) -> Result<Option<AppliedSet>, StoreError> {
    let row = sqlx::query(
        "SELECT items, applied_at, applied_by FROM applied WHERE tenant = $1 AND name = $2",
    )
    .bind(tenant.to_string())
    .bind(set.as_str())
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        Ok(AppliedSet {
            set: set.clone(),
            items: json(&row, "items")?,
            applied_at: Some(Timestamp(number(&row, "applied_at")?)),
            applied_by: Some(row.try_get("applied_by")?),
        })
    })
    .transpose()
}

/// Inserts a set, or replaces the stored one.
///
/// # Errors
/// When the database fails.
pub async fn applied_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    set: &AppliedSet,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO applied (tenant, name, items, applied_at, applied_by) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (tenant, name) DO UPDATE SET items = excluded.items, applied_at = excluded.applied_at, applied_by = excluded.applied_by",
    )
    .bind(tenant.to_string())
    .bind(set.set.as_str())
    .bind(to_json(&set.items, "applied.items")?)
    .bind(stored(set.applied_at.unwrap_or_default().get()))
    .bind(set.applied_by.clone().unwrap_or_default())
    .execute(connection)
    .await?;
    Ok(())
}

/// The number of sets of a tenant.
///
/// # Errors
/// When the database fails.
pub async fn applied_count(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS sets FROM applied WHERE tenant = $1")
        .bind(tenant.to_string())
        .fetch_one(connection)
        .await?;
    number(&row, "sets")
}
