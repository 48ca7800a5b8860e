//! Custom domains: additional host names of apps.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{AppName, HostName, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored, time_or_none};

/// A host name claimed for an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRow {
    /// The app.
    pub app: AppName,
    /// The host name.
    pub host: HostName,
    /// The tenant of the app.
    pub tenant: TenantId,
    /// The token that the DNS proof must contain.
    pub token: String,
    /// Whether it is verified.
    pub proven: bool,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// The account that claimed it.
    pub created_by: String,
    /// When it was verified.
    pub verified_at: Option<Timestamp>,
    /// When the proof was last looked for.
    pub checked_at: Option<Timestamp>,
    /// Since when the proof is missing, if the name is verified; when it was lost, if it was verified once. `None` for a name that never was.
    pub failing_since: Option<Timestamp>,
    /// The problem at the last check, if any.
    pub problem: Option<String>,
}

/// A query for all columns of a domain, with the rest of the statement.
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

/// The names of an app, verified or not.
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

/// The app for which a name is verified.
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

/// The verified names of an app.
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

/// The verified names of all apps.
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

/// Names due for a check: those in order if last checked before `good`, all others if last checked before `other`. Longest ago first, at most
/// `limit`.
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

/// Inserts or updates a name of an app.
///
/// # Errors
/// When the database fails, there is no such app, or the name is verified for another app.
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

/// Removes a claim that is not verified and was made, or lost, before `stale`.
///
/// # Errors
/// When the database fails.
pub async fn domain_forget(
    connection: &mut AnyConnection,
    app: &AppName,
    host: &HostName,
    stale: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM app_domains WHERE app = $1 AND host = $2 AND proven IS NULL AND COALESCE(failing_since, created_at) < $3",
    )
    .bind(app.as_str())
    .bind(host.as_str())
    .bind(stored(stale.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a name of an app; returns whether there was one.
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
