//! The log of who changed what. Rows are only ever added.

use fdn_core::Timestamp;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, stored};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What: `deploy`, `rollback`, `delete`, `login`, `node.enrol` and so on.
    pub action: &'static str,
    /// To what.
    pub subject: String,
    /// The state before, as JSON.
    pub before: Option<String>,
    /// The state after, as JSON.
    pub after: Option<String>,
}

/// Adds an entry.
///
/// # Errors
/// When the database fails.
pub async fn audit_insert(
    connection: &mut AnyConnection,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO audit (id, at, actor, action, subject, before_state, after_state) VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(uuid::Uuid::now_v7().simple().to_string())
    .bind(stored(entry.at.get()))
    .bind(&entry.actor)
    .bind(entry.action)
    .bind(&entry.subject)
    .bind(entry.before.clone())
    .bind(entry.after.clone())
    .execute(connection)
    .await?;
    Ok(())
}

/// A change as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub subject: String,
    /// The state before, as JSON.
    pub before: Option<String>,
    /// The state after, as JSON.
    pub after: Option<String>,
}

/// The newest entries, newest first.
///
/// # Errors
/// When the database fails.
pub async fn audit_list(
    connection: &mut AnyConnection,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT at, actor, action, subject, before_state, after_state FROM audit ORDER BY at DESC, id DESC LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(AuditRow {
                at: Timestamp(number(row, "at")?),
                actor: row.try_get("actor")?,
                action: row.try_get("action")?,
                subject: row.try_get("subject")?,
                before: row.try_get("before_state")?,
                after: row.try_get("after_state")?,
            })
        })
        .collect()
}
