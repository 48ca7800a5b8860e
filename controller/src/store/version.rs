//! Functions and their immutable, numbered versions.

use std::collections::BTreeMap;

use fdn_core::api::ValidationStep;
use fdn_core::form::FormSpec;
use fdn_core::manifest::Manifest;
use fdn_core::message::Sealed;
use fdn_core::{Digest, FunctionName, SecretName, TenantId, Timestamp, VersionNumber};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::artifact::artifact_release;
use super::billing::artifact::{artifact_end, artifact_note};
use super::label::label_delete;
use super::row::{json, json_or_none, number, parsed, stored, to_json, version};

/// One version.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRow {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The function.
    pub function: FunctionName,
    /// Its number.
    pub number: VersionNumber,
    /// The component's digest.
    pub digest: Digest,
    /// The component's size in bytes.
    pub size: u64,
    /// Runtime, limits, environment.
    pub manifest: Manifest,
    /// The sealed values of its secrets, if it was uploaded when they were stored here.
    pub secrets: BTreeMap<SecretName, Sealed>,
    /// When it was uploaded.
    pub created_at: Timestamp,
    /// The account that uploaded it.
    pub created_by: String,
    /// The checks it passed.
    pub validation: Vec<ValidationStep>,
    /// Its other forms; component and manifest are those of the first form.
    pub forms: Vec<FormSpec>,
}

impl VersionRow {
    /// The artifacts of all forms, with their sizes.
    pub fn artifacts(&self) -> impl Iterator<Item = (Digest, u64)> + '_ {
        let others = self.forms.iter().map(|form| (form.digest, form.size));
        std::iter::once((self.digest, self.size)).chain(others)
    }

    /// The total size of all artifacts, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.artifacts()
            .fold(0, |sum, (_, size)| sum.saturating_add(size))
    }
}

/// A query for the columns that [`version_row`] reads of the versions `v`, with the rest of the statement.
macro_rules! select_versions {
    ($rest:literal) => {
        concat!(
            "SELECT v.tenant, v.function, v.number, v.digest, v.size, v.manifest, v.secrets, v.created_at, v.created_by, v.validation, v.forms \
             FROM versions v ",
            $rest
        )
    };
}
pub(super) use select_versions;

pub(super) fn version_row(row: &AnyRow) -> Result<VersionRow, StoreError> {
    Ok(VersionRow {
        tenant: parsed(row, "tenant")?,
        function: parsed(row, "function")?,
        number: version(row, "number")?,
        digest: parsed(row, "digest")?,
        size: number(row, "size")?,
        manifest: json(row, "manifest")?,
        secrets: json(row, "secrets")?,
        created_at: Timestamp(number(row, "created_at")?),
        created_by: row.try_get("created_by")?,
        validation: json(row, "validation")?,
        forms: json_or_none(row, "forms")?.unwrap_or_default(),
    })
}

/// Takes the next version number of a function, creating or undeleting the function if necessary. A number is never reused.
///
/// # Errors
/// When the database fails or the numbers are used up.
pub async fn function_version_next(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    now: Timestamp,
) -> Result<VersionNumber, StoreError> {
    let row = sqlx::query(
        "INSERT INTO functions (tenant, name, last_version, created_at) VALUES ($1, $2, 1, $3) \
         ON CONFLICT (tenant, name) DO UPDATE SET last_version = functions.last_version + 1, deleted_at = NULL \
         RETURNING last_version",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    version(&row, "last_version")
}

/// Deletes a function's versions, secrets and labels, and starts the grace period of its artifacts; its row stays, to remember the last version
/// number.
///
/// # Errors
/// When the database fails or an app still runs one of the versions.
pub async fn function_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM secrets WHERE tenant = $1 AND function = $2")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .execute(&mut *connection)
        .await?;
    artifact_release(&mut *connection, tenant, (function, None), now).await?;
    label_delete(&mut *connection, tenant, (function, None)).await?;
    sqlx::query("DELETE FROM versions WHERE tenant = $1 AND function = $2")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .execute(&mut *connection)
        .await?;
    sqlx::query("UPDATE functions SET deleted_at = $3 WHERE tenant = $1 AND name = $2")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .bind(stored(now.get()))
        .execute(&mut *connection)
        .await?;
    artifact_end(connection, &tenant.to_string(), function, now).await
}

/// Deletes one version; returns whether there was one. Its artifacts are kept for the grace period.
///
/// # Errors
/// When the database fails, or an app, a workflow or a split still refers to it.
pub async fn version_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    (function, number): (&FunctionName, VersionNumber),
    now: Timestamp,
) -> Result<bool, StoreError> {
    artifact_release(&mut *connection, tenant, (function, Some(number)), now).await?;
    label_delete(&mut *connection, tenant, (function, Some(number))).await?;
    let deleted =
        sqlx::query("DELETE FROM versions WHERE tenant = $1 AND function = $2 AND number = $3")
            .bind(tenant.to_string())
            .bind(function.as_str())
            .bind(i64::from(number.get()))
            .execute(&mut *connection)
            .await?;
    artifact_end(connection, &tenant.to_string(), function, now).await?;
    Ok(deleted.rows_affected() > 0)
}

/// The functions of a tenant that are not deleted, by name.
///
/// # Errors
/// When the database fails.
pub async fn function_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<Vec<FunctionName>, StoreError> {
    let rows = sqlx::query(
        "SELECT name FROM functions WHERE tenant = $1 AND deleted_at IS NULL ORDER BY name",
    )
    .bind(tenant.to_string())
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| parsed(row, "name")).collect()
}

/// Inserts a version.
///
/// # Errors
/// When the database fails or the number is taken.
pub async fn version_insert(
    connection: &mut AnyConnection,
    version: &VersionRow,
) -> Result<(), StoreError> {
    let forms = Some(&version.forms).filter(|forms| !forms.is_empty());
    sqlx::query(
        "INSERT INTO versions (tenant, function, number, digest, size, manifest, secrets, created_at, created_by, validation, forms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(version.tenant.to_string())
    .bind(version.function.as_str())
    .bind(i64::from(version.number.get()))
    .bind(version.digest.to_string())
    .bind(stored(version.size))
    .bind(to_json(&version.manifest, "versions.manifest")?)
    .bind(to_json(&version.secrets, "versions.secrets")?)
    .bind(stored(version.created_at.get()))
    .bind(&version.created_by)
    .bind(to_json(&version.validation, "versions.validation")?)
    .bind(forms.map(|forms| to_json(forms, "versions.forms")).transpose()?)
    .execute(&mut *connection)
    .await?;
    for form in &version.forms {
        form_artifact_insert(connection, version, form).await?;
    }
    artifact_note(connection, &version.function, version.number).await
}

/// Records that a version uses an artifact for a further form.
async fn form_artifact_insert(
    connection: &mut AnyConnection,
    version: &VersionRow,
    form: &FormSpec,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO form_artifacts (tenant, function, number, form, digest, size) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(version.tenant.to_string())
    .bind(version.function.as_str())
    .bind(i64::from(version.number.get()))
    .bind(form.manifest.name.as_str())
    .bind(form.digest.to_string())
    .bind(stored(form.size))
    .execute(connection)
    .await?;
    Ok(())
}

/// One version.
///
/// # Errors
/// When the database fails.
pub async fn version_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    number: VersionNumber,
) -> Result<Option<VersionRow>, StoreError> {
    let row = sqlx::query(select_versions!(
        "WHERE v.tenant = $1 AND v.function = $2 AND v.number = $3"
    ))
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(i64::from(number.get()))
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(version_row).transpose()
}

/// All versions of a function, newest first.
///
/// # Errors
/// When the database fails.
pub async fn version_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<Vec<VersionRow>, StoreError> {
    let rows = sqlx::query(select_versions!(
        "WHERE v.tenant = $1 AND v.function = $2 ORDER BY v.number DESC"
    ))
    .bind(tenant.to_string())
    .bind(function.as_str())
    .fetch_all(connection)
    .await?;
    rows.iter().map(version_row).collect()
}

/// The current versions of the functions that apps run.
///
/// # Errors
/// When the database fails.
pub async fn version_list_current(
    connection: &mut AnyConnection,
) -> Result<Vec<VersionRow>, StoreError> {
    let rows = sqlx::query(select_versions!(
        "JOIN apps a ON a.tenant = v.tenant AND a.name = v.function AND a.version = v.number \
         ORDER BY v.function"
    ))
    .fetch_all(connection)
    .await?;
    rows.iter().map(version_row).collect()
}

/// Whether any version has this artifact, as its component or in one of its forms.
///
/// # Errors
/// When the database fails.
pub async fn digest_in_use(
    connection: &mut AnyConnection,
    digest: &Digest,
) -> Result<bool, StoreError> {
    let text = "SELECT (SELECT COUNT(*) FROM versions WHERE digest = $1) + (SELECT COUNT(*) FROM form_artifacts WHERE digest = $1) AS n";
    let row = sqlx::query(text)
        .bind(digest.to_string())
        .fetch_one(connection)
        .await?;
    Ok(number(&row, "n")? > 0)
}
