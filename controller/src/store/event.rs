//! Events, numbered for readers, and the sources they are made from.
//!
//! Only one controller at a time adds rows (see `app::events`), so their numbers are in commit order, and a reader who has read up to a
//! number has missed none below it.

use std::collections::BTreeMap;

use fdn_core::event::{Event, EventKind};
use fdn_core::{AppName, Revision, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, parsed_or_none, stored};

/// An event to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// When it happened.
    pub at: Timestamp,
    /// What it is about.
    pub kind: EventKind,
    /// The action.
    pub action: String,
    /// The object of the action.
    pub subject: String,
    /// The tenant, if it concerns one.
    pub tenant: Option<TenantId>,
    /// The app, if it concerns one.
    pub app: Option<AppName>,
    /// Further details.
    pub detail: Option<String>,
    /// The id of its source: there is at most one event per source.
    pub source: String,
}

/// A change in the audit log for which there is no event yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpublishedChange {
    /// The id of the audit entry.
    pub id: String,
    /// When it happened.
    pub at: Timestamp,
    /// The action.
    pub action: String,
    /// The object of the action.
    pub subject: String,
    /// The tenant, if it concerns one.
    pub tenant: Option<TenantId>,
}

/// Plans of an app made at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplannedApp {
    /// The app.
    pub app: AppName,
    /// Its tenant.
    pub tenant: TenantId,
    /// The revision.
    pub revision: Revision,
    /// When they were made.
    pub at: Timestamp,
    /// The number of client groups.
    pub groups: u64,
}

/// Appends events in this order. Those whose source has an event already are skipped.
///
/// # Errors
/// When the database fails.
pub async fn event_append(
    connection: &mut AnyConnection,
    events: &[NewEvent],
) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT COALESCE(MAX(id), 0) AS last FROM events")
        .fetch_one(&mut *connection)
        .await?;
    let mut last = number(&row, "last")?;
    for event in events {
        let added = sqlx::query(
            "INSERT INTO events (id, at, kind, action, subject, tenant, app, detail, source) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (source) DO NOTHING",
        )
        .bind(stored(last + 1))
        .bind(stored(event.at.get()))
        .bind(event.kind.as_str())
        .bind(&event.action)
        .bind(&event.subject)
        .bind(event.tenant.map(|tenant| tenant.to_string()))
        .bind(event.app.as_ref().map(ToString::to_string))
        .bind(event.detail.clone())
        .bind(&event.source)
        .execute(&mut *connection)
        .await?;
        last += added.rows_affected();
    }
    Ok(())
}

fn event(row: &AnyRow) -> Result<Event, StoreError> {
    Ok(Event {
        id: number(row, "id")?,
        at: Timestamp(number(row, "at")?),
        kind: parsed(row, "kind")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        tenant: parsed_or_none(row, "tenant")?,
        app: parsed_or_none(row, "app")?,
        detail: row.try_get("detail")?,
    })
}

/// Events after number `after`, in order, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn event_list(
    connection: &mut AnyConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, kind, action, subject, tenant, app, detail FROM events WHERE id > $1 ORDER BY id LIMIT $2",
    )
    .bind(stored(after))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(event).collect()
}

/// The numbers of the oldest and the newest event; zeros if there is none.
///
/// # Errors
/// When the database fails.
pub async fn event_ends(connection: &mut AnyConnection) -> Result<(u64, u64), StoreError> {
    let row = sqlx::query(
        "SELECT COALESCE(MIN(id), 0) AS oldest, COALESCE(MAX(id), 0) AS newest FROM events",
    )
    .fetch_one(connection)
    .await?;
    Ok((number(&row, "oldest")?, number(&row, "newest")?))
}

/// Deletes events beyond the newest `keep`, except those at `since` or later: their sources are still scanned, and would give new events.
///
/// # Errors
/// When the database fails.
pub async fn event_trim(
    connection: &mut AnyConnection,
    keep: u32,
    since: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM events WHERE at < $2 AND id <= (SELECT COALESCE(MAX(id), 0) FROM events) - $1",
    )
    .bind(i64::from(keep))
    .bind(stored(since.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Changes in the audit log at `since` or later without an event, oldest first. Changes of sessions, users and tokens are left out.
///
/// # Errors
/// When the database fails.
pub async fn audit_list_unpublished(
    connection: &mut AnyConnection,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<UnpublishedChange>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, action, subject, tenant FROM audit WHERE at >= $1 \
         AND subject NOT LIKE 'session/%' AND subject NOT LIKE 'user/%' AND subject NOT LIKE 'token/%' \
         AND NOT EXISTS (SELECT 1 FROM events WHERE events.source = audit.id) ORDER BY at, id LIMIT $2",
    )
    .bind(stored(since.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(UnpublishedChange {
                id: row.try_get("id")?,
                at: Timestamp(number(row, "at")?),
                action: row.try_get("action")?,
                subject: row.try_get("subject")?,
                tenant: parsed_or_none(row, "tenant")?,
            })
        })
        .collect()
}

/// Plans made after a revision, by revision and app. Revisions are committed in order, so none below the last one can appear later.
///
/// # Errors
/// When the database fails.
pub async fn plans_after(
    connection: &mut AnyConnection,
    after: Revision,
    limit: u32,
) -> Result<Vec<ReplannedApp>, StoreError> {
    let rows = sqlx::query(
        "SELECT plans.app AS app, apps.tenant AS tenant, plans.revision AS revision, MAX(plans.planned_at) AS at, COUNT(*) AS client_groups \
         FROM plans JOIN apps ON apps.name = plans.app WHERE plans.revision > $1 \
         GROUP BY plans.app, apps.tenant, plans.revision ORDER BY plans.revision, plans.app LIMIT $2",
    )
    .bind(stored(after.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(ReplannedApp {
                app: parsed(row, "app")?,
                tenant: parsed(row, "tenant")?,
                revision: Revision(number(row, "revision")?),
                at: Timestamp(number(row, "at")?),
                groups: number(row, "client_groups")?,
            })
        })
        .collect()
}

/// All marks: the last reported state by subject, and how far sources were read.
///
/// # Errors
/// When the database fails.
pub async fn event_marks(
    connection: &mut AnyConnection,
) -> Result<BTreeMap<String, String>, StoreError> {
    let rows = sqlx::query("SELECT subject, value FROM event_marks")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("subject")?, row.try_get("value")?)))
        .collect()
}

/// The marks of these subjects.
///
/// # Errors
/// When the database fails.
pub async fn event_marks_of(
    connection: &mut AnyConnection,
    subjects: &[&str],
) -> Result<BTreeMap<String, String>, StoreError> {
    let mut marks = BTreeMap::new();
    for subject in subjects {
        let row = sqlx::query("SELECT value FROM event_marks WHERE subject = $1")
            .bind(*subject)
            .fetch_optional(&mut *connection)
            .await?;
        if let Some(row) = row {
            marks.insert((*subject).to_owned(), row.try_get("value")?);
        }
    }
    Ok(marks)
}

/// Sets the mark of a subject, or deletes it if `value` is `None`.
///
/// # Errors
/// When the database fails.
pub async fn event_mark(
    connection: &mut AnyConnection,
    subject: &str,
    value: Option<&str>,
) -> Result<(), StoreError> {
    let statement = match value {
        Some(_) => sqlx::query(
            "INSERT INTO event_marks (subject, value) VALUES ($1, $2) ON CONFLICT (subject) DO UPDATE SET value = excluded.value",
        ),
        None => sqlx::query("DELETE FROM event_marks WHERE subject = $1"),
    };
    let statement = statement.bind(subject);
    let statement = match value {
        Some(value) => statement.bind(value),
        None => statement,
    };
    statement.execute(connection).await?;
    Ok(())
}
