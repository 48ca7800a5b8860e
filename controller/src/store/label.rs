//! Labels of functions and versions.

use std::collections::BTreeMap;

use fdn_core::label::Labels;
use fdn_core::{FunctionName, TenantId, VersionNumber};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::number;

/// The version number under which a function's own labels are stored.
const FUNCTION: i64 = 0;

fn stored_number(version: Option<VersionNumber>) -> i64 {
    version.map_or(FUNCTION, |version| i64::from(version.get()))
}

fn add(all: &mut BTreeMap<String, String>, row: &AnyRow) -> Result<(), StoreError> {
    all.insert(row.try_get("label")?, row.try_get("value")?);
    Ok(())
}

fn labels(all: BTreeMap<String, String>) -> Result<Labels, StoreError> {
    Labels::new(all).map_err(|e| StoreError::corrupt("labels.label", e))
}

/// The labels of a version, or of the function itself if `None`.
///
/// # Errors
/// When the database fails.
pub async fn label_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    version: Option<VersionNumber>,
) -> Result<Labels, StoreError> {
    let rows = sqlx::query(
        "SELECT label, value FROM labels WHERE tenant = $1 AND function = $2 AND version = $3",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(stored_number(version))
    .fetch_all(connection)
    .await?;
    let mut all = BTreeMap::new();
    rows.iter().try_for_each(|row| add(&mut all, row))?;
    labels(all)
}

/// The labels of a function (under `None`) and of its versions, where there are any.
///
/// # Errors
/// When the database fails.
pub async fn label_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<BTreeMap<Option<VersionNumber>, Labels>, StoreError> {
    let rows =
        sqlx::query("SELECT version, label, value FROM labels WHERE tenant = $1 AND function = $2")
            .bind(tenant.to_string())
            .bind(function.as_str())
            .fetch_all(connection)
            .await?;
    let mut all: BTreeMap<u64, BTreeMap<String, String>> = BTreeMap::new();
    for row in &rows {
        add(all.entry(number(row, "version")?).or_default(), row)?;
    }
    all.into_iter()
        .map(|(number, found)| {
            // 0 is no version number: it becomes `None`, the function itself.
            let version = u32::try_from(number).ok().and_then(|n| n.try_into().ok());
            Ok((version, labels(found)?))
        })
        .collect()
}

/// The effective labels of the apps from `first` to `last` by name: the function's labels, overlaid by those of the current version.
///
/// # Errors
/// When the database fails.
pub async fn label_list_current(
    connection: &mut AnyConnection,
    first: &str,
    last: &str,
) -> Result<BTreeMap<String, Labels>, StoreError> {
    // Version 0 stands for the function itself.
    let rows = sqlx::query(
        "SELECT l.function, l.version, l.label, l.value FROM labels l \
         JOIN apps a ON a.tenant = l.tenant AND a.name = l.function AND (l.version = 0 OR l.version = a.version) \
         WHERE a.name >= $1 AND a.name <= $2 ORDER BY l.function, l.version",
    )
    .bind(first)
    .bind(last)
    .fetch_all(connection)
    .await?;
    let mut of: BTreeMap<String, [BTreeMap<String, String>; 2]> = BTreeMap::new();
    for row in &rows {
        let both = of.entry(row.try_get("function")?).or_default();
        add(&mut both[usize::from(number(row, "version")? > 0)], row)?;
    }
    of.into_iter()
        .map(|(app, [function, version])| Ok((app, labels(function)?.overlaid(&labels(version)?))))
        .collect()
}

/// Replaces all labels of a version, or of the function itself if `None`.
///
/// # Errors
/// When the database fails or there is no such function.
pub async fn label_set(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    version: Option<VersionNumber>,
    labels: &Labels,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM labels WHERE tenant = $1 AND function = $2 AND version = $3")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .bind(stored_number(version))
        .execute(&mut *connection)
        .await?;
    for (label, value) in labels.iter() {
        sqlx::query(
            "INSERT INTO labels (tenant, function, version, label, value) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(tenant.to_string())
        .bind(function.as_str())
        .bind(stored_number(version))
        .bind(label)
        .bind(value)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Deletes all labels of a function and its versions, or those of one version.
///
/// # Errors
/// When the database fails.
pub async fn label_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    (function, version): (&FunctionName, Option<VersionNumber>),
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM labels WHERE tenant = $1 AND function = $2 AND ($3 = 0 OR version = $3)",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(stored_number(version))
    .execute(connection)
    .await?;
    Ok(())
}
