//! Users and the tokens they hold.

use fdn_core::Timestamp;
use sqlx::{AnyConnection, Row};

use super::row::{number, parsed, stored};
use super::{DEFAULT_TENANT, StoreError};
use crate::app::access::Role;

/// A user.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// The argon2id hash of the password, as a PHC string.
    pub password_hash: String,
}

/// A token that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Whose it is.
    pub user: String,
    /// What the user may do.
    pub role: Role,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was last seen, to the minute.
    pub last_used_at: Timestamp,
}

/// How many users there are.
///
/// # Errors
/// When the database fails.
pub async fn user_count(connection: &mut AnyConnection) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS n FROM users")
        .fetch_one(connection)
        .await?;
    number(&row, "n")
}

/// Adds a user; `false` if the name is taken.
///
/// # Errors
/// When the database fails.
pub async fn user_insert(
    connection: &mut AnyConnection,
    user: &User,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO users (name, tenant, role, password_hash, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO NOTHING",
    )
    .bind(&user.name)
    .bind(DEFAULT_TENANT)
    .bind(user.role.as_str())
    .bind(&user.password_hash)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The user of this name.
///
/// # Errors
/// When the database fails.
pub async fn user_get(
    connection: &mut AnyConnection,
    name: &str,
) -> Result<Option<User>, StoreError> {
    let row = sqlx::query("SELECT name, role, password_hash FROM users WHERE name = $1")
        .bind(name)
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(User {
            name: row.try_get("name")?,
            role: parsed(&row, "role")?,
            password_hash: row.try_get("password_hash")?,
        })
    })
    .transpose()
}

/// Keeps a new token by its hash.
///
/// # Errors
/// When the database fails.
pub async fn token_insert(
    connection: &mut AnyConnection,
    hash: &str,
    user: &str,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO tokens (hash, user_name, created_at, expires_at, last_used_at) VALUES ($1, $2, $3, $4, $3)")
        .bind(hash)
        .bind(user)
        .bind(stored(now.get()))
        .bind(stored(expires_at.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// The token of this hash, if it has not expired.
///
/// # Errors
/// When the database fails.
pub async fn token_find(
    connection: &mut AnyConnection,
    hash: &str,
    now: Timestamp,
) -> Result<Option<Session>, StoreError> {
    let row = sqlx::query(
        "SELECT t.user_name, u.role, t.expires_at, t.last_used_at FROM tokens t JOIN users u ON u.name = t.user_name \
         WHERE t.hash = $1 AND t.expires_at > $2",
    )
    .bind(hash)
    .bind(stored(now.get()))
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        Ok(Session {
            user: row.try_get("user_name")?,
            role: parsed(&row, "role")?,
            expires_at: Timestamp(number(&row, "expires_at")?),
            last_used_at: Timestamp(number(&row, "last_used_at")?),
        })
    })
    .transpose()
}

/// Notes that a token was seen.
///
/// # Errors
/// When the database fails.
pub async fn token_touch(
    connection: &mut AnyConnection,
    hash: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE tokens SET last_used_at = $2 WHERE hash = $1")
        .bind(hash)
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Removes tokens that have expired, and the least recently used ones of `user` beyond `keep`.
///
/// # Errors
/// When the database fails.
pub async fn token_trim(
    connection: &mut AnyConnection,
    user: &str,
    keep: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM tokens WHERE expires_at <= $1")
        .bind(stored(now.get()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM tokens WHERE user_name = $1 AND hash NOT IN \
         (SELECT hash FROM tokens WHERE user_name = $1 ORDER BY last_used_at DESC, hash LIMIT $2)",
    )
    .bind(user)
    .bind(i64::from(keep))
    .execute(connection)
    .await?;
    Ok(())
}
