//! Invitations: at most one for each user who has not set a password yet.

use fdn_core::invitation::InvitationInfo;
use fdn_core::{Timestamp, UserName};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored, time_or_none};

/// A stored invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationRow {
    /// Its content, without the secret.
    pub info: InvitationInfo,
    /// The SHA-256 of its secret.
    pub hash: String,
}

/// An invitation, with the present state of its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitedUser {
    /// The invitation.
    pub row: InvitationRow,
    /// Since when the user is disabled; `None` if not disabled.
    pub disabled_at: Option<Timestamp>,
}

/// Stores a new invitation in place of the user's last one, and increments the user's generation.
///
/// # Errors
/// When the database fails. Nothing is stored for an unknown user.
pub async fn invitation_put(
    connection: &mut AnyConnection,
    row: &InvitationRow,
) -> Result<(), StoreError> {
    let info = &row.info;
    sqlx::query(
        "INSERT INTO invitations (user_name, hash, created_at, created_by, expires_at, password_changed_at) \
         SELECT name, $2, $3, $4, $5, password_changed_at FROM users WHERE name = $1 \
         ON CONFLICT (user_name) DO UPDATE SET hash = excluded.hash, created_at = excluded.created_at, \
         created_by = excluded.created_by, expires_at = excluded.expires_at, password_changed_at = excluded.password_changed_at",
    )
    .bind(info.user.as_str())
    .bind(&row.hash)
    .bind(stored(info.created_at.get()))
    .bind(&info.created_by)
    .bind(stored(info.expires_at.get()))
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE users SET generation = generation + 1 WHERE name = $1")
        .bind(info.user.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// The invitation of a user, unless the password was changed since it was created. It may have expired.
///
/// # Errors
/// When the database fails.
pub async fn invitation_get(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<Option<InvitedUser>, StoreError> {
    let row = sqlx::query(
        "SELECT i.user_name, i.hash, i.created_at, i.created_by, i.expires_at, u.disabled_at \
         FROM invitations i JOIN users u ON u.name = i.user_name \
         WHERE i.user_name = $1 AND i.password_changed_at = u.password_changed_at",
    )
    .bind(user.as_str())
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(InvitedUser {
        row: InvitationRow {
            info: InvitationInfo {
                user: parsed(&row, "user_name")?,
                created_at: Timestamp(number(&row, "created_at")?),
                created_by: row.try_get("created_by")?,
                expires_at: Timestamp(number(&row, "expires_at")?),
            },
            hash: row.try_get("hash")?,
        },
        disabled_at: time_or_none(&row, "disabled_at")?,
    }))
}

/// Consumes the invitation with this hash; `false` if it is gone or expired, or its user is disabled. Of two concurrent calls only one succeeds.
///
/// # Errors
/// When the database fails.
pub async fn invitation_take(
    connection: &mut AnyConnection,
    user: &UserName,
    hash: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "DELETE FROM invitations WHERE user_name = $1 AND hash = $2 AND expires_at > $3 \
         AND password_changed_at = (SELECT password_changed_at FROM users WHERE name = $1 AND disabled_at IS NULL)",
    )
    .bind(user.as_str())
    .bind(hash)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a user's invitation, because a password was set.
///
/// # Errors
/// When the database fails.
pub async fn invitation_delete(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM invitations WHERE user_name = $1")
        .bind(user.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Expires a user's invitation now, unless it has expired. The user can be invited again.
///
/// # Errors
/// When the database fails.
pub async fn invitation_end(
    connection: &mut AnyConnection,
    user: &UserName,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE invitations SET expires_at = $2 WHERE user_name = $1 AND expires_at > $2")
        .bind(user.as_str())
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}
