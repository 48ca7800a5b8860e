//! Public keys of tenants that verify signatures.

use fdn_core::repository::{SignaturePolicy, SigningKeyInfo};
use fdn_core::{Digest, SigningKeyName, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

fn key(row: &AnyRow) -> Result<SigningKeyInfo, StoreError> {
    Ok(SigningKeyInfo {
        name: parsed(row, "name")?,
        algorithm: parsed(row, "algorithm")?,
        fingerprint: parsed(row, "fingerprint")?,
        public_key: row.try_get("public_key")?,
        created_at: Timestamp(number(row, "created_at")?),
        created_by: row.try_get("created_by")?,
    })
}

/// A tenant's keys, by name. Their number is limited by the settings.
///
/// # Errors
/// When the database fails.
pub async fn signing_key_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<Vec<SigningKeyInfo>, StoreError> {
    let rows = sqlx::query("SELECT name, algorithm, fingerprint, public_key, created_at, created_by FROM signing_keys WHERE tenant = $1 \
     ORDER BY name")
        .bind(tenant.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter().map(key).collect()
}

/// Inserts a key, or replaces the one with its name.
///
/// # Errors
/// When the database fails or there is no such tenant.
pub async fn signing_key_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    key: &SigningKeyInfo,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO signing_keys (tenant, name, algorithm, fingerprint, public_key, created_at, created_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (tenant, name) DO UPDATE SET algorithm = excluded.algorithm, fingerprint = excluded.fingerprint, \
         public_key = excluded.public_key, created_at = excluded.created_at, created_by = excluded.created_by",
    )
    .bind(tenant.to_string())
    .bind(key.name.as_str())
    .bind(key.algorithm.as_str())
    .bind(key.fingerprint.to_string())
    .bind(&key.public_key)
    .bind(stored(key.created_at.get()))
    .bind(&key.created_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a key; `false` if there was none.
///
/// # Errors
/// When the database fails.
pub async fn signing_key_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    name: &SigningKeyName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM signing_keys WHERE tenant = $1 AND name = $2")
        .bind(tenant.to_string())
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether uploads of a tenant must be signed.
///
/// # Errors
/// When the database fails or there is no such tenant.
pub async fn signature_policy_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<SignaturePolicy, StoreError> {
    let row = sqlx::query("SELECT signature_policy FROM tenants WHERE id = $1")
        .bind(tenant.to_string())
        .fetch_one(connection)
        .await?;
    parsed(&row, "signature_policy")
}

/// Sets whether uploads of a tenant must be signed.
///
/// # Errors
/// When the database fails.
pub async fn signature_policy_set(
    connection: &mut AnyConnection,
    tenant: TenantId,
    policy: SignaturePolicy,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE tenants SET signature_policy = $2, generation = generation + 1 WHERE id = $1",
    )
    .bind(tenant.to_string())
    .bind(policy.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether a tenant has a key with this fingerprint.
///
/// # Errors
/// When the database fails.
pub async fn signing_key_exists(
    connection: &mut AnyConnection,
    tenant: TenantId,
    fingerprint: &Digest,
) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM signing_keys WHERE tenant = $1 AND fingerprint = $2",
    )
    .bind(tenant.to_string())
    .bind(fingerprint.to_string())
    .fetch_one(connection)
    .await?;
    Ok(number(&row, "n")? > 0)
}
