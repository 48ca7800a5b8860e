//! Demand: which client prefixes asked for which app, as DNS reported it. The planner, which knows the apps' callers, limits the rows of each app.

use fdn_core::{AppName, ClientPrefix, DurationMs, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// The demand of one prefix for one app.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandRow {
    /// The app.
    pub app: AppName,
    /// The clients' prefix.
    pub prefix: ClientPrefix,
    /// The number of queries.
    pub queries: u64,
    /// The number of recent queries, as of `last_seen`: those that came `memory` ago count half.
    pub recent: f64,
    /// The time of the last query.
    pub last_seen: Timestamp,
}

impl DemandRow {
    /// The number of recent queries, as of `now`.
    #[must_use]
    pub fn recent_at(&self, now: Timestamp, memory: DurationMs) -> f64 {
        let memory = memory.as_duration().as_secs_f64();
        self.recent * memory / (memory + now.since(self.last_seen).as_secs_f64())
    }
}

/// All demand, by app, newest first.
///
/// # Errors
/// When the database fails.
pub async fn demand_list(connection: &mut AnyConnection) -> Result<Vec<DemandRow>, StoreError> {
    let rows = sqlx::query("SELECT app, prefix, queries, recent, last_seen FROM demand ORDER BY app, last_seen DESC, prefix")
        .fetch_all(connection)
        .await?;
    rows.iter().map(demand_row).collect()
}

pub(super) fn demand_row(row: &AnyRow) -> Result<DemandRow, StoreError> {
    Ok(DemandRow {
        app: parsed(row, "app")?,
        prefix: parsed(row, "prefix")?,
        queries: number(row, "queries")?,
        recent: row.try_get("recent")?,
        last_seen: Timestamp(number(row, "last_seen")?),
    })
}

/// Adds queries of a prefix, and decays the recent ones: of those that came `memory` ago, half is left. Demand for an app that does not exist (any
/// more) is dropped.
///
/// # Errors
/// When the database fails.
pub async fn demand_add(
    connection: &mut AnyConnection,
    demand: &DemandRow,
    memory: DurationMs,
) -> Result<(), StoreError> {
    // The databases have no exponential function in common; a hyperbola, 1/(1+t), decays as well, and never suddenly to zero.
    sqlx::query(
        "INSERT INTO demand (app, prefix, queries, recent, last_seen) \
         SELECT name, $2, $3, $5, $4 FROM apps WHERE name = $1 \
         ON CONFLICT (app, prefix) DO UPDATE SET queries = demand.queries + excluded.queries, \
         recent = excluded.recent + demand.recent * $6 / ($6 + CASE WHEN excluded.last_seen > demand.last_seen \
         THEN excluded.last_seen - demand.last_seen ELSE 0 END), \
         last_seen = CASE WHEN excluded.last_seen > demand.last_seen THEN excluded.last_seen ELSE demand.last_seen END",
    )
    .bind(demand.app.as_str())
    .bind(demand.prefix.to_string())
    .bind(stored(demand.queries))
    .bind(stored(demand.last_seen.get()))
    .bind(demand.recent)
    .bind(memory.as_millis().max(1) as f64)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the demand of a prefix for an app.
///
/// # Errors
/// When the database fails.
pub async fn demand_delete(
    connection: &mut AnyConnection,
    app: &AppName,
    prefix: ClientPrefix,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM demand WHERE app = $1 AND prefix = $2")
        .bind(app.as_str())
        .bind(prefix.to_string())
        .execute(connection)
        .await?;
    Ok(())
}
