//! Traffic splits of apps between versions.

use fdn_core::policy::Traffic;
use fdn_core::{AppName, Revision, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json};

/// The split of one app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficRow {
    /// The app.
    pub app: AppName,
    /// The split.
    pub traffic: Traffic,
    /// The revision of desired state that introduced it.
    pub revision: Revision,
    /// When it was set.
    pub updated_at: Timestamp,
    /// The account that set it.
    pub updated_by: String,
}

/// A query for all columns of a split, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, traffic, revision, updated_at, updated_by FROM app_traffic ",
            $rest
        )
    };
}

fn traffic_row(row: &AnyRow) -> Result<TrafficRow, StoreError> {
    Ok(TrafficRow {
        app: parsed(row, "app")?,
        traffic: json(row, "traffic")?,
        revision: Revision(number(row, "revision")?),
        updated_at: Timestamp(number(row, "updated_at")?),
        updated_by: row.try_get("updated_by")?,
    })
}

/// The split of an app; `None` if it has none.
///
/// # Errors
/// When the database fails.
pub async fn traffic_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<TrafficRow>, StoreError> {
    let row = sqlx::query(select!("WHERE app = $1"))
        .bind(app.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(traffic_row).transpose()
}

/// All splits, by app.
///
/// # Errors
/// When the database fails.
pub async fn traffic_list(connection: &mut AnyConnection) -> Result<Vec<TrafficRow>, StoreError> {
    let rows = sqlx::query(select!("ORDER BY app"))
        .fetch_all(connection)
        .await?;
    rows.iter().map(traffic_row).collect()
}

/// Inserts or updates a split.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn traffic_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    row: &TrafficRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO app_traffic (app, tenant, traffic, revision, updated_at, updated_by) \
         VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (app) DO UPDATE SET traffic = excluded.traffic, revision = excluded.revision, \
         updated_at = excluded.updated_at, updated_by = excluded.updated_by",
    )
    .bind(row.app.as_str())
    .bind(tenant.to_string())
    .bind(to_json(&row.traffic, "app_traffic.traffic")?)
    .bind(stored(row.revision.get()))
    .bind(stored(row.updated_at.get()))
    .bind(&row.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the split of an app; returns whether there was one.
///
/// # Errors
/// When the database fails.
pub async fn traffic_delete(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM app_traffic WHERE app = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}
