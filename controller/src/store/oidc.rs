//! Users of OpenID Connect providers.

use fdn_core::{Timestamp, UserName};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{number, parsed, stored};

/// The local user of a provider's user, if there is one; records the login.
///
/// # Errors
/// When the database fails.
pub async fn identity_find(
    connection: &mut AnyConnection,
    issuer: &str,
    subject: &str,
    now: Timestamp,
) -> Result<Option<UserName>, StoreError> {
    let row = sqlx::query(
        "UPDATE oidc_identities SET last_login_at = $3 WHERE issuer = $1 AND subject = $2 RETURNING user_name",
    )
    .bind(issuer)
    .bind(subject)
    .bind(stored(now.get()))
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(|row| parsed(row, "user_name")).transpose()
}

/// Links a provider's user to a local user.
///
/// # Errors
/// When the database fails, or the provider's user is linked already.
pub async fn identity_insert(
    connection: &mut AnyConnection,
    (issuer, subject): (&str, &str),
    user: &UserName,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO oidc_identities (issuer, subject, user_name, created_at, last_login_at) VALUES ($1, $2, $3, $4, $4)",
    )
    .bind(issuer)
    .bind(subject)
    .bind(user.as_str())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether a local user may be linked to a provider's user: it was created for that, is not linked yet, and nobody has set a password. (Earlier
/// releases left the permission when they set one.)
///
/// # Errors
/// When the database fails.
pub async fn user_is_invited(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM users u WHERE u.name = $1 AND u.oidc = 1 AND u.password_changed_at = u.created_at \
         AND NOT EXISTS (SELECT 1 FROM oidc_identities i WHERE i.user_name = u.name)",
    )
    .bind(user.as_str())
    .fetch_one(connection)
    .await?;
    Ok(number(&row, "n")? > 0)
}

/// Whether a user logs in with the provider: it was created for it, or by it.
///
/// # Errors
/// When the database fails.
pub async fn user_is_of_provider(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS n FROM users WHERE name = $1 AND oidc = 1")
        .bind(user.as_str())
        .fetch_one(connection)
        .await?;
    Ok(number(&row, "n")? > 0)
}

/// Permits a user to be linked to a provider's user.
///
/// # Errors
/// When the database fails.
pub async fn user_invite(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE users SET oidc = 1 WHERE name = $1")
        .bind(user.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
