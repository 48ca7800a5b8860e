//! Login sessions.

use fdn_core::account::SessionKind;
use fdn_core::{NetworkRole, SessionId, Timestamp, UserName};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, parsed_or_none, stored, time_or_none};

/// A stored session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// The SHA-256 of its secret.
    pub hash: String,
    /// The user.
    pub user: UserName,
    /// How the client holds it.
    pub kind: SessionKind,
    /// When it began.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Timestamp,
    /// The address from which it was begun.
    pub address: Option<String>,
}

/// The present state of the user of a session or token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The user's network role.
    pub network_role: Option<NetworkRole>,
    /// Since when the user is disabled; `None` if not disabled.
    pub disabled_at: Option<Timestamp>,
}

const fn kind_text(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Bearer => "bearer",
        SessionKind::Cookie => "cookie",
    }
}

fn session(row: &AnyRow) -> Result<SessionRow, StoreError> {
    let kind: String = row.try_get("kind")?;
    Ok(SessionRow {
        id: parsed(row, "id")?,
        hash: row.try_get("hash")?,
        user: parsed(row, "user_name")?,
        kind: match kind.as_str() {
            "bearer" => SessionKind::Bearer,
            "cookie" => SessionKind::Cookie,
            other => return Err(StoreError::corrupt("sessions.kind", other)),
        },
        created_at: Timestamp(number(row, "created_at")?),
        expires_at: Timestamp(number(row, "expires_at")?),
        last_used_at: Timestamp(number(row, "last_used_at")?),
        address: row.try_get("address")?,
    })
}

/// Reads the user's columns of a joined row.
pub(super) fn holder(row: &AnyRow) -> Result<Holder, StoreError> {
    Ok(Holder {
        network_role: parsed_or_none(row, "network_role")?,
        disabled_at: time_or_none(row, "disabled_at")?,
    })
}

/// Inserts a new session.
///
/// # Errors
/// When the database fails.
pub async fn session_insert(
    connection: &mut AnyConnection,
    session: &SessionRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO sessions (id, hash, user_name, kind, created_at, expires_at, last_used_at, address) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(session.id.to_string())
    .bind(&session.hash)
    .bind(session.user.as_str())
    .bind(kind_text(session.kind))
    .bind(stored(session.created_at.get()))
    .bind(stored(session.expires_at.get()))
    .bind(stored(session.last_used_at.get()))
    .bind(session.address.clone())
    .execute(connection)
    .await?;
    Ok(())
}

/// The session with this hash, and its user, if it has not expired.
///
/// # Errors
/// When the database fails.
pub async fn session_find(
    connection: &mut AnyConnection,
    hash: &str,
    now: Timestamp,
) -> Result<Option<(SessionRow, Holder)>, StoreError> {
    let row = sqlx::query(
        "SELECT s.id, s.hash, s.user_name, s.kind, s.created_at, s.expires_at, s.last_used_at, s.address, u.network_role, u.disabled_at \
         FROM sessions s JOIN users u ON u.name = s.user_name \
         WHERE s.hash = $1 AND s.expires_at > $2",
    )
    .bind(hash)
    .bind(stored(now.get()))
    .fetch_optional(connection)
    .await?;
    row.map(|row| Ok((session(&row)?, holder(&row)?)))
        .transpose()
}

/// The user of the session with this id, if it has not expired.
///
/// # Errors
/// When the database fails.
pub async fn session_holder(
    connection: &mut AnyConnection,
    id: SessionId,
    now: Timestamp,
) -> Result<Option<Holder>, StoreError> {
    let row = sqlx::query(
        "SELECT u.network_role, u.disabled_at FROM sessions s JOIN users u ON u.name = s.user_name \
         WHERE s.id = $1 AND s.expires_at > $2",
    )
    .bind(id.to_string())
    .bind(stored(now.get()))
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(holder).transpose()
}

/// A user's sessions that have not expired, last used first.
///
/// # Errors
/// When the database fails.
pub async fn session_list(
    connection: &mut AnyConnection,
    user: &UserName,
    now: Timestamp,
) -> Result<Vec<SessionRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, hash, user_name, kind, created_at, expires_at, last_used_at, address FROM sessions WHERE user_name = $1 AND expires_at > $2 \
         ORDER BY last_used_at DESC, id",
    )
    .bind(user.as_str())
    .bind(stored(now.get()))
    .fetch_all(connection)
    .await?;
    rows.iter().map(session).collect()
}

/// Records the last use of a session.
///
/// # Errors
/// When the database fails.
pub async fn session_touch(
    connection: &mut AnyConnection,
    hash: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET last_used_at = $2 WHERE hash = $1")
        .bind(hash)
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes one session of a user; `false` if there is none.
///
/// # Errors
/// When the database fails.
pub async fn session_delete(
    connection: &mut AnyConnection,
    user: &UserName,
    id: SessionId,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM sessions WHERE user_name = $1 AND id = $2")
        .bind(user.as_str())
        .bind(id.to_string())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes all sessions of a user except `but`; returns how many were deleted.
///
/// # Errors
/// When the database fails.
pub async fn session_delete_others(
    connection: &mut AnyConnection,
    user: &UserName,
    but: Option<SessionId>,
) -> Result<u64, StoreError> {
    let done = sqlx::query("DELETE FROM sessions WHERE user_name = $1 AND id <> $2")
        .bind(user.as_str())
        .bind(but.map(|id| id.to_string()).unwrap_or_default())
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}

/// Deletes expired sessions, and the least recently used ones of `user` beyond `keep`.
///
/// # Errors
/// When the database fails.
pub async fn session_trim(
    connection: &mut AnyConnection,
    user: &UserName,
    keep: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM sessions WHERE expires_at <= $1")
        .bind(stored(now.get()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM sessions WHERE user_name = $1 AND id NOT IN \
         (SELECT id FROM sessions WHERE user_name = $1 ORDER BY last_used_at DESC, id LIMIT $2)",
    )
    .bind(user.as_str())
    .bind(i64::from(keep))
    .execute(connection)
    .await?;
    Ok(())
}
