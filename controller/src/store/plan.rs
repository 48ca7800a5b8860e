//! Placement plans: which cluster runs each stage for a group of clients.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, Revision, StageName, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json};

/// One plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// The app.
    pub app: AppName,
    /// The client group, named by the first of its prefixes.
    pub group: String,
    /// The cluster of each stage.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// The explanation, as JSON. Not read in lists: with many clients it is most of the database.
    pub explanation: Option<String>,
    /// The revision that created it.
    pub revision: Revision,
    /// When it was made.
    pub planned_at: Timestamp,
}

/// All plans, by app and group, without their explanations.
///
/// # Errors
/// When the database fails.
pub async fn plan_list(connection: &mut AnyConnection) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query("SELECT app, client_group, stages, revision, planned_at FROM plans ORDER BY app, client_group")
        .fetch_all(connection)
        .await?;
    rows.iter().map(plan_row).collect()
}

fn plan_row(row: &AnyRow) -> Result<PlanRow, StoreError> {
    Ok(PlanRow {
        app: parsed(row, "app")?,
        group: row.try_get("client_group")?,
        stages: json(row, "stages")?,
        explanation: None,
        revision: Revision(number(row, "revision")?),
        planned_at: Timestamp(number(row, "planned_at")?),
    })
}

/// The plans of one app, by group, without their explanations.
///
/// # Errors
/// When the database fails.
pub async fn plan_list_of(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query("SELECT app, client_group, stages, revision, planned_at FROM plans WHERE app = $1 ORDER BY client_group")
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(plan_row).collect()
}

/// The explanation of a plan, as JSON, and when it was made; `None` if there is no such plan.
///
/// # Errors
/// When the database fails.
pub async fn plan_explanation(
    connection: &mut AnyConnection,
    app: &AppName,
    group: &str,
) -> Result<Option<(String, Timestamp)>, StoreError> {
    let row = sqlx::query(
        "SELECT explanation, planned_at FROM plans WHERE app = $1 AND client_group = $2",
    )
    .bind(app.as_str())
    .bind(group)
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        Ok((
            row.try_get("explanation")?,
            Timestamp(number(&row, "planned_at")?),
        ))
    })
    .transpose()
}

/// Inserts a plan, or replaces the one of the same app and group. Without an explanation, the stored one stays.
///
/// # Errors
/// When the database fails.
pub async fn plan_upsert(connection: &mut AnyConnection, plan: &PlanRow) -> Result<(), StoreError> {
    let text = "INSERT INTO plans (app, client_group, stages, explanation, revision, planned_at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (app, client_group) DO UPDATE SET stages = excluded.stages, revision = excluded.revision, planned_at = excluded.planned_at";
    let with_explanation = format!("{text}, explanation = excluded.explanation");
    let statement = match &plan.explanation {
        Some(_) => sqlx::query(AssertSqlSafe(with_explanation)),
        None => sqlx::query(text),
    };
    statement
        .bind(plan.app.as_str())
        .bind(&plan.group)
        .bind(to_json(&plan.stages, "plans.stages")?)
        .bind(plan.explanation.as_deref().unwrap_or(UNEXPLAINED))
        .bind(stored(plan.revision.get()))
        .bind(stored(plan.planned_at.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes a new explanation and its time, if the plan still has the same stages. Its revision stays.
///
/// # Errors
/// When the database fails.
pub async fn plan_renew(connection: &mut AnyConnection, plan: &PlanRow) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE plans SET explanation = $1, planned_at = $2 WHERE app = $3 AND client_group = $4 AND stages = $5",
    )
    .bind(plan.explanation.as_deref().unwrap_or(UNEXPLAINED))
    .bind(stored(plan.planned_at.get()))
    .bind(plan.app.as_str())
    .bind(&plan.group)
    .bind(to_json(&plan.stages, "plans.stages")?)
    .execute(connection)
    .await?;
    Ok(())
}

/// App, group and explanation, as JSON, of the plans that were made because a cluster could not take the work. Scans the explanations of all
/// plans: for the start of a planner, not for each of its passes.
///
/// # Errors
/// When the database fails.
pub async fn plan_list_failover(
    connection: &mut AnyConnection,
) -> Result<Vec<(AppName, String, String)>, StoreError> {
    // Nothing else in the JSON can look like this: within a text the quotes are escaped.
    let rows = sqlx::query(
        "SELECT app, client_group, explanation FROM plans WHERE explanation LIKE '%\"failover\":{%' ORDER BY app, client_group",
    )
    .fetch_all(connection)
    .await?;
    let row = |row: &AnyRow| {
        Ok((
            parsed(row, "app")?,
            row.try_get("client_group")?,
            row.try_get("explanation")?,
        ))
    };
    rows.iter().map(row).collect()
}

/// The explanation of a new plan that comes without one.
const UNEXPLAINED: &str = r#"{"reason":"as it was planned before","candidates":[]}"#;

/// Removes a plan.
///
/// # Errors
/// When the database fails.
pub async fn plan_delete(
    connection: &mut AnyConnection,
    app: &AppName,
    group: &str,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM plans WHERE app = $1 AND client_group = $2")
        .bind(app.as_str())
        .bind(group)
        .execute(connection)
        .await?;
    Ok(())
}
