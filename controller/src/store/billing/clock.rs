//! The month that is open for booking. Storing usage holds a shared lock on the clock's row until its transaction ends, and closing a month takes it
//! exclusively: so nothing is booked into a month after it was closed.

use fdn_core::Timestamp;
use fdn_core::billing::Month;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use crate::store::dialect::lock_shared;

/// The first open month, held open until the transaction of `connection` ends. `None` before the first run of the billing loop, when all months
/// are open.
///
/// # Errors
/// When the database fails.
pub async fn clock_lock(connection: &mut AnyConnection) -> Result<Option<Month>, StoreError> {
    let text = lock_shared(
        "SELECT open_month FROM billing_clock WHERE id = 1",
        connection,
    );
    read(connection, text).await
}

/// The first open month at present.
///
/// # Errors
/// When the database fails.
pub async fn clock_get(connection: &mut AnyConnection) -> Result<Option<Month>, StoreError> {
    let text = "SELECT open_month FROM billing_clock WHERE id = 1".to_owned();
    read(connection, text).await
}

async fn read(connection: &mut AnyConnection, text: String) -> Result<Option<Month>, StoreError> {
    // The text is one of the two constants above.
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .fetch_one(connection)
        .await?;
    let index: i64 = row.try_get("open_month")?;
    Ok(u32::try_from(index).ok().and_then(Month::from_index))
}

/// Sets the clock for the first time; does nothing if it was set.
///
/// # Errors
/// When the database fails.
pub async fn clock_begin(connection: &mut AnyConnection, month: Month) -> Result<(), StoreError> {
    sqlx::query("UPDATE billing_clock SET open_month = $1, issue_month = $1 WHERE id = 1 AND open_month = 0")
        .bind(i64::from(month.index()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Closes the first open month if it still is `month`, after waiting for usage that is being stored; returns whether it closed it.
///
/// # Errors
/// When the database fails.
pub async fn clock_close(connection: &mut AnyConnection, month: Month) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE billing_clock SET open_month = $1 + 1 WHERE id = 1 AND open_month = $1",
    )
    .bind(i64::from(month.index()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The first closed month whose statements are not all issued.
///
/// # Errors
/// When the database fails.
pub async fn clock_to_issue(connection: &mut AnyConnection) -> Result<Option<Month>, StoreError> {
    let row = sqlx::query(
        "SELECT issue_month FROM billing_clock WHERE id = 1 AND issue_month < open_month",
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| super::month(&row, "issue_month")).transpose()
}

/// Records that all statements of a month are issued.
///
/// # Errors
/// When the database fails.
pub async fn clock_issued(connection: &mut AnyConnection, month: Month) -> Result<(), StoreError> {
    sqlx::query("UPDATE billing_clock SET issue_month = $1 + 1 WHERE id = 1 AND issue_month = $1")
        .bind(i64::from(month.index()))
        .execute(connection)
        .await?;
    Ok(())
}

/// The time of the oldest known usage or stored artifact; `None` without any.
///
/// # Errors
/// When the database fails.
pub async fn usage_oldest(connection: &mut AnyConnection) -> Result<Option<Timestamp>, StoreError> {
    let row = sqlx::query(
        "SELECT MIN(t.at) AS at FROM (SELECT MIN(started_at) AS at FROM usage_records \
         UNION ALL SELECT MIN(at) AS at FROM usage_days UNION ALL SELECT MIN(stored_at) AS at FROM stored_artifacts) t",
    )
    .fetch_one(connection)
    .await?;
    let at: Option<i64> = row.try_get("at")?;
    Ok(at.map(|at| Timestamp(u64::try_from(at).unwrap_or_default())))
}
