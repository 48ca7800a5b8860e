//! Tokens with which machines join the network.

use fdn_core::fleet::JoinTokenInfo;
use fdn_core::{JoinTokenId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// A stored token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTokenRow {
    /// Its content, without the secret.
    pub info: JoinTokenInfo,
    /// The SHA-256 of its secret.
    pub hash: String,
}

/// A query for the columns that [`join_token`] reads, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.hash, t.role, t.cluster, c.region, t.uses, t.uses_left, t.created_at, t.created_by, ",
            "t.expires_at, t.revoked_at FROM join_tokens t JOIN clusters c ON c.id = t.cluster ",
            $rest
        )
    };
}

fn join_token(row: &AnyRow) -> Result<JoinTokenRow, StoreError> {
    let count = |column: &str| {
        number(row, column)
            .and_then(|n| u32::try_from(n).map_err(|e| StoreError::corrupt(column, e)))
    };
    let revoked_at: Option<i64> = row.try_get("revoked_at")?;
    Ok(JoinTokenRow {
        info: JoinTokenInfo {
            id: parsed(row, "id")?,
            role: parsed(row, "role")?,
            cluster: parsed(row, "cluster")?,
            region: parsed(row, "region")?,
            uses: count("uses")?,
            uses_left: count("uses_left")?,
            created_at: Timestamp(number(row, "created_at")?),
            created_by: row.try_get("created_by")?,
            expires_at: Timestamp(number(row, "expires_at")?),
            revoked_at: revoked_at.map(|at| Timestamp(u64::try_from(at).unwrap_or_default())),
        },
        hash: row.try_get("hash")?,
    })
}

/// Inserts a new token.
///
/// # Errors
/// When the database fails or there is no such cluster.
pub async fn join_token_insert(
    connection: &mut AnyConnection,
    row: &JoinTokenRow,
) -> Result<(), StoreError> {
    let info = &row.info;
    sqlx::query(
        "INSERT INTO join_tokens (id, hash, cluster, uses, uses_left, created_at, created_by, expires_at, role) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(info.id.to_string())
    .bind(&row.hash)
    .bind(info.cluster.as_str())
    .bind(i64::from(info.uses))
    .bind(i64::from(info.uses_left))
    .bind(stored(info.created_at.get()))
    .bind(&info.created_by)
    .bind(stored(info.expires_at.get()))
    .bind(info.role.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

/// The token with this id.
///
/// # Errors
/// When the database fails.
pub async fn join_token_get(
    connection: &mut AnyConnection,
    id: JoinTokenId,
) -> Result<Option<JoinTokenRow>, StoreError> {
    let row = sqlx::query(select!("WHERE t.id = $1"))
        .bind(id.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(join_token).transpose()
}

/// All tokens, newest first.
///
/// # Errors
/// When the database fails.
pub async fn join_token_list(
    connection: &mut AnyConnection,
) -> Result<Vec<JoinTokenRow>, StoreError> {
    let rows = sqlx::query(select!("ORDER BY t.created_at DESC, t.id"))
        .fetch_all(connection)
        .await?;
    rows.iter().map(join_token).collect()
}

/// Consumes one use of a token; `false` if it has none left, is expired or revoked. Of two concurrent calls for the last use only one succeeds.
///
/// # Errors
/// When the database fails.
pub async fn join_token_use(
    connection: &mut AnyConnection,
    id: JoinTokenId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE join_tokens SET uses_left = uses_left - 1 \
         WHERE id = $1 AND uses_left > 0 AND expires_at > $2 AND revoked_at IS NULL",
    )
    .bind(id.to_string())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes a token; `false` if there is none or it was revoked before.
///
/// # Errors
/// When the database fails.
pub async fn join_token_revoke(
    connection: &mut AnyConnection,
    id: JoinTokenId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE join_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL")
            .bind(id.to_string())
            .bind(stored(now.get()))
            .execute(connection)
            .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes tokens that expired before `before`.
///
/// # Errors
/// When the database fails.
pub async fn join_token_trim(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM join_tokens WHERE expires_at < $1")
        .bind(stored(before.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// The number of tokens that can still be used at `now`.
///
/// # Errors
/// When the database fails.
pub async fn join_token_count(
    connection: &mut AnyConnection,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM join_tokens WHERE uses_left > 0 AND expires_at > $1 AND revoked_at IS NULL",
    )
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}
