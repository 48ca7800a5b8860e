//! Objectives of apps, the versions that are watched, and those that broke their objective.

use std::collections::BTreeMap;

use fdn_core::rollout::{BadMark, CallCounts, Objective, RolloutState};
use fdn_core::{AppName, FunctionName, MessageId, NodeId, TenantId, Timestamp, VersionNumber};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json, version};

/// The objective of an app.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveRow {
    /// The app.
    pub app: AppName,
    /// What new versions must keep to.
    pub objective: Objective,
    /// When it was set.
    pub updated_at: Timestamp,
    /// Who set it.
    pub updated_by: String,
}

/// The version that is or was watched last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutRow {
    /// The app.
    pub app: AppName,
    /// This watch, and no other of the app.
    pub id: String,
    /// The version.
    pub candidate: VersionNumber,
    /// What gets its calls if it breaks.
    pub baseline: VersionNumber,
    /// Whether a deploy made the split.
    pub by_deploy: bool,
    /// Whether the version had no calls before.
    pub fresh: bool,
    /// How far it is.
    pub state: RolloutState,
    /// When its window began.
    pub since: Timestamp,
    /// Calls in the window, as last counted.
    pub calls: u64,
    /// Of these, failures.
    pub failures: u64,
    /// Why it broke, or what is waited for.
    pub reason: String,
}

/// What one start of a node counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// When the window began.
    pub base: CallCounts,
    /// Last.
    pub latest: CallCounts,
}

/// A start of a node.
pub type Boot = (NodeId, MessageId);

/// The objective of an app, if it has one.
///
/// # Errors
/// When the database fails.
pub async fn objective_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<ObjectiveRow>, StoreError> {
    let row = sqlx::query(
        "SELECT app, objective, updated_at, updated_by FROM app_objectives WHERE app = $1",
    )
    .bind(app.as_str())
    .fetch_optional(connection)
    .await?;
    let read = |row: AnyRow| {
        Ok(ObjectiveRow {
            app: parsed(&row, "app")?,
            objective: json(&row, "objective")?,
            updated_at: Timestamp(number(&row, "updated_at")?),
            updated_by: row.try_get("updated_by")?,
        })
    };
    row.map(read).transpose()
}

/// Writes an objective.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn objective_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    row: &ObjectiveRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO app_objectives (app, tenant, objective, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (app) DO UPDATE SET objective = excluded.objective, updated_at = excluded.updated_at, \
         updated_by = excluded.updated_by",
    )
    .bind(row.app.as_str())
    .bind(tenant.to_string())
    .bind(to_json(&row.objective, "app_objectives.objective")?)
    .bind(stored(row.updated_at.get()))
    .bind(&row.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the objective of an app away; whether there was one.
///
/// # Errors
/// When the database fails.
pub async fn objective_delete(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM app_objectives WHERE app = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// The columns that a row is made of, and what else a query says.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, id, candidate, baseline, by_deploy, fresh, state, since, calls, failures, reason FROM rollouts ",
            $rest
        )
    };
}

fn rollout_row(row: &AnyRow) -> Result<RolloutRow, StoreError> {
    let state: String = row.try_get("state")?;
    let all = [
        RolloutState::Watching,
        RolloutState::Held,
        RolloutState::Broken,
    ];
    let state = all.into_iter().find(|known| known.as_str() == state);
    Ok(RolloutRow {
        app: parsed(row, "app")?,
        id: row.try_get("id")?,
        candidate: version(row, "candidate")?,
        baseline: version(row, "baseline")?,
        by_deploy: number(row, "by_deploy")? == 1,
        fresh: number(row, "fresh")? == 1,
        state: state.ok_or_else(|| StoreError::corrupt("rollouts.state", "it is none of ours"))?,
        since: Timestamp(number(row, "since")?),
        calls: number(row, "calls")?,
        failures: number(row, "failures")?,
        reason: row.try_get("reason")?,
    })
}

/// The version of an app that is or was watched last.
///
/// # Errors
/// When the database fails.
pub async fn rollout_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<RolloutRow>, StoreError> {
    let row = sqlx::query(select!("WHERE app = $1"))
        .bind(app.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rollout_row).transpose()
}

/// The versions that are watched, by app.
///
/// # Errors
/// When the database fails.
pub async fn rollout_list_watching(
    connection: &mut AnyConnection,
) -> Result<Vec<RolloutRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE state = 'watching' ORDER BY app"))
        .fetch_all(connection)
        .await?;
    rows.iter().map(rollout_row).collect()
}

/// Writes which version is watched, or how far that is.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn rollout_upsert(
    connection: &mut AnyConnection,
    row: &RolloutRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rollouts (app, id, candidate, baseline, by_deploy, fresh, state, since, calls, failures, reason) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         ON CONFLICT (app) DO UPDATE SET id = excluded.id, candidate = excluded.candidate, baseline = excluded.baseline, \
         by_deploy = excluded.by_deploy, fresh = excluded.fresh, state = excluded.state, since = excluded.since, \
         calls = excluded.calls, failures = excluded.failures, reason = excluded.reason",
    )
    .bind(row.app.as_str())
    .bind(&row.id)
    .bind(i64::from(row.candidate.get()))
    .bind(i64::from(row.baseline.get()))
    .bind(i64::from(row.by_deploy))
    .bind(i64::from(row.fresh))
    .bind(row.state.as_str())
    .bind(stored(row.since.get()))
    .bind(stored(row.calls))
    .bind(stored(row.failures))
    .bind(&row.reason)
    .execute(connection)
    .await?;
    Ok(())
}

/// Forgets which version was watched, and what was counted of it.
///
/// # Errors
/// When the database fails.
pub async fn rollout_delete(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM rollouts WHERE app = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// What each start of each node counted of the watched version.
///
/// # Errors
/// When the database fails.
pub async fn counts_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<BTreeMap<Boot, Counted>, StoreError> {
    let rows = sqlx::query("SELECT node, boot, base, latest FROM rollout_counts WHERE app = $1")
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    let read = |row: &AnyRow| {
        let counted = Counted {
            base: json(row, "base")?,
            latest: json(row, "latest")?,
        };
        Ok(((parsed(row, "node")?, parsed(row, "boot")?), counted))
    };
    rows.iter().map(read).collect()
}

/// Writes what a start of a node counted.
///
/// # Errors
/// When the database fails or nothing of the app is watched.
pub async fn counts_upsert(
    connection: &mut AnyConnection,
    app: &AppName,
    (node, boot): &Boot,
    counted: &Counted,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rollout_counts (app, node, boot, base, latest) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (app, node, boot) DO UPDATE SET base = excluded.base, latest = excluded.latest",
    )
    .bind(app.as_str())
    .bind(node.as_str())
    .bind(boot.to_string())
    .bind(to_json(&counted.base, "rollout_counts.base")?)
    .bind(to_json(&counted.latest, "rollout_counts.latest")?)
    .execute(connection)
    .await?;
    Ok(())
}

/// Forgets what was counted of an app.
///
/// # Errors
/// When the database fails.
pub async fn counts_delete(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM rollout_counts WHERE app = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// The versions of a function that broke their objective, and why.
///
/// # Errors
/// When the database fails.
pub async fn bad_version_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<BTreeMap<VersionNumber, BadMark>, StoreError> {
    let rows = sqlx::query(
        "SELECT number, reason, marked_at FROM bad_versions WHERE tenant = $1 AND function = $2 ORDER BY number",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .fetch_all(connection)
    .await?;
    let read = |row: &AnyRow| {
        let mark = BadMark {
            reason: row.try_get("reason")?,
            at: Timestamp(number(row, "marked_at")?),
        };
        Ok((version(row, "number")?, mark))
    };
    rows.iter().map(read).collect()
}

/// Marks a version as bad.
///
/// # Errors
/// When the database fails or there is no such version.
pub async fn bad_version_mark(
    connection: &mut AnyConnection,
    (tenant, function, number): (TenantId, &FunctionName, VersionNumber),
    mark: &BadMark,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO bad_versions (tenant, function, number, reason, marked_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (tenant, function, number) DO UPDATE SET reason = excluded.reason, marked_at = excluded.marked_at",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(i64::from(number.get()))
    .bind(&mark.reason)
    .bind(stored(mark.at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the mark of a version away: somebody wants it all the same.
///
/// # Errors
/// When the database fails.
pub async fn bad_version_clear(
    connection: &mut AnyConnection,
    (tenant, function, number): (TenantId, &FunctionName, VersionNumber),
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM bad_versions WHERE tenant = $1 AND function = $2 AND number = $3")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .bind(i64::from(number.get()))
        .execute(connection)
        .await?;
    Ok(())
}
