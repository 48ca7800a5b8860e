//! Usage sums, as nodes send them: a batch is added to the sums for billing as a whole or not at all, and only once.
//!
//! Only the id of a batch is stored, so the database grows with apps, places and hours, and not with calls.

use std::collections::BTreeSet;

use fdn_core::billing::{Account, Deltas, Quantities, Slot, hour_of, period_of};
use fdn_core::usage::{UsageReceipt, UsageSum, UsageSums};
use fdn_core::{AppName, BatchId, NodeId, Timestamp};
use sqlx::AnyConnection;

use super::StoreError;
use super::billing::clock::clock_lock;
use super::billing::owner::{node_place, owner_list};
use super::billing::sums::sums_apply;
use super::row::stored;

/// Rows deleted in one statement: the database cancels statements that take long.
const AT_ONCE: i64 = 5000;

/// Adds a batch, in the transaction of `connection`. A batch that was added before changes nothing.
///
/// # Errors
/// When a sum claims more than so many calls can use or overflows, or the database fails.
pub async fn usage_add(
    connection: &mut AnyConnection,
    batch: &UsageSums,
    now: Timestamp,
) -> Result<UsageReceipt, StoreError> {
    let quantities: Result<Vec<Quantities>, _> =
        batch.sums.iter().map(Quantities::of_sum).collect();
    let quantities = quantities?;
    let records = u64::from(batch.records);
    if !batch_note(connection, batch.batch, &batch.node, records, now).await? {
        return Ok(UsageReceipt {
            stored: 0,
            duplicate: true,
        });
    }
    // No month is closed from here until this transaction ends.
    let open = clock_lock(connection).await?;
    let apps: BTreeSet<&AppName> = batch.sums.iter().map(|sum| &sum.app).collect();
    let owners = owner_list(connection, apps).await?;
    let (cluster, region) = node_place(connection, &batch.node).await?;
    let slot = |sum: &UsageSum| {
        let hour = hour_of(sum.first, now);
        Slot {
            account: Account {
                tenant: owners.at(&sum.app, sum.first),
                app: sum.app.clone(),
                function: sum.function.clone(),
                version: sum.version,
                cluster: cluster.clone(),
                region: region.clone(),
            },
            period: period_of(hour, open),
            at: hour,
        }
    };
    let mut deltas = Deltas::default();
    for (sum, quantities) in batch.sums.iter().zip(&quantities) {
        deltas.add(slot(sum), quantities)?;
    }
    sums_apply(connection, &deltas).await?;
    Ok(UsageReceipt {
        stored: records,
        duplicate: false,
    })
}

/// Records the id of a batch; returns whether it is new.
///
/// # Errors
/// When the database fails.
pub(super) async fn batch_note(
    connection: &mut AnyConnection,
    batch: BatchId,
    node: &NodeId,
    records: u64,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let new = sqlx::query(
        "INSERT INTO usage_batches (id, node, records, received_at) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING",
    )
    .bind(batch.to_string())
    .bind(node.as_str())
    .bind(stored(records))
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(new.rows_affected() > 0)
}

/// Deletes batches received before `before`, except the newest of each node; returns how many. A node sends a segment until it has the receipt, and
/// only then the next one: so however long it was away, no other batch can be sent again. The newest is kept both by the controllers' clock and by
/// the node's, which its id is made of, since one of the two may be wrong.
///
/// # Errors
/// When the database fails.
pub async fn batch_trim(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let batches = "DELETE FROM usage_batches WHERE id IN (SELECT b.id FROM usage_batches b WHERE b.received_at < $1 \
         AND b.received_at < (SELECT MAX(n.received_at) FROM usage_batches n WHERE n.node = b.node) \
         AND b.id < (SELECT MAX(n.id) FROM usage_batches n WHERE n.node = b.node) LIMIT $2)";
    delete_by_parts(connection, batches, before).await
}

/// Repeats a statement that deletes at most `$2` rows of before `$1` until none is left; returns how many there were.
pub(super) async fn delete_by_parts(
    connection: &mut AnyConnection,
    statement: &'static str,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let mut all = 0;
    loop {
        let deleted = sqlx::query(statement)
            .bind(stored(before.get()))
            .bind(AT_ONCE)
            .execute(&mut *connection)
            .await?
            .rows_affected();
        all += deleted;
        if deleted < AT_ONCE.unsigned_abs() {
            return Ok(all);
        }
    }
}
