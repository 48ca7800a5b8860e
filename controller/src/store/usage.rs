//! What nodes report of calls. A batch is stored whole or not at all, and once.

use fdn_core::usage::{UsageBatch, UsageReceipt, UsageRecord};
use fdn_core::{AppName, BatchId, MebiBytes, Timestamp};
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::row::{number, parsed, stored, version};

/// Rows of one statement: both databases bound the number of values in one.
const ROWS: usize = 200;
/// Columns of a record.
const COLUMNS: usize = 12;

/// Stores a batch, in the transaction of `connection`. A batch that was stored before changes nothing. Of an invocation that is known
/// already, only what was noted while it ran gives way to what came of it.
///
/// # Errors
/// When the database fails.
pub async fn usage_store(
    connection: &mut AnyConnection,
    batch: &UsageBatch,
    now: Timestamp,
) -> Result<UsageReceipt, StoreError> {
    let new = sqlx::query(
        "INSERT INTO usage_batches (id, node, records, received_at) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING",
    )
    .bind(batch.batch.to_string())
    .bind(batch.node.as_str())
    .bind(stored(batch.records.len() as u64))
    .bind(stored(now.get()))
    .execute(&mut *connection)
    .await?;
    if new.rows_affected() == 0 {
        return Ok(UsageReceipt {
            stored: 0,
            duplicate: true,
        });
    }
    let records = last_of_each(&batch.records);
    let mut count = 0;
    for rows in records.chunks(ROWS) {
        count += insert(connection, batch, rows).await?;
    }
    Ok(UsageReceipt {
        stored: count,
        duplicate: false,
    })
}

/// One statement cannot change a row twice: of records of one invocation, the last one counts.
fn last_of_each(records: &[UsageRecord]) -> Vec<&UsageRecord> {
    let mut seen = std::collections::BTreeSet::new();
    let newest = records.iter().rev();
    let mut kept: Vec<&UsageRecord> = newest.filter(|r| seen.insert(r.invocation)).collect();
    kept.reverse();
    kept
}

async fn insert(
    connection: &mut AnyConnection,
    batch: &UsageBatch,
    rows: &[&UsageRecord],
) -> Result<u64, StoreError> {
    let text = insert_text(rows.len());
    // The text is made of numbers alone; values are bound.
    let mut query = sqlx::query(AssertSqlSafe(text));
    for record in rows {
        query = query
            .bind(record.invocation.to_string())
            .bind(record.app.to_string())
            .bind(record.function.to_string())
            .bind(i64::from(record.version.get()))
            .bind(batch.node.to_string())
            .bind(stored(record.started_at.get()))
            .bind(stored(record.duration_us))
            .bind(stored(record.cpu_us))
            .bind(stored(record.memory_mib.get()))
            .bind(stored(record.gpu_memory_mib.get()))
            .bind(stored(record.egress_bytes))
            .bind(record.outcome.as_str());
    }
    Ok(query.execute(connection).await?.rows_affected())
}

/// The statement for this many rows, with numbered values, which both databases understand.
fn insert_text(rows: usize) -> String {
    let row = |row: usize| {
        let values = (1..=COLUMNS).map(|column| format!("${}", row * COLUMNS + column));
        format!("({})", values.collect::<Vec<_>>().join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!(
        "INSERT INTO usage_records (invocation, app, function, version, node, started_at, duration_us, cpu_us, memory_mib, \
         gpu_memory_mib, egress_bytes, outcome) VALUES {} \
         ON CONFLICT (invocation) DO UPDATE SET duration_us = excluded.duration_us, cpu_us = excluded.cpu_us, \
         egress_bytes = excluded.egress_bytes, outcome = excluded.outcome \
         WHERE usage_records.outcome = 'running' AND excluded.outcome <> 'running'",
        rows.join(", ")
    )
}

/// What is known of the calls of an app from a moment on, the oldest first, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn usage_list(
    connection: &mut AnyConnection,
    app: &AppName,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<UsageRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT * FROM usage_records WHERE app = $1 AND started_at >= $2 ORDER BY started_at, invocation LIMIT $3",
    )
    .bind(app.as_str())
    .bind(stored(since.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(record).collect()
}

fn record(row: &sqlx::any::AnyRow) -> Result<UsageRecord, StoreError> {
    Ok(UsageRecord {
        invocation: parsed(row, "invocation")?,
        app: parsed(row, "app")?,
        function: parsed(row, "function")?,
        version: version(row, "version")?,
        started_at: Timestamp(number(row, "started_at")?),
        duration_us: number(row, "duration_us")?,
        cpu_us: number(row, "cpu_us")?,
        memory_mib: MebiBytes(number(row, "memory_mib")?),
        gpu_memory_mib: MebiBytes(number(row, "gpu_memory_mib")?),
        egress_bytes: number(row, "egress_bytes")?,
        outcome: parsed(row, "outcome")?,
    })
}

/// Whether a batch is remembered.
///
/// # Errors
/// When the database fails.
pub async fn usage_batch_known(
    connection: &mut AnyConnection,
    batch: BatchId,
) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS n FROM usage_batches WHERE id = $1")
        .bind(batch.to_string())
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<i64, _>("n")? > 0)
}

/// Forgets batches that came before `batches`, and removes records of calls before `records`; how many of each.
///
/// # Errors
/// When the database fails.
pub async fn usage_trim(
    connection: &mut AnyConnection,
    batches: Timestamp,
    records: Timestamp,
) -> Result<(u64, u64), StoreError> {
    let forgotten = sqlx::query("DELETE FROM usage_batches WHERE received_at < $1")
        .bind(stored(batches.get()))
        .execute(&mut *connection)
        .await?;
    let removed = sqlx::query("DELETE FROM usage_records WHERE started_at < $1")
        .bind(stored(records.get()))
        .execute(connection)
        .await?;
    Ok((forgotten.rows_affected(), removed.rows_affected()))
}
