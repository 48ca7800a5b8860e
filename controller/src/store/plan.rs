//! Placement plans: which cluster runs each stage for a group of clients.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, Revision, StageName, Timestamp};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json};

/// One plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// The app.
    pub app: AppName,
    /// The group of clients, named by the first of its prefixes.
    pub group: String,
    /// Where each stage runs.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// Why, in words.
    pub explanation: String,
    /// The revision that made it.
    pub revision: Revision,
    /// When.
    pub planned_at: Timestamp,
}

/// All plans, by app and group.
///
/// # Errors
/// When the database fails.
pub async fn plan_list(connection: &mut AnyConnection) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query("SELECT * FROM plans ORDER BY app, client_group")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(PlanRow {
                app: parsed(row, "app")?,
                group: row.try_get("client_group")?,
                stages: json(row, "stages")?,
                explanation: row.try_get("explanation")?,
                revision: Revision(number(row, "revision")?),
                planned_at: Timestamp(number(row, "planned_at")?),
            })
        })
        .collect()
}

/// Replaces all plans of an app.
///
/// # Errors
/// When the database fails.
pub async fn plan_replace(
    connection: &mut AnyConnection,
    app: &AppName,
    plans: &[PlanRow],
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM plans WHERE app = $1")
        .bind(app.as_str())
        .execute(&mut *connection)
        .await?;
    for plan in plans {
        sqlx::query(
            "INSERT INTO plans (app, client_group, stages, explanation, revision, planned_at) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(app.as_str())
        .bind(&plan.group)
        .bind(to_json(&plan.stages, "plans.stages")?)
        .bind(&plan.explanation)
        .bind(stored(plan.revision.get()))
        .bind(stored(plan.planned_at.get()))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
