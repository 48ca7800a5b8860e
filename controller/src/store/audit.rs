//! The audit log. Rows are only ever added: triggers refuse anything else (see [`super::dialect`]).

use fdn_core::account::AuditRecord;
use fdn_core::{TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::idempotency::idempotency_done;
use super::row::{number, parsed_or_none, stored};
use crate::app::actor::Actor;

/// One audited change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When it happened.
    pub at: Timestamp,
    /// Who made the change, with which token and from which address.
    pub actor: Actor,
    /// The tenant, if the change is within one.
    pub tenant: Option<TenantId>,
    /// The action: `deploy`, `rollback`, `delete`, `login`, `node.enrol` and so on.
    pub action: &'static str,
    /// The object of the action.
    pub subject: String,
    /// The state before, as JSON. Never a secret.
    pub before: Option<String>,
    /// The state after, as JSON. Never a secret.
    pub after: Option<String>,
}

/// Adds an entry. If the request has an idempotency key, it counts as carried out from then on.
///
/// # Errors
/// When the request was begun twice under its idempotency key and the other one was carried out, so that this transaction must not be committed,
/// or the database fails.
pub async fn audit_insert(
    connection: &mut AnyConnection,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let actor = &entry.actor;
    sqlx::query(
        "INSERT INTO audit (id, at, actor, action, subject, before_state, after_state, tenant, token, address, request) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(uuid::Uuid::now_v7().simple().to_string())
    .bind(stored(entry.at.get()))
    .bind(&actor.name)
    .bind(entry.action)
    .bind(&entry.subject)
    .bind(entry.before.clone())
    .bind(entry.after.clone())
    .bind(entry.tenant.map(|tenant| tenant.to_string()))
    .bind(actor.token.map(|token| token.to_string()))
    .bind(actor.address.map(|address| address.to_string()))
    .bind(actor.request.clone())
    .execute(&mut *connection)
    .await?;
    match &actor.idempotency {
        Some(begun) => idempotency_done(connection, &actor.name, begun, entry.at).await,
        None => Ok(()),
    }
}

/// Which entries to list. Empty and absent fields do not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Entries of this tenant.
    pub tenant: Option<TenantId>,
    /// Entries of tenants that this user owns.
    pub owner: Option<String>,
    /// Entries by this actor.
    pub actor: String,
    /// Entries of this action.
    pub action: String,
    /// Entries on this subject.
    pub subject: String,
    /// Entries at this time or later.
    pub since: Option<Timestamp>,
    /// Entries before this time.
    pub until: Option<Timestamp>,
    /// Entries older than the one with this time and id.
    pub before: Option<(Timestamp, String)>,
}

fn record(row: &AnyRow) -> Result<AuditRecord, StoreError> {
    let state = |column: &str| {
        row.try_get::<Option<String>, _>(column)?
            .map(|text| serde_json::from_str(&text).map_err(|e| StoreError::corrupt(column, e)))
            .transpose()
    };
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: Timestamp(number(row, "at")?),
        actor: row.try_get("actor")?,
        token: parsed_or_none(row, "token")?,
        tenant: parsed_or_none(row, "tenant")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        before: state("before_state")?,
        after: state("after_state")?,
        address: row.try_get("address")?,
        request: row.try_get("request")?,
    })
}

/// Entries that match `filter`, newest first, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn audit_list(
    connection: &mut AnyConnection,
    filter: &AuditFilter,
    limit: u32,
) -> Result<Vec<AuditRecord>, StoreError> {
    let end = |at: Option<Timestamp>| at.map_or(i64::MAX, |at| stored(at.get()));
    let (before_at, before_id) = match &filter.before {
        Some((at, id)) => (stored(at.get()), id.clone()),
        None => (i64::MAX, String::new()),
    };
    let tenant = filter.tenant.map(|tenant| tenant.to_string());
    let rows = sqlx::query(
        "SELECT id, at, actor, token, tenant, action, subject, before_state, after_state, address, request FROM audit WHERE ($1 = '' OR tenant = $1) \
         AND ($2 = '' OR tenant IN (SELECT m.tenant FROM members m WHERE m.user_name = $2 AND m.role = 'owner')) \
         AND ($3 = '' OR actor = $3) AND ($4 = '' OR action = $4) AND ($5 = '' OR subject = $5) \
         AND at >= $6 AND at < $7 AND (at < $8 OR (at = $8 AND id < $9)) \
         ORDER BY at DESC, id DESC LIMIT $10",
    )
    .bind(tenant.unwrap_or_default())
    .bind(filter.owner.clone().unwrap_or_default())
    .bind(&filter.actor)
    .bind(&filter.action)
    .bind(&filter.subject)
    .bind(filter.since.map_or(0, |at| stored(at.get())))
    .bind(end(filter.until))
    .bind(before_at)
    .bind(before_id)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(record).collect()
}
