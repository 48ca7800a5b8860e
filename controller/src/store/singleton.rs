//! Leases on work that only one controller does at a time.

use fdn_core::Timestamp;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::stored;

/// Takes or renews the lease on the work `name` until `until`, unless another holder has it; returns whether `holder` has it now. It is one
/// statement, so of several concurrent requests only one succeeds.
///
/// # Errors
/// When the database fails.
pub async fn singleton_acquire(
    connection: &mut AnyConnection,
    name: &str,
    holder: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO singletons (name, holder, expires_at) VALUES ($1, $2, $3) \
         ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at \
         WHERE singletons.holder = excluded.holder OR singletons.expires_at <= $4",
    )
    .bind(name)
    .bind(holder)
    .bind(stored(until.get()))
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends all leases of a holder.
///
/// # Errors
/// When the database fails.
pub async fn singleton_release(
    connection: &mut AnyConnection,
    holder: &str,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM singletons WHERE holder = $1")
        .bind(holder)
        .execute(connection)
        .await?;
    Ok(())
}

/// All leases: name of the work, holder, end.
///
/// # Errors
/// When the database fails.
pub async fn singleton_list(
    connection: &mut AnyConnection,
) -> Result<Vec<(String, String, Timestamp)>, StoreError> {
    let rows = sqlx::query("SELECT name, holder, expires_at FROM singletons ORDER BY name")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.try_get("name")?,
                row.try_get("holder")?,
                Timestamp(super::row::number(row, "expires_at")?),
            ))
        })
        .collect()
}
