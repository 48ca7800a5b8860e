//! Demand: which client prefixes asked for which app, as DNS reported it. Bounded for each app; the longest unseen prefix goes first.

use fdn_core::{AppName, ClientPrefix, Timestamp};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{number, parsed, stored};

/// What is known of one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandRow {
    /// The app.
    pub app: AppName,
    /// Who asked.
    pub prefix: ClientPrefix,
    /// How often.
    pub queries: u64,
    /// When last.
    pub last_seen: Timestamp,
}

/// All demand, by app, newest first.
///
/// # Errors
/// When the database fails.
pub async fn demand_list(connection: &mut AnyConnection) -> Result<Vec<DemandRow>, StoreError> {
    let rows = sqlx::query("SELECT * FROM demand ORDER BY app, last_seen DESC, prefix")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(DemandRow {
                app: parsed(row, "app")?,
                prefix: parsed(row, "prefix")?,
                queries: number(row, "queries")?,
                last_seen: Timestamp(number(row, "last_seen")?),
            })
        })
        .collect()
}

/// Adds queries of a prefix. Demand for an app that does not exist (any more) is dropped.
///
/// # Errors
/// When the database fails.
pub async fn demand_add(
    connection: &mut AnyConnection,
    demand: &DemandRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO demand (app, prefix, queries, last_seen) \
         SELECT name, $2, $3, $4 FROM apps WHERE name = $1 \
         ON CONFLICT (app, prefix) DO UPDATE SET queries = demand.queries + excluded.queries, last_seen = excluded.last_seen",
    )
    .bind(demand.app.as_str())
    .bind(demand.prefix.to_string())
    .bind(stored(demand.queries))
    .bind(stored(demand.last_seen.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps the `keep` prefixes of an app that were seen last.
///
/// # Errors
/// When the database fails.
pub async fn demand_trim(
    connection: &mut AnyConnection,
    app: &AppName,
    keep: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM demand WHERE app = $1 AND prefix NOT IN \
         (SELECT prefix FROM demand WHERE app = $1 ORDER BY last_seen DESC, prefix LIMIT $2)",
    )
    .bind(app.as_str())
    .bind(i64::from(keep))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
