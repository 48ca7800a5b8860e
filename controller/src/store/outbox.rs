//! The transactional outbox: messages committed together with the state change that caused them.

use fdn_core::message::{Envelope, Message};
use fdn_core::{MessageId, Revision, Timestamp};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, stored, to_json};

/// The position of a row in the sending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The revision of the state change.
    pub revision: Revision,
    /// The number of the message within that revision.
    pub part: u64,
}

/// A waiting message.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// Its position.
    pub position: Position,
    /// The message.
    pub envelope: Envelope,
}

/// Statistics of waiting messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxStats {
    /// The number of waiting messages.
    pub depth: u64,
    /// When the oldest one was written.
    pub oldest: Option<Timestamp>,
}

/// The topic of a message. A new message replaces an unsent older one on the same topic, since it contains everything the older one says.
fn topic(message: &Message) -> String {
    match message {
        Message::AppDesired(app) => format!("app/{}", app.app),
        Message::BindingsDesired(bindings) => format!("bindings/{}", bindings.app),
        // Each change builds on the one before, so none may replace another.
        Message::BindingsChanged(changed) => {
            format!("bindings/{}/{}", changed.app, changed.revision.get())
        }
        Message::NetworkDesired(_) => "network".to_owned(),
        Message::TxtDesired(txt) => format!("txt/{}", txt.name),
        Message::FleetDesired(_) => "fleet".to_owned(),
        Message::NodeStatus(_)
        | Message::DemandReport(_)
        | Message::RttReport(_)
        | Message::RunReport(_) => {
            format!("report/{}", message.kind())
        }
        Message::JobTicket(ticket) => format!("job/{}", ticket.job),
    }
}

/// Puts a message into the outbox, in the transaction of the state change at `revision`.
///
/// # Errors
/// When the database fails.
pub async fn outbox_push(
    connection: &mut AnyConnection,
    revision: Revision,
    message: Message,
    now: Timestamp,
) -> Result<(), StoreError> {
    let topic = topic(&message);
    let envelope = Envelope::new(MessageId::from_uuid(uuid::Uuid::now_v7()), now, message);
    sqlx::query("DELETE FROM outbox WHERE topic = $1")
        .bind(&topic)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "INSERT INTO outbox (revision, part, topic, envelope, created_at) \
         SELECT $1, COALESCE(MAX(part) + 1, 0), $2, $3, $4 FROM outbox WHERE revision = $1",
    )
    .bind(stored(revision.get()))
    .bind(&topic)
    .bind(to_json(&envelope, "outbox.envelope")?)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// The first waiting messages, in the order of their state changes, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn outbox_list(
    connection: &mut AnyConnection,
    limit: u32,
) -> Result<Vec<OutboxRow>, StoreError> {
    let rows =
        sqlx::query("SELECT revision, part, envelope FROM outbox ORDER BY revision, part LIMIT $1")
            .bind(i64::from(limit))
            .fetch_all(connection)
            .await?;
    rows.iter()
        .map(|row| {
            let position = Position {
                revision: Revision(number(row, "revision")?),
                part: number(row, "part")?,
            };
            Ok(OutboxRow {
                position,
                envelope: json(row, "envelope")?,
            })
        })
        .collect()
}

/// Removes a message that the broker has confirmed.
///
/// # Errors
/// When the database fails.
pub async fn outbox_delete(
    connection: &mut AnyConnection,
    position: Position,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM outbox WHERE revision = $1 AND part = $2")
        .bind(stored(position.revision.get()))
        .bind(stored(position.part))
        .execute(connection)
        .await?;
    Ok(())
}

/// Whether a message about a state change after `revision` is waiting.
///
/// # Errors
/// When the database fails.
pub async fn outbox_waits(
    connection: &mut AnyConnection,
    revision: Revision,
) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS depth FROM outbox WHERE revision > $1")
        .bind(stored(revision.get()))
        .fetch_one(connection)
        .await?;
    Ok(number(&row, "depth")? > 0)
}

/// Statistics of the waiting messages.
///
/// # Errors
/// When the database fails.
pub async fn outbox_stats(connection: &mut AnyConnection) -> Result<OutboxStats, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS depth, MIN(created_at) AS oldest FROM outbox")
        .fetch_one(connection)
        .await?;
    let oldest: Option<i64> = row.try_get("oldest")?;
    Ok(OutboxStats {
        depth: number(&row, "depth")?,
        oldest: oldest.map(|at| Timestamp(u64::try_from(at).unwrap_or_default())),
    })
}
