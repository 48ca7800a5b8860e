//! Objectives of apps, the versions under watch, and the versions that broke their objective.

use std::collections::BTreeMap;

use fdn_core::rollout::{CallCounts, Objective, RolloutState, VersionRejection};
use fdn_core::{AppName, FunctionName, MessageId, NodeId, TenantId, Timestamp, VersionNumber};
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json, version};

/// The objective of an app.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveRow {
    /// The app.
    pub app: AppName,
    /// The objective that new versions must meet.
    pub objective: Objective,
    /// When it was set.
    pub updated_at: Timestamp,
    /// The account that set it.
    pub updated_by: String,
}

/// The last watch of an app, running or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutRow {
    /// The app.
    pub app: AppName,
    /// The id of this watch.
    pub id: String,
    /// The watched version.
    pub candidate: VersionNumber,
    /// The version that gets its calls if it breaks the objective.
    pub baseline: VersionNumber,
    /// Whether a deploy created the traffic split.
    pub by_deploy: bool,
    /// Whether the version had no calls before the watch.
    pub fresh: bool,
    /// The state of the watch.
    pub state: RolloutState,
    /// The start of its window.
    pub since: Timestamp,
    /// The calls in the window, as last counted.
    pub calls: u64,
    /// Of these, failures.
    pub failures: u64,
    /// Why the version broke the objective, or what the watch waits for.
    pub reason: String,
}

/// The counts of a version in a report of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedCounts {
    /// The counts.
    #[serde(flatten)]
    pub counts: CallCounts,
    /// The number of the report since the node's agent started. Earlier releases did not store it: 0.
    #[serde(default)]
    pub sequence: u64,
}

/// The counts of one boot of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootCounts {
    /// The counts at the start of the window.
    pub base: CallCounts,
    /// The last reported counts.
    pub latest: ReportedCounts,
}

/// One boot of a node.
pub type Boot = (NodeId, MessageId);

/// The objective of an app; `None` if it has none.
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

/// Inserts or updates an objective.
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

/// Deletes the objective of an app; returns whether there was one.
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

/// A query for all columns of a watch, with the rest of the statement.
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

/// The last watch of an app, running or ended.
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

/// The running watches, by app.
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

/// Inserts or updates the watch of an app.
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

/// Deletes the watch of an app; its counts go with it.
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

/// The counts of the watched version, by boot of each node.
///
/// # Errors
/// When the database fails.
pub async fn counts_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<BTreeMap<Boot, BootCounts>, StoreError> {
    let rows = sqlx::query("SELECT node, boot, base, latest FROM rollout_counts WHERE app = $1")
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    let read = |row: &AnyRow| {
        let counted = BootCounts {
            base: json(row, "base")?,
            latest: json(row, "latest")?,
        };
        Ok(((parsed(row, "node")?, parsed(row, "boot")?), counted))
    };
    rows.iter().map(read).collect()
}

/// Inserts or updates the counts of a boot.
///
/// # Errors
/// When the database fails or the app has no watch.
pub async fn counts_upsert(
    connection: &mut AnyConnection,
    app: &AppName,
    (node, boot): &Boot,
    counted: &BootCounts,
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

/// Deletes the counts of an app.
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

/// The versions of a function that broke their objective, with the reasons.
///
/// # Errors
/// When the database fails.
pub async fn bad_version_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<BTreeMap<VersionNumber, VersionRejection>, StoreError> {
    let rows = sqlx::query(
        "SELECT number, reason, marked_at FROM bad_versions WHERE tenant = $1 AND function = $2 ORDER BY number",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .fetch_all(connection)
    .await?;
    let read = |row: &AnyRow| {
        let mark = VersionRejection {
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
    mark: &VersionRejection,
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

/// Clears the mark of a version, because it was chosen all the same.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_release_before_are_read() {
        let counts = CallCounts {
            calls: 3,
            failures: 1,
            latency: vec![(8, 3)],
        };
        let old = serde_json::to_string(&counts).expect("JSON");
        let read: ReportedCounts = serde_json::from_str(&old).expect("read");
        assert_eq!((&read.counts, read.sequence), (&counts, 0));
        let now = ReportedCounts {
            counts,
            sequence: 7,
        };
        let text = serde_json::to_string(&now).expect("JSON");
        let read: ReportedCounts = serde_json::from_str(&text).expect("read");
        assert_eq!(read, now);
        // The release before reads these, too: while both run, either may watch.
        let read: CallCounts = serde_json::from_str(&text).expect("read");
        assert_eq!(read, now.counts);
    }
}
