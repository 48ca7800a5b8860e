//! Usage records of single calls, as nodes of the release before sums send them. A batch is stored as a whole or not at all, and only once; the sums
//! for billing change with it. What nodes of this release send is in [`super::usage_sums`].

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::billing::{Account, Deltas, HOUR_MS, Month, Quantities, Slot, hour_of, period_of};
use fdn_core::usage::{UsageBatch, UsageOutcome, UsageReceipt, UsageRecord};
use fdn_core::{AppName, ClusterId, InvocationId, MebiBytes, NodeId, RegionName, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::billing::clock::clock_lock;
use super::billing::owner::{Owners, node_place, owner_list};
use super::billing::sums::sums_apply;
use super::row::{number, parsed, stored, version};
use super::usage_sums::{batch_note, delete_by_parts};

/// Rows per statement: both databases limit the number of values.
pub(super) const ROWS: usize = 200;
/// Columns of a record.
const COLUMNS: usize = 16;

/// Stores a batch in the transaction of `connection`, and adds it to the sums. A batch that was stored before changes nothing. For a known
/// invocation, only a record of the running call is replaced, by the record of its end.
///
/// # Errors
/// When a record claims more than a call can use, or the database fails.
pub async fn usage_store(
    connection: &mut AnyConnection,
    batch: &UsageBatch,
    now: Timestamp,
) -> Result<UsageReceipt, StoreError> {
    for record in &batch.records {
        Quantities::of(record)?;
    }
    let count = batch.records.len() as u64;
    if !batch_note(connection, batch.batch, &batch.node, count, now).await? {
        return Ok(UsageReceipt {
            stored: 0,
            duplicate: true,
        });
    }
    let records = last_of_each(&batch.records);
    let mut bookings = Bookings::open(connection, &batch.node, &records, now).await?;
    let mut count = 0;
    for rows in records.chunks(ROWS) {
        count += bookings.take(connection, &batch.node, rows).await?;
    }
    sums_apply(connection, &bookings.deltas).await?;
    Ok(UsageReceipt {
        stored: count,
        duplicate: false,
    })
}

/// The record to store of each invocation, since one statement cannot change a row twice: the one of its end, else the last one.
fn last_of_each(records: &[UsageRecord]) -> Vec<&UsageRecord> {
    let mut kept: BTreeMap<InvocationId, &UsageRecord> = BTreeMap::new();
    for record in records {
        let ended = |r: &&UsageRecord| r.outcome != UsageOutcome::Running;
        if record.outcome != UsageOutcome::Running
            || !kept.get(&record.invocation).is_some_and(ended)
        {
            kept.insert(record.invocation, record);
        }
    }
    kept.into_values().collect()
}

/// The account and the hour that a record is booked to.
struct Booking {
    account: Account,
    hour: Timestamp,
}

/// Books the records of one batch.
struct Bookings {
    owners: Owners,
    place: (ClusterId, RegionName),
    open: Option<Month>,
    now: Timestamp,
    deltas: Deltas,
}

impl Bookings {
    async fn open(
        connection: &mut AnyConnection,
        node: &NodeId,
        records: &[&UsageRecord],
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        // No month is closed from here until this transaction ends.
        let open = clock_lock(connection).await?;
        let apps: BTreeSet<&AppName> = records.iter().map(|record| &record.app).collect();
        Ok(Self {
            owners: owner_list(connection, apps).await?,
            place: node_place(connection, node).await?,
            open,
            now,
            deltas: Deltas::default(),
        })
    }

    fn booking(&self, record: &UsageRecord) -> Booking {
        let (cluster, region) = self.place.clone();
        Booking {
            account: Account {
                tenant: self.owners.at(&record.app, record.started_at),
                app: record.app.clone(),
                function: record.function.clone(),
                version: record.version,
                cluster,
                region,
            },
            hour: hour_of(record.started_at, self.now),
        }
    }

    fn slot(&self, booking: Booking) -> Slot {
        Slot {
            account: booking.account,
            period: period_of(booking.hour, self.open),
            at: booking.hour,
        }
    }

    fn add(&mut self, record: &UsageRecord) -> Result<(), StoreError> {
        let slot = self.slot(self.booking(record));
        Ok(self.deltas.add(slot, &Quantities::of(record)?)?)
    }

    /// Stores the records that are new, or that end a running call; returns how many.
    async fn take(
        &mut self,
        connection: &mut AnyConnection,
        node: &NodeId,
        rows: &[&UsageRecord],
    ) -> Result<u64, StoreError> {
        for (record, booking) in running_take(connection, rows).await? {
            if let Some(booking) = booking {
                let slot = self.slot(booking);
                self.deltas.sub(slot, &Quantities::of(&record)?)?;
            }
        }
        let new = self.insert(connection, node, rows).await?;
        for record in rows
            .iter()
            .filter(|record| new.contains(&record.invocation))
        {
            self.add(record)?;
        }
        Ok(new.len() as u64)
    }

    async fn insert(
        &self,
        connection: &mut AnyConnection,
        node: &NodeId,
        rows: &[&UsageRecord],
    ) -> Result<BTreeSet<InvocationId>, StoreError> {
        let text = format!(
            "INSERT INTO usage_records (invocation, app, function, version, node, started_at, duration_us, cpu_us, memory_mib, \
             gpu_memory_mib, egress_bytes, outcome, tenant, cluster, region, booked_at) VALUES {} \
             ON CONFLICT (invocation) DO NOTHING RETURNING invocation",
            rows_text(rows.len(), COLUMNS)
        );
        // The text contains only placeholders; values are bound.
        let mut query = sqlx::query(AssertSqlSafe(text));
        for record in rows {
            let Booking { account, hour } = self.booking(record);
            query = query
                .bind(record.invocation.to_string())
                .bind(record.app.to_string())
                .bind(record.function.to_string())
                .bind(i64::from(record.version.get()))
                .bind(node.to_string())
                .bind(stored(record.started_at.get()))
                .bind(stored(record.duration_us))
                .bind(stored(record.cpu_us))
                .bind(stored(record.memory_mib.get()))
                .bind(stored(record.gpu_memory_mib.get()))
                .bind(stored(record.egress_bytes))
                .bind(record.outcome.as_str())
                .bind(account.tenant.to_string())
                .bind(account.cluster.to_string())
                .bind(account.region.to_string())
                .bind(stored(hour.get()));
        }
        let new = query.fetch_all(connection).await?;
        new.iter().map(|row| parsed(row, "invocation")).collect()
    }
}

/// Removes and returns the records of running calls whose end is in `rows`, with their bookings.
async fn running_take(
    connection: &mut AnyConnection,
    rows: &[&UsageRecord],
) -> Result<Vec<(UsageRecord, Option<Booking>)>, StoreError> {
    let ended = rows
        .iter()
        .filter(|record| record.outcome != UsageOutcome::Running);
    let ended: Vec<String> = ended.map(|record| record.invocation.to_string()).collect();
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!(
        "DELETE FROM usage_records WHERE outcome = 'running' AND invocation IN ({}) RETURNING invocation, app, function, version, started_at, \
         duration_us, cpu_us, memory_mib, gpu_memory_mib, egress_bytes, outcome, tenant, cluster, region, booked_at",
        places(ended.len())
    );
    // The text contains only placeholders; values are bound.
    let query = ended
        .into_iter()
        .fold(sqlx::query(AssertSqlSafe(text)), sqlx::query::Query::bind);
    let rows = query.fetch_all(connection).await?;
    rows.iter()
        .map(|row| Ok((record(row)?, booking(row)?)))
        .collect()
}

/// How a record is booked in the sums; `None` if a controller of an earlier release stored it.
fn booking(row: &AnyRow) -> Result<Option<Booking>, StoreError> {
    let Some(hour) = row.try_get::<Option<i64>, _>("booked_at")? else {
        return Ok(None);
    };
    Ok(Some(Booking {
        account: Account {
            tenant: parsed(row, "tenant")?,
            app: parsed(row, "app")?,
            function: parsed(row, "function")?,
            version: version(row, "version")?,
            cluster: parsed(row, "cluster")?,
            region: parsed(row, "region")?,
        },
        hour: Timestamp(u64::try_from(hour).map_err(|e| StoreError::corrupt("booked_at", e))?),
    }))
}

/// The numbered parameters of some rows, in a form that both databases accept.
pub(super) fn rows_text(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let values = (1..=columns).map(|column| format!("${}", row * columns + column));
        format!("({})", values.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// `$1, $2, $3` for three values.
pub(super) fn places(count: usize) -> String {
    let places = (1..=count).map(|n| format!("${n}"));
    places.collect::<Vec<_>>().join(", ")
}

/// Adds to the sums at most `limit` records that a controller of an earlier release stored without sums; returns how many.
///
/// # Errors
/// When the database fails.
pub async fn usage_book(
    connection: &mut AnyConnection,
    limit: u32,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let rows = sqlx::query(
        "SELECT invocation, app, function, version, node, started_at, duration_us, cpu_us, memory_mib, gpu_memory_mib, egress_bytes, outcome \
         FROM usage_records WHERE booked_at IS NULL ORDER BY started_at LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(&mut *connection)
    .await?;
    let mut by_node: BTreeMap<NodeId, Vec<UsageRecord>> = BTreeMap::new();
    for row in &rows {
        by_node
            .entry(parsed(row, "node")?)
            .or_default()
            .push(record(row)?);
    }
    let mut count = 0;
    for (node, records) in by_node {
        let records: Vec<&UsageRecord> = records.iter().collect();
        let mut bookings = Bookings::open(connection, &node, &records, now).await?;
        for record in records {
            let Booking { account, hour } = bookings.booking(record);
            let done = sqlx::query(
                "UPDATE usage_records SET tenant = $2, cluster = $3, region = $4, booked_at = $5 \
                 WHERE invocation = $1 AND booked_at IS NULL",
            )
            .bind(record.invocation.to_string())
            .bind(account.tenant.to_string())
            .bind(account.cluster.to_string())
            .bind(account.region.to_string())
            .bind(stored(hour.get()))
            .execute(&mut *connection)
            .await?;
            if done.rows_affected() == 1 {
                bookings.add(record)?;
                count += 1;
            }
        }
        sums_apply(connection, &bookings.deltas).await?;
    }
    Ok(count)
}

fn record(row: &AnyRow) -> Result<UsageRecord, StoreError> {
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

/// Deletes call records, and hourly sums of hours that ended, before `before`; returns how many. Bills are made of the daily sums, which stay.
///
/// # Errors
/// When the database fails.
pub async fn usage_trim(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let records = "DELETE FROM usage_records WHERE invocation IN \
         (SELECT r.invocation FROM usage_records r WHERE r.started_at < $1 LIMIT $2)";
    let hours = "DELETE FROM usage_hours WHERE (tenant, period, at, app, function, version, cluster, region) IN \
         (SELECT h.tenant, h.period, h.at, h.app, h.function, h.version, h.cluster, h.region FROM usage_hours h WHERE h.at < $1 LIMIT $2)";
    let records = delete_by_parts(connection, records, before).await?;
    let ended = Timestamp(before.get().saturating_sub(HOUR_MS));
    Ok(records + delete_by_parts(connection, hours, ended).await?)
}
