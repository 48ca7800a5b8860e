//! Users and their passwords.

use fdn_core::account::UserInfo;
use fdn_core::{NetworkRole, Timestamp, UserName};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, parsed_or_none, stored, time_or_none};

/// A stored user.
#[derive(Clone)]
pub struct UserRow {
    /// The part that may be shown.
    pub info: UserInfo,
    /// The argon2id hash of the password, as a PHC string.
    pub password_hash: String,
}

impl UserRow {
    /// A new user, not disabled and not invited.
    #[must_use]
    pub const fn new(
        name: UserName,
        network_role: Option<NetworkRole>,
        password_hash: String,
        now: Timestamp,
    ) -> Self {
        Self {
            info: UserInfo {
                name,
                network_role,
                created_at: now,
                disabled_at: None,
                password_changed_at: now,
                invited_until: None,
                generation: 1,
            },
            password_hash,
        }
    }
}

/// A query for all columns of a user, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, network_role, password_hash, created_at, disabled_at, password_changed_at, generation, ",
            "(SELECT i.expires_at FROM invitations i WHERE i.user_name = users.name ",
            "AND i.password_changed_at = users.password_changed_at) AS invited_until FROM users ",
            $rest
        )
    };
}

fn user(row: &AnyRow) -> Result<UserRow, StoreError> {
    Ok(UserRow {
        info: UserInfo {
            name: parsed(row, "name")?,
            network_role: parsed_or_none(row, "network_role")?,
            created_at: Timestamp(number(row, "created_at")?),
            disabled_at: time_or_none(row, "disabled_at")?,
            password_changed_at: Timestamp(number(row, "password_changed_at")?),
            invited_until: time_or_none(row, "invited_until")?,
            generation: number(row, "generation")?,
        },
        password_hash: row.try_get("password_hash")?,
    })
}

/// The number of users.
///
/// # Errors
/// When the database fails.
pub async fn user_count(connection: &mut AnyConnection) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS n FROM users")
        .fetch_one(connection)
        .await?;
    number(&row, "n")
}

/// The number of network admins who are not disabled. Invited users who have not set a password cannot log in, and do not count.
///
/// # Errors
/// When the database fails.
pub async fn user_count_admins(connection: &mut AnyConnection) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM users WHERE network_role = 'admin' AND disabled_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM invitations i WHERE i.user_name = users.name AND i.password_changed_at = users.password_changed_at)",
    )
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}

/// Inserts a user; `false` if the name is taken.
///
/// # Errors
/// When the database fails.
pub async fn user_insert(
    connection: &mut AnyConnection,
    user: &UserRow,
) -> Result<bool, StoreError> {
    let info = &user.info;
    let done = sqlx::query(
        "INSERT INTO users (name, network_role, password_hash, created_at, password_changed_at, generation) \
         VALUES ($1, $2, $3, $4, $4, $5) ON CONFLICT (name) DO NOTHING",
    )
    .bind(info.name.as_str())
    .bind(info.network_role.map(NetworkRole::as_str))
    .bind(&user.password_hash)
    .bind(stored(info.created_at.get()))
    .bind(stored(info.generation))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The user with this name.
///
/// # Errors
/// When the database fails.
pub async fn user_get(
    connection: &mut AnyConnection,
    name: &str,
) -> Result<Option<UserRow>, StoreError> {
    let row = sqlx::query(select!("WHERE name = $1"))
        .bind(name)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(user).transpose()
}

/// Users by name, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn user_list(
    connection: &mut AnyConnection,
    after: &str,
    limit: u32,
) -> Result<Vec<UserRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE name > $1 ORDER BY name LIMIT $2"))
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(user).collect()
}

/// Updates a user's role and whether the user is disabled, unless the user was changed since `user.info.generation`; `false` if so.
///
/// # Errors
/// When the database fails.
pub async fn user_update(
    connection: &mut AnyConnection,
    user: &UserInfo,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE users SET network_role = $2, disabled_at = $3, generation = generation + 1 \
         WHERE name = $1 AND generation = $4",
    )
    .bind(user.name.as_str())
    .bind(user.network_role.map(NetworkRole::as_str))
    .bind(user.disabled_at.map(|at| stored(at.get())))
    .bind(stored(user.generation))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Sets a user's password hash. A user who has a password is not one whom the first login with the identity provider under this name may become; a
/// user who logged in there already goes on doing so.
///
/// # Errors
/// When the database fails.
pub async fn user_set_password(
    connection: &mut AnyConnection,
    name: &UserName,
    hash: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE users SET password_hash = $2, password_changed_at = $3, generation = generation + 1, \
         oidc = CASE WHEN EXISTS (SELECT 1 FROM oidc_identities i WHERE i.user_name = users.name) THEN oidc ELSE 0 END \
         WHERE name = $1",
    )
    .bind(name.as_str())
    .bind(hash)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a user with sessions and API tokens; memberships must be gone already. Stored answers for the user are deleted too, since the name may be
/// given to somebody else.
///
/// # Errors
/// When the database fails or the user is still a member.
pub async fn user_delete(
    connection: &mut AnyConnection,
    name: &UserName,
) -> Result<(), StoreError> {
    for query in [
        "DELETE FROM idempotency WHERE caller = $1",
        "DELETE FROM oidc_identities WHERE user_name = $1",
        "DELETE FROM invitations WHERE user_name = $1",
        "DELETE FROM sessions WHERE user_name = $1",
        "DELETE FROM api_tokens WHERE user_name = $1",
        "DELETE FROM users WHERE name = $1",
    ] {
        sqlx::query(query)
            .bind(name.as_str())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
