//! Versions of workflows: their definitions, and the function versions of their stages.

use fdn_core::workflow::Definition;
use fdn_core::{AppName, FunctionName, TenantId, VersionNumber};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{json, parsed, to_json};
use super::version::{VersionRow, select_versions, version_row};

/// Inserts the definition of an existing version.
///
/// # Errors
/// When the database fails or the function version of a stage does not exist.
pub async fn workflow_insert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
    number: VersionNumber,
    definition: &Definition,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO workflow_versions (tenant, app, number, definition) VALUES ($1, $2, $3, $4)",
    )
    .bind(tenant.to_string())
    .bind(app.as_str())
    .bind(i64::from(number.get()))
    .bind(to_json(definition, "workflow_versions.definition")?)
    .execute(&mut *connection)
    .await?;
    for stage in definition.workflow.stages() {
        sqlx::query(
            "INSERT INTO workflow_stages (tenant, app, number, stage, function, version) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(tenant.to_string())
        .bind(app.as_str())
        .bind(i64::from(number.get()))
        .bind(stage.name.as_str())
        .bind(stage.function.as_str())
        .bind(i64::from(stage.version.get()))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// The definition of a version; `None` if it is not a workflow's.
///
/// # Errors
/// When the database fails.
pub async fn workflow_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
    number: VersionNumber,
) -> Result<Option<Definition>, StoreError> {
    let row = sqlx::query(
        "SELECT definition FROM workflow_versions WHERE tenant = $1 AND app = $2 AND number = $3",
    )
    .bind(tenant.to_string())
    .bind(app.as_str())
    .bind(i64::from(number.get()))
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(|row| json(row, "definition")).transpose()
}

/// The workflows with any version that runs a function, by name.
///
/// # Errors
/// When the database fails.
pub async fn workflow_list_using(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<Vec<AppName>, StoreError> {
    let rows = sqlx::query(
        "SELECT DISTINCT app FROM workflow_stages WHERE tenant = $1 AND function = $2 ORDER BY app",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| parsed(row, "app")).collect()
}

/// The workflows with any version that runs this version of a function, by name.
///
/// # Errors
/// When the database fails.
pub async fn workflow_list_using_version(
    connection: &mut AnyConnection,
    tenant: TenantId,
    (function, version): (&FunctionName, VersionNumber),
) -> Result<Vec<AppName>, StoreError> {
    let rows = sqlx::query(
        "SELECT DISTINCT app FROM workflow_stages WHERE tenant = $1 AND function = $2 AND version = $3 ORDER BY app",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(i64::from(version.get()))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| parsed(row, "app")).collect()
}

/// The function versions that the current versions of workflows run.
///
/// # Errors
/// When the database fails.
pub async fn version_list_staged(
    connection: &mut AnyConnection,
) -> Result<Vec<VersionRow>, StoreError> {
    let rows = sqlx::query(
        select_versions!("WHERE EXISTS (SELECT 1 FROM workflow_stages s \
         JOIN apps a ON a.tenant = s.tenant AND a.name = s.app AND a.version = s.number \
         WHERE s.tenant = v.tenant AND s.function = v.function AND s.version = v.number) ORDER BY v.function, v.number"),
    )
    .fetch_all(connection)
    .await?;
    rows.iter().map(version_row).collect()
}

/// Deletes all versions of all workflows of a tenant, so that the function versions they refer to can be deleted.
///
/// # Errors
/// When the database fails.
pub async fn workflow_delete_all(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<(), StoreError> {
    for table in [
        "DELETE FROM workflow_stages WHERE tenant = $1",
        "DELETE FROM workflow_versions WHERE tenant = $1",
    ] {
        sqlx::query(table)
            .bind(tenant.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
