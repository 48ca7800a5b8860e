//! Requests with an idempotency key: the caller, the key, whether the request was carried out, and the sealed answer.

use fdn_core::Timestamp;
use fdn_core::message::Sealed;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, stored, time_or_none};

/// A request sent with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// The keyed hash of operation and body.
    pub request: String,
    /// When it arrived, or was last begun.
    pub created_at: Timestamp,
    /// When it was carried out; `None` if it was not.
    pub done_at: Option<Timestamp>,
    /// The sealed answer, if it is stored.
    pub answer: Option<Sealed>,
}

/// A request that was begun under a key. If the same one is begun again once its lease has expired, the times differ; the one that commits first
/// is carried out, and the other one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunRequest {
    /// The key.
    pub key: String,
    /// When it was begun.
    pub at: Timestamp,
}

/// The request that a caller sent with a key.
///
/// # Errors
/// When the database fails.
pub async fn idempotency_get(
    connection: &mut AnyConnection,
    caller: &str,
    key: &str,
) -> Result<Option<IdempotencyRow>, StoreError> {
    let row = sqlx::query("SELECT request, created_at, done_at, answer FROM idempotency WHERE caller = $1 AND id = $2")
        .bind(caller)
        .bind(key)
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(IdempotencyRow {
            request: row.try_get("request")?,
            created_at: Timestamp(number(&row, "created_at")?),
            done_at: time_or_none(&row, "done_at")?,
            answer: row.try_get::<Option<String>, _>("answer")?.map(Sealed),
        })
    })
    .transpose()
}

/// Records that a request begins: `false` if the key was used for another request, or this one was carried out or began after `stale`.
///
/// # Errors
/// When the database fails.
pub async fn idempotency_begin(
    connection: &mut AnyConnection,
    caller: &str,
    key: &str,
    request: &str,
    (now, stale): (Timestamp, Timestamp),
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO idempotency (caller, id, request, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (caller, id) DO UPDATE SET created_at = excluded.created_at \
         WHERE idempotency.request = excluded.request AND idempotency.done_at IS NULL AND idempotency.created_at <= $5",
    )
    .bind(caller)
    .bind(key)
    .bind(request)
    .bind(stored(now.get()))
    .bind(stored(stale.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records that a request was carried out. Call it in the transaction that does so.
///
/// # Errors
/// When the same request was begun twice and the other one was carried out, so that this transaction must not be committed, or the database
/// fails.
pub async fn idempotency_done(
    connection: &mut AnyConnection,
    caller: &str,
    begun: &BegunRequest,
    now: Timestamp,
) -> Result<(), StoreError> {
    // Who commits first has carried it out, even if it outlasted its lease: otherwise retries that come faster than a slow request ends would
    // throw away the work of each other for ever.
    let done = sqlx::query(
        "UPDATE idempotency SET done_at = $3, created_at = $4 WHERE caller = $1 AND id = $2 AND (done_at IS NULL OR created_at = $4)",
    )
    .bind(caller)
    .bind(&begun.key)
    .bind(stored(now.get()))
    .bind(stored(begun.at.get()))
    .execute(connection)
    .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Overtaken);
    }
    Ok(())
}

/// Stores the answer of a request, unless the same one was begun twice and the other one is carried out.
///
/// # Errors
/// When the database fails.
pub async fn idempotency_answer(
    connection: &mut AnyConnection,
    caller: &str,
    begun: &BegunRequest,
    answer: &Sealed,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE idempotency SET answer = $3, done_at = COALESCE(done_at, $4) WHERE caller = $1 AND id = $2 AND created_at = $5",
    )
    .bind(caller)
    .bind(&begun.key)
    .bind(&answer.0)
    .bind(stored(now.get()))
    .bind(stored(begun.at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a request that was refused, so that it may be sent again; not if the same one was begun again already.
///
/// # Errors
/// When the database fails.
pub async fn idempotency_forget(
    connection: &mut AnyConnection,
    caller: &str,
    begun: &BegunRequest,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE caller = $1 AND id = $2 AND done_at IS NULL AND created_at = $3")
        .bind(caller)
        .bind(&begun.key)
        .bind(stored(begun.at.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes requests older than `before`, and of those of `caller` that were carried out the ones beyond its newest `keep`. The row of one that runs
/// stays: without it the request could not be carried out.
///
/// # Errors
/// When the database fails.
pub async fn idempotency_trim(
    connection: &mut AnyConnection,
    caller: &str,
    keep: u32,
    before: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE created_at < $1")
        .bind(stored(before.get()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM idempotency WHERE caller = $1 AND done_at IS NOT NULL AND id NOT IN \
         (SELECT id FROM idempotency WHERE caller = $1 ORDER BY created_at DESC, id LIMIT $2)",
    )
    .bind(caller)
    .bind(i64::from(keep))
    .execute(connection)
    .await?;
    Ok(())
}
