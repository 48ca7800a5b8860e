//! Host names of apps beside their own.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{AppName, HostName, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored, time_or_none};

/// A host name that somebody claims for an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRow {
    /// The app.
    pub app: AppName,
    /// The name.
    pub host: HostName,
    /// Whose app it is.
    pub tenant: TenantId,
    /// What the proof holds.
    pub token: String,
    /// Whether it is proven.
    pub proven: bool,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Who asked for it.
    pub created_by: String,
    /// When it was proven.
    pub verified_at: Option<Timestamp>,
    /// When the proof was looked for last.
    pub checked_at: Option<Timestamp>,
    /// Since when the proof is missing, of one that is proven.
    pub failing_since: Option<Timestamp>,
    /// What was wrong when it was looked for last.
    pub problem: Option<String>,
}

/// The columns that a row is made of, and what else a query says.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, host, tenant, token, proven, created_at, created_by, verified_at, checked_at, failing_since, problem FROM app_domains ",
            $rest
        )
    };
}

fn domain_row(row: &AnyRow) -> Result<DomainRow, StoreError> {
    let proven: Option<String> = row.try_get("proven")?;
    Ok(DomainRow {
        app: parsed(row, "app")?,
        host: parsed(row, "host")?,
        tenant: parsed(row, "tenant")?,
        token: row.try_get("token")?,
        proven: proven.is_some(),
        created_at: Timestamp(number(row, "created_at")?),
        created_by: row.try_get("created_by")?,
        verified_at: time_or_none(row, "verified_at")?,
        checked_at: time_or_none(row, "checked_at")?,
        failing_since: time_or_none(row, "failing_since")?,
        problem: row.try_get("problem")?,
    })
}

/// The names of an app, proven or not.
///
/// # Errors
/// When the database fails.
pub async fn domain_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<DomainRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE app = $1 ORDER BY host"))
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(domain_row).collect()
}

/// One name of an app.
///
/// # Errors
/// When the database fails.
pub async fn domain_get(
    connection: &mut AnyConnection,
    app: &AppName,
    host: &HostName,
) -> Result<Option<DomainRow>, StoreError> {
    let row = sqlx::query(select!("WHERE app = $1 AND host = $2"))
        .bind(app.as_str())
        .bind(host.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(domain_row).transpose()
}

/// The app that a name is proven for.
///
/// # Errors
/// When the database fails.
pub async fn domain_owner(
    connection: &mut AnyConnection,
    host: &HostName,
) -> Result<Option<AppName>, StoreError> {
    let row = sqlx::query("SELECT app FROM app_domains WHERE proven = $1")
        .bind(host.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(|row| parsed(row, "app")).transpose()
}

/// The names that an app answers to.
///
/// # Errors
/// When the database fails.
pub async fn domain_hosts(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<BTreeSet<HostName>, StoreError> {
    let rows = sqlx::query("SELECT host FROM app_domains WHERE app = $1 AND proven IS NOT NULL")
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| parsed(row, "host")).collect()
}

/// The names that all apps answer to.
///
/// # Errors
/// When the database fails.
pub async fn domain_hosts_all(
    connection: &mut AnyConnection,
) -> Result<BTreeMap<AppName, BTreeSet<HostName>>, StoreError> {
    let rows = sqlx::query("SELECT app, host FROM app_domains WHERE proven IS NOT NULL")
        .fetch_all(connection)
        .await?;
    let mut all: BTreeMap<AppName, BTreeSet<HostName>> = BTreeMap::new();
    for row in &rows {
        all.entry(parsed(row, "app")?)
            .or_default()
            .insert(parsed(row, "host")?);
    }
    Ok(all)
}

/// Names that are to be looked at: those in order if they were not since `good`, all others if they were not since `other`. Longest ago first,
/// at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn domain_list_due(
    connection: &mut AnyConnection,
    (good, other): (Timestamp, Timestamp),
    limit: u32,
) -> Result<Vec<DomainRow>, StoreError> {
    let rows = sqlx::query(select!(
        "WHERE COALESCE(checked_at, 0) < $1 \
         OR ((proven IS NULL OR failing_since IS NOT NULL) AND COALESCE(checked_at, 0) < $2) \
         ORDER BY COALESCE(checked_at, 0), app, host LIMIT $3"
    ))
    .bind(stored(good.get()))
    .bind(stored(other.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(domain_row).collect()
}

/// Writes a name of an app.
///
/// # Errors
/// When the database fails, there is no such app, or the name is proven for another one.
pub async fn domain_upsert(
    connection: &mut AnyConnection,
    row: &DomainRow,
) -> Result<(), StoreError> {
    let time = |at: Option<Timestamp>| at.map(|at| stored(at.get()));
    sqlx::query(
        "INSERT INTO app_domains (app, host, tenant, token, proven, created_at, created_by, verified_at, checked_at, failing_since, problem) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         ON CONFLICT (app, host) DO UPDATE SET proven = excluded.proven, verified_at = excluded.verified_at, \
         checked_at = excluded.checked_at, failing_since = excluded.failing_since, problem = excluded.problem",
    )
    .bind(row.app.as_str())
    .bind(row.host.as_str())
    .bind(row.tenant.to_string())
    .bind(&row.token)
    .bind(row.proven.then(|| row.host.as_str().to_owned()))
    .bind(stored(row.created_at.get()))
    .bind(&row.created_by)
    .bind(time(row.verified_at))
    .bind(time(row.checked_at))
    .bind(time(row.failing_since))
    .bind(row.problem.clone())
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a name of an app; whether there was one.
///
/// # Errors
/// When the database fails.
pub async fn domain_delete(
    connection: &mut AnyConnection,
    app: &AppName,
    host: &HostName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM app_domains WHERE app = $1 AND host = $2")
        .bind(app.as_str())
        .bind(host.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}
