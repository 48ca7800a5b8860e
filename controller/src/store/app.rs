//! Apps: host names bound to workflows.

use std::collections::BTreeSet;

use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, HostName, Revision, Timestamp, VersionNumber};
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::row::{json, number, parsed, stored, to_json, version, version_or_none};
use super::{DEFAULT_TENANT, StoreError};

/// One app.
#[derive(Clone, Debug, PartialEq)]
pub struct AppRow {
    /// The app.
    pub name: AppName,
    /// Its host name.
    pub host: HostName,
    /// The DAG it runs.
    pub workflow: Workflow,
    /// The current version of its function.
    pub version: VersionNumber,
    /// The version that was current before.
    pub previous: Option<VersionNumber>,
    /// The clusters that its plans use.
    pub primaries: BTreeSet<ClusterId>,
    /// The revision of what nodes are told.
    pub revision: Revision,
    /// The revision of what DNS is told.
    pub bindings_revision: Revision,
    /// When the current version was made current.
    pub deployed_at: Timestamp,
}

fn app_row(row: &AnyRow) -> Result<AppRow, StoreError> {
    Ok(AppRow {
        name: parsed(row, "name")?,
        host: parsed(row, "host")?,
        workflow: json(row, "workflow")?,
        version: version(row, "version")?,
        previous: version_or_none(row, "previous_version")?,
        primaries: json(row, "primaries")?,
        revision: Revision(number(row, "revision")?),
        bindings_revision: Revision(number(row, "bindings_revision")?),
        deployed_at: Timestamp(number(row, "deployed_at")?),
    })
}

/// The app of this name.
///
/// # Errors
/// When the database fails.
pub async fn app_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<AppRow>, StoreError> {
    let row = sqlx::query("SELECT * FROM apps WHERE name = $1")
        .bind(app.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(app_row).transpose()
}

/// All apps, by name.
///
/// # Errors
/// When the database fails.
pub async fn app_list(connection: &mut AnyConnection) -> Result<Vec<AppRow>, StoreError> {
    let rows = sqlx::query("SELECT * FROM apps ORDER BY name")
        .fetch_all(connection)
        .await?;
    rows.iter().map(app_row).collect()
}

/// Writes an app, new or not.
///
/// # Errors
/// When the database fails.
pub async fn app_upsert(connection: &mut AnyConnection, app: &AppRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO apps (name, tenant, host, workflow, version, previous_version, primaries, revision, bindings_revision, deployed_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
         ON CONFLICT (name) DO UPDATE SET host = excluded.host, workflow = excluded.workflow, version = excluded.version, \
         previous_version = excluded.previous_version, primaries = excluded.primaries, revision = excluded.revision, \
         bindings_revision = excluded.bindings_revision, deployed_at = excluded.deployed_at",
    )
    .bind(app.name.as_str())
    .bind(DEFAULT_TENANT)
    .bind(app.host.as_str())
    .bind(to_json(&app.workflow, "apps.workflow")?)
    .bind(i64::from(app.version.get()))
    .bind(app.previous.map(|v| i64::from(v.get())))
    .bind(to_json(&app.primaries, "apps.primaries")?)
    .bind(stored(app.revision.get()))
    .bind(stored(app.bindings_revision.get()))
    .bind(stored(app.deployed_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes an app with its plans, bindings and demand.
///
/// # Errors
/// When the database fails.
pub async fn app_delete(connection: &mut AnyConnection, app: &AppName) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM apps WHERE name = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
