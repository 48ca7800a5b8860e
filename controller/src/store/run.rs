//! Workflow runs: the newest ones of each app, as last reported by the gateways that lead them.

use fdn_core::runs::RunInfo;
use fdn_core::{AppName, RunId};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{json, to_json};

/// Inserts a run, or replaces an older record of it. A run of an app that does not exist (any more) is dropped.
///
/// # Errors
/// When the database fails.
pub async fn run_upsert(connection: &mut AnyConnection, run: &RunInfo) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO runs (app, id, request, changes, record) SELECT name, $2, $3, $4, $5 FROM apps WHERE name = $1 \
         ON CONFLICT (app, id) DO UPDATE SET changes = excluded.changes, record = excluded.record \
         WHERE runs.changes < excluded.changes",
    )
    .bind(run.app.as_str())
    .bind(run.run.to_string())
    .bind(&run.request)
    .bind(i64::from(run.changes))
    .bind(to_json(run, "runs.record")?)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes all but the `keep` newest runs of an app; returns how many were deleted.
///
/// # Errors
/// When the database fails.
pub async fn run_trim(
    connection: &mut AnyConnection,
    app: &AppName,
    keep: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM runs WHERE app = $1 AND id NOT IN \
         (SELECT id FROM runs WHERE app = $1 ORDER BY id DESC LIMIT $2)",
    )
    .bind(app.as_str())
    .bind(i64::from(keep))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Runs of an app before the id `before` (if empty, from the newest), newest first, at most `limit`; with `request`, only those of that call.
///
/// # Errors
/// When the database fails.
pub async fn run_page(
    connection: &mut AnyConnection,
    app: &AppName,
    request: Option<&str>,
    before: &str,
    limit: u32,
) -> Result<Vec<RunInfo>, StoreError> {
    let rows = sqlx::query(
        "SELECT record FROM runs WHERE app = $1 AND ($2 = '' OR request = $2) AND ($3 = '' OR id < $3) \
         ORDER BY id DESC LIMIT $4",
    )
    .bind(app.as_str())
    .bind(request.unwrap_or_default())
    .bind(before)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| json(row, "record")).collect()
}

/// One run of an app.
///
/// # Errors
/// When the database fails.
pub async fn run_get(
    connection: &mut AnyConnection,
    app: &AppName,
    run: RunId,
) -> Result<Option<RunInfo>, StoreError> {
    let row = sqlx::query("SELECT record FROM runs WHERE app = $1 AND id = $2")
        .bind(app.as_str())
        .bind(run.to_string())
        .fetch_optional(connection)
        .await?;
    row.map(|row| json(&row, "record")).transpose()
}
