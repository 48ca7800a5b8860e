//! The certificate authorities that sign nodes' certificates.

use fdn_core::Timestamp;
use fdn_core::message::Sealed;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, stored};

/// A stored authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityRow {
    /// Its id; the sealed key is bound to it.
    pub id: String,
    /// Its certificate (PEM).
    pub certificate: String,
    /// Its private key (PEM), sealed with the network key.
    pub sealed_key: Sealed,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// All authorities, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn authority_list(
    connection: &mut AnyConnection,
) -> Result<Vec<AuthorityRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, certificate, sealed_key, created_at, expires_at FROM authorities ORDER BY created_at, id",
    )
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(AuthorityRow {
                id: row.try_get("id")?,
                certificate: row.try_get("certificate")?,
                sealed_key: Sealed(row.try_get("sealed_key")?),
                created_at: Timestamp(number(row, "created_at")?),
                expires_at: Timestamp(number(row, "expires_at")?),
            })
        })
        .collect()
}

/// Inserts a new authority.
///
/// # Errors
/// When the database fails.
pub async fn authority_insert(
    connection: &mut AnyConnection,
    row: &AuthorityRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO authorities (id, certificate, sealed_key, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(&row.id)
    .bind(&row.certificate)
    .bind(&row.sealed_key.0)
    .bind(stored(row.created_at.get()))
    .bind(stored(row.expires_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes authorities that expired before `now`.
///
/// # Errors
/// When the database fails.
pub async fn authority_trim(
    connection: &mut AnyConnection,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM authorities WHERE expires_at < $1")
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}
