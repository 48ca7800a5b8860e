//! Sealed values of secrets, and the data keys of tenants that seal them, wrapped by master keys.

use fdn_core::message::Sealed;
use fdn_core::{DataKeyId, FunctionName, Revision, SecretName, TenantId, Timestamp};
use fdn_service::master::MasterKeyId;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};
use super::version::{VersionRow, select_versions, version_row};

/// A tenant's data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataKeyRow {
    /// The key's id.
    pub id: DataKeyId,
    /// The tenant whose secrets it seals.
    pub tenant: TenantId,
    /// The master key that wraps it.
    pub master: MasterKeyId,
    /// The wrapped key.
    pub wrapped: Sealed,
}

/// A secret of a function, with the data key that seals it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    /// The function.
    pub function: FunctionName,
    /// The secret.
    pub name: SecretName,
    /// The data key that seals it.
    pub key: DataKeyRow,
    /// The sealed value.
    pub sealed: Sealed,
    /// The revision of desired state that introduced it.
    pub revision: Revision,
    /// When it was set.
    pub updated_at: Timestamp,
    /// The account that set it.
    pub updated_by: String,
}

fn data_key_row(row: &AnyRow) -> Result<DataKeyRow, StoreError> {
    Ok(DataKeyRow {
        id: parsed(row, "key_id")?,
        tenant: parsed(row, "tenant")?,
        master: parsed(row, "master")?,
        wrapped: Sealed(row.try_get("wrapped")?),
    })
}

fn secret_row(row: &AnyRow) -> Result<SecretRow, StoreError> {
    Ok(SecretRow {
        function: parsed(row, "function")?,
        name: parsed(row, "name")?,
        key: data_key_row(row)?,
        sealed: Sealed(row.try_get("sealed")?),
        revision: Revision(number(row, "revision")?),
        updated_at: Timestamp(number(row, "updated_at")?),
        updated_by: row.try_get("updated_by")?,
    })
}

/// The secrets of a function, by name.
///
/// # Errors
/// When the database fails.
pub async fn secret_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
) -> Result<Vec<SecretRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT s.tenant AS tenant, s.function AS function, s.name AS name, s.sealed AS sealed, s.revision AS revision, \
         s.updated_at AS updated_at, s.updated_by AS updated_by, k.id AS key_id, k.master AS master, k.wrapped AS wrapped \
         FROM secrets s JOIN data_keys k ON k.id = s.data_key \
         WHERE s.tenant = $1 AND s.function = $2 ORDER BY s.name",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .fetch_all(connection)
    .await?;
    rows.iter().map(secret_row).collect()
}

/// Inserts or updates a secret.
///
/// # Errors
/// When the database fails, or there is no such function or data key.
pub async fn secret_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    row: &SecretRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO secrets (tenant, function, name, data_key, sealed, revision, updated_at, updated_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
         ON CONFLICT (tenant, function, name) DO UPDATE SET data_key = excluded.data_key, sealed = excluded.sealed, \
         revision = excluded.revision, updated_at = excluded.updated_at, updated_by = excluded.updated_by",
    )
    .bind(tenant.to_string())
    .bind(row.function.as_str())
    .bind(row.name.as_str())
    .bind(row.key.id.to_string())
    .bind(&row.sealed.0)
    .bind(stored(row.revision.get()))
    .bind(stored(row.updated_at.get()))
    .bind(&row.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a secret; returns whether there was one.
///
/// # Errors
/// When the database fails.
pub async fn secret_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    name: &SecretName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM secrets WHERE tenant = $1 AND function = $2 AND name = $3")
        .bind(tenant.to_string())
        .bind(function.as_str())
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// A tenant's data key; `None` if it has none.
///
/// # Errors
/// When the database fails.
pub async fn data_key_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<Option<DataKeyRow>, StoreError> {
    let row = sqlx::query(
        "SELECT id AS key_id, tenant, master, wrapped FROM data_keys WHERE tenant = $1",
    )
    .bind(tenant.to_string())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(data_key_row).transpose()
}

/// Inserts a data key, unless the tenant has one.
///
/// # Errors
/// When the database fails or there is no such tenant.
pub async fn data_key_insert(
    connection: &mut AnyConnection,
    row: &DataKeyRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO data_keys (id, tenant, master, wrapped, created_at, wrapped_at) VALUES ($1, $2, $3, $4, $5, $5) \
         ON CONFLICT (tenant) DO NOTHING",
    )
    .bind(row.id.to_string())
    .bind(row.tenant.to_string())
    .bind(row.master.as_str())
    .bind(&row.wrapped.0)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// A page of data keys that are not wrapped by `master`, by id, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn data_key_list_not_under(
    connection: &mut AnyConnection,
    master: &MasterKeyId,
    after: &str,
    limit: u32,
) -> Result<Vec<DataKeyRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id AS key_id, tenant, master, wrapped FROM data_keys WHERE master <> $1 AND id > $2 ORDER BY id LIMIT $3",
    )
    .bind(master.as_str())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(data_key_row).collect()
}

/// Replaces the wrapping of a data key, if it is still the one in `before`; returns whether it was.
///
/// # Errors
/// When the database fails.
pub async fn data_key_rewrap(
    connection: &mut AnyConnection,
    before: &DataKeyRow,
    (master, wrapped): &(MasterKeyId, Sealed),
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE data_keys SET master = $1, wrapped = $2, wrapped_at = $3 WHERE id = $4 AND wrapped = $5",
    )
    .bind(master.as_str())
    .bind(&wrapped.0)
    .bind(stored(now.get()))
    .bind(before.id.to_string())
    .bind(&before.wrapped.0)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The number of data keys that each master key wraps.
///
/// # Errors
/// When the database fails.
pub async fn data_key_counts(
    connection: &mut AnyConnection,
) -> Result<Vec<(MasterKeyId, u64)>, StoreError> {
    let rows =
        sqlx::query("SELECT master, COUNT(*) AS n FROM data_keys GROUP BY master ORDER BY master")
            .fetch_all(connection)
            .await?;
    let count = |row: &AnyRow| Ok((parsed(row, "master")?, number(row, "n")?));
    rows.iter().map(count).collect()
}

/// Versions that still contain secret values, sealed in the old way, at most `limit`: of each function the current one first, then the newest.
///
/// # Errors
/// When the database fails.
pub async fn version_list_with_values(
    connection: &mut AnyConnection,
    limit: u32,
) -> Result<Vec<VersionRow>, StoreError> {
    let rows = sqlx::query(
        select_versions!("LEFT JOIN apps a ON a.tenant = v.tenant AND a.name = v.function AND a.version = v.number \
         WHERE v.secrets <> '{}' \
         ORDER BY v.tenant, v.function, CASE WHEN a.name IS NULL THEN 1 ELSE 0 END, v.number DESC LIMIT $1"),
    )
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(version_row).collect()
}

/// Clears the secret values of a version.
///
/// # Errors
/// When the database fails.
pub async fn version_values_clear(
    connection: &mut AnyConnection,
    version: &VersionRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE versions SET secrets = '{}' WHERE tenant = $1 AND function = $2 AND number = $3",
    )
    .bind(version.tenant.to_string())
    .bind(version.function.as_str())
    .bind(i64::from(version.number.get()))
    .execute(connection)
    .await?;
    Ok(())
}
