//! API tokens, which users create for their tools.

use fdn_core::account::ApiTokenInfo;
use fdn_core::{ApiTokenId, Timestamp, UserName};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, parsed_or_none, stored, time_or_none, to_json};
use super::session::{Holder, holder};

/// A stored token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTokenRow {
    /// The part that may be shown.
    pub info: ApiTokenInfo,
    /// The SHA-256 of its secret.
    pub hash: String,
}

fn api_token(row: &AnyRow) -> Result<ApiTokenRow, StoreError> {
    Ok(ApiTokenRow {
        info: ApiTokenInfo {
            id: parsed(row, "id")?,
            name: row.try_get("name")?,
            user: parsed(row, "user_name")?,
            scopes: json(row, "scopes")?,
            tenant: parsed_or_none(row, "tenant")?,
            created_at: Timestamp(number(row, "created_at")?),
            expires_at: Timestamp(number(row, "expires_at")?),
            last_used_at: time_or_none(row, "last_used_at")?,
            revoked_at: time_or_none(row, "revoked_at")?,
        },
        hash: row.try_get("hash")?,
    })
}

/// Inserts a new token.
///
/// # Errors
/// When the database fails.
pub async fn api_token_insert(
    connection: &mut AnyConnection,
    row: &ApiTokenRow,
) -> Result<(), StoreError> {
    let info = &row.info;
    sqlx::query(
        "INSERT INTO api_tokens (id, hash, user_name, name, scopes, tenant, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(info.id.to_string())
    .bind(&row.hash)
    .bind(info.user.as_str())
    .bind(&info.name)
    .bind(to_json(&info.scopes, "api_tokens.scopes")?)
    .bind(info.tenant.map(|tenant| tenant.to_string()))
    .bind(stored(info.created_at.get()))
    .bind(stored(info.expires_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// The token with this id, and its user.
///
/// # Errors
/// When the database fails.
pub async fn api_token_find(
    connection: &mut AnyConnection,
    id: ApiTokenId,
) -> Result<Option<(ApiTokenRow, Holder)>, StoreError> {
    let row = sqlx::query(
        "SELECT t.id, t.hash, t.user_name, t.name, t.scopes, t.tenant, t.created_at, t.expires_at, t.last_used_at, t.revoked_at, u.network_role, \
         u.disabled_at FROM api_tokens t JOIN users u ON u.name = t.user_name WHERE t.id = $1",
    )
    .bind(id.to_string())
    .fetch_optional(connection)
    .await?;
    row.map(|row| Ok((api_token(&row)?, holder(&row)?)))
        .transpose()
}

/// A user's tokens by id, newest first, beginning after `after` (if empty, with the newest), at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn api_token_list(
    connection: &mut AnyConnection,
    user: &UserName,
    after: &str,
    limit: u32,
) -> Result<Vec<ApiTokenRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, hash, user_name, name, scopes, tenant, created_at, expires_at, last_used_at, revoked_at FROM api_tokens WHERE user_name = $1 \
         AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3",
    )
    .bind(user.as_str())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(api_token).collect()
}

/// The number of a user's tokens that are neither expired nor revoked.
///
/// # Errors
/// When the database fails.
pub async fn api_token_count(
    connection: &mut AnyConnection,
    user: &UserName,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM api_tokens WHERE user_name = $1 AND expires_at > $2 AND revoked_at IS NULL",
    )
    .bind(user.as_str())
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}

/// Records the last use of a token.
///
/// # Errors
/// When the database fails.
pub async fn api_token_touch(
    connection: &mut AnyConnection,
    id: ApiTokenId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE api_tokens SET last_used_at = $2 WHERE id = $1")
        .bind(id.to_string())
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Revokes one token of a user, or all of them if `id` is `None`; returns how many were revoked.
///
/// # Errors
/// When the database fails.
pub async fn api_token_revoke(
    connection: &mut AnyConnection,
    user: &UserName,
    id: Option<ApiTokenId>,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE api_tokens SET revoked_at = $3 WHERE user_name = $1 AND ($2 = '' OR id = $2) AND revoked_at IS NULL",
    )
    .bind(user.as_str())
    .bind(id.map(|id| id.to_string()).unwrap_or_default())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes tokens that expired or were revoked before `before`.
///
/// # Errors
/// When the database fails.
pub async fn api_token_trim(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM api_tokens WHERE expires_at < $1 OR revoked_at < $1")
        .bind(stored(before.get()))
        .execute(connection)
        .await?;
    Ok(())
}
