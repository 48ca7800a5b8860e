//! The periods for which artifacts were stored. Each version counts by itself, even if two have the same bytes.

use fdn_core::{FunctionName, TenantId, Timestamp, VersionNumber};
use sqlx::AnyConnection;

use super::StoreError;
use crate::store::row::{number, parsed, stored};

/// Records that a version's artifacts are stored, from the version's creation on. The version's row must exist.
///
/// # Errors
/// When the database fails.
pub async fn artifact_note(
    connection: &mut AnyConnection,
    function: &FunctionName,
    version: VersionNumber,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO stored_artifacts (tenant, function, version, size, stored_at) \
         SELECT v.tenant, v.function, v.number, v.size + (SELECT CAST(COALESCE(SUM(f.size), 0) AS BIGINT) FROM form_artifacts f \
         WHERE f.tenant = v.tenant AND f.function = v.function AND f.number = v.number), v.created_at \
         FROM versions v WHERE v.function = $1 AND v.number = $2 \
         ON CONFLICT (tenant, function, version) DO NOTHING",
    )
    .bind(function.as_str())
    .bind(i64::from(version.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends the storage period of artifacts of a tenant's function whose versions have been deleted.
///
/// # Errors
/// When the database fails.
pub async fn artifact_end(
    connection: &mut AnyConnection,
    tenant: &str,
    function: &FunctionName,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE stored_artifacts SET gone_at = CASE WHEN stored_at > $3 THEN stored_at ELSE $3 END \
         WHERE tenant = $1 AND function = $2 AND gone_at IS NULL AND NOT EXISTS (SELECT 1 FROM versions v \
         WHERE v.tenant = stored_artifacts.tenant AND v.function = stored_artifacts.function AND v.number = stored_artifacts.version)",
    )
    .bind(tenant)
    .bind(function.as_str())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// An artifact stored for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPeriod {
    /// The function.
    pub function: FunctionName,
    /// Its size in bytes, all forms together.
    pub size: u64,
    /// The start of the period, within the requested span.
    pub from: Timestamp,
    /// The end of the period, exclusive, within the requested span.
    pub to: Timestamp,
}

/// What a tenant stored between two times, by function and version.
///
/// # Errors
/// When the database fails.
pub async fn artifact_list_stored(
    connection: &mut AnyConnection,
    tenant: TenantId,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<StoredPeriod>, StoreError> {
    let rows = sqlx::query(
        "SELECT function, size, CASE WHEN stored_at > $2 THEN stored_at ELSE $2 END AS kept_from, \
         CASE WHEN gone_at IS NOT NULL AND gone_at < $3 THEN gone_at ELSE $3 END AS kept_to \
         FROM stored_artifacts WHERE tenant = $1 AND stored_at < $3 AND (gone_at IS NULL OR gone_at > $2) \
         ORDER BY function, version",
    )
    .bind(tenant.to_string())
    .bind(stored(from.get()))
    .bind(stored(to.get()))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(StoredPeriod {
                function: parsed(row, "function")?,
                size: number(row, "size")?,
                from: Timestamp(number(row, "kept_from")?),
                to: Timestamp(number(row, "kept_to")?),
            })
        })
        .collect()
}
