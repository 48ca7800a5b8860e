//! The revision counter.

use fdn_core::Revision;
use sqlx::AnyConnection;

use super::StoreError;
use super::row::number;

/// Takes the next revision. The counter's row stays locked until the transaction ends, so revisions are committed in order.
///
/// # Errors
/// When the database fails.
pub async fn revision_next(connection: &mut AnyConnection) -> Result<Revision, StoreError> {
    let row = sqlx::query(
        "UPDATE counters SET value = value + 1 WHERE name = 'revision' RETURNING value",
    )
    .fetch_one(connection)
    .await?;
    number(&row, "value").map(Revision)
}

/// Takes the lock of [`revision_next`] without taking a revision, so that the transaction's reads and writes are atomic to all controllers; returns
/// the last revision taken.
///
/// # Errors
/// When the database fails.
pub async fn revision_lock(connection: &mut AnyConnection) -> Result<Revision, StoreError> {
    let row =
        sqlx::query("UPDATE counters SET value = value WHERE name = 'revision' RETURNING value")
            .fetch_one(connection)
            .await?;
    number(&row, "value").map(Revision)
}

/// The last revision taken.
///
/// # Errors
/// When the database fails.
pub async fn revision_current(connection: &mut AnyConnection) -> Result<Revision, StoreError> {
    let row = sqlx::query("SELECT value FROM counters WHERE name = 'revision'")
        .fetch_one(connection)
        .await?;
    number(&row, "value").map(Revision)
}
