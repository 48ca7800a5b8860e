//! Sums of usage by hour and by day, changed in the same transaction that stores the batch.

use fdn_core::billing::{
    BillingError, Deltas, Dimensions, Meter, Month, Quantities, Slot, UsageEntry,
};
use fdn_core::{TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use crate::store::row::stored;

/// Rows per statement: SQLite looks up each value by its name among all values of the statement, so twice the rows cost four times as much.
const ROWS: usize = 25;
/// The columns with sums, and their meters.
const METERS: [(&str, Meter); 5] = [
    ("invocations", Meter::Invocations),
    ("memory", Meter::GibSeconds),
    ("cpu", Meter::VcpuSeconds),
    ("gpu", Meter::GpuGibSeconds),
    ("egress", Meter::EgressGib),
];
/// Columns of a row, keys and sums.
const COLUMNS: usize = 13;

/// Adds `deltas` to the sums of hours and of days.
///
/// # Errors
/// When the database fails, or a sum does not fit.
pub async fn sums_apply(connection: &mut AnyConnection, deltas: &Deltas) -> Result<(), StoreError> {
    apply(connection, "usage_hours", deltas).await?;
    apply(connection, "usage_days", &deltas.by_day()?).await
}

/// Rows are changed in the order of their keys, so that two transactions cannot deadlock.
async fn apply(
    connection: &mut AnyConnection,
    table: &'static str,
    deltas: &Deltas,
) -> Result<(), StoreError> {
    let all: Vec<(&Slot, &Quantities)> = deltas.iter().collect();
    for rows in all.chunks(ROWS) {
        // The text contains only constants and placeholders; values are bound.
        let mut query = sqlx::query(AssertSqlSafe(apply_text(table, rows.len())));
        for (slot, quantities) in rows {
            let account = &slot.account;
            query = query
                .bind(account.tenant.to_string())
                .bind(i64::from(slot.period.index()))
                .bind(stored(slot.at.get()))
                .bind(account.app.to_string())
                .bind(account.function.to_string())
                .bind(i64::from(account.version.get()))
                .bind(account.cluster.to_string())
                .bind(account.region.to_string());
            for (_, meter) in METERS {
                let change = i64::try_from(quantities.get(meter));
                query = query.bind(change.map_err(|_| BillingError::Overflow("a sum of usage"))?);
            }
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

fn apply_text(table: &str, rows: usize) -> String {
    let names = METERS.map(|(name, _)| name);
    let values = crate::store::usage::rows_text(rows, COLUMNS);
    let added = names.map(|name| format!("{name} = {table}.{name} + excluded.{name}"));
    format!(
        "INSERT INTO {table} (tenant, period, at, app, function, version, cluster, region, {}) VALUES {values} \
         ON CONFLICT (tenant, period, at, app, function, version, cluster, region) DO UPDATE SET {}",
        names.join(", "),
        added.join(", ")
    )
}

/// How sums are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// By app, function, region and cluster.
    Place,
    /// By one column.
    Column(&'static str),
    /// Not grouped: one sum of everything.
    All,
}

/// Which usage is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The tenant.
    pub tenant: TenantId,
    /// The first month, of the statements that the usage is on.
    pub first: Month,
    /// The last month, of the statements that the usage is on.
    pub last: Month,
    /// The start of the time of use, the beginning of a day.
    pub from: Timestamp,
    /// The end of the time of use, exclusive, the beginning of a day.
    pub to: Timestamp,
}

/// A sum and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The quantities; with the place, if grouped by place.
    pub used: UsageEntry,
    /// The column's value as text, if grouped by a column.
    pub name: String,
}

/// The sums of usage within `span`, grouped by `by`.
///
/// # Errors
/// When the database fails.
pub async fn sums_list(
    connection: &mut AnyConnection,
    span: Span,
    by: GroupBy,
) -> Result<Vec<Sum>, StoreError> {
    // The text contains only constants; values are bound.
    let rows = sqlx::query(AssertSqlSafe(sums_text(by)))
        .bind(span.tenant.to_string())
        .bind(i64::from(span.first.index()))
        .bind(i64::from(span.last.index()))
        .bind(stored(span.from.get()))
        .bind(stored(span.to.get()))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| sum(row, by)).collect()
}

/// The sum of many sums may exceed 64 bits, so upper and lower halves are added separately.
fn halves(name: &str, expression: &str) -> String {
    format!(
        "CAST(COALESCE(SUM({expression} / 4294967296), 0) AS BIGINT) AS {name}_high, \
         CAST(COALESCE(SUM({expression} % 4294967296), 0) AS BIGINT) AS {name}_low"
    )
}

fn sums_text(by: GroupBy) -> String {
    let sums = METERS.map(|(name, _)| halves(name, name)).join(", ");
    let filter = "tenant = $1 AND period BETWEEN $2 AND $3 AND at >= $4 AND at < $5";
    let columns = match by {
        GroupBy::Place => "app, function, region, cluster",
        GroupBy::Column(name) => name,
        GroupBy::All => return format!("SELECT {sums} FROM usage_days WHERE {filter}"),
    };
    format!(
        "SELECT {columns}, {sums} FROM usage_days WHERE {filter} GROUP BY {columns} ORDER BY {columns}"
    )
}

fn joined(row: &AnyRow, name: &str) -> Result<i128, StoreError> {
    let half = |which: &str| -> Result<i64, StoreError> {
        Ok(row.try_get(format!("{name}_{which}").as_str())?)
    };
    Ok((i128::from(half("high")?) << 32) + i128::from(half("low")?))
}

fn quantities(row: &AnyRow) -> Result<Quantities, StoreError> {
    let mut all = Quantities::default();
    for (name, meter) in METERS {
        all.add(&Quantities::one(meter, joined(row, name)?))?;
    }
    Ok(all)
}

fn sum(row: &AnyRow, by: GroupBy) -> Result<Sum, StoreError> {
    use crate::store::row::parsed;
    let place = match by {
        GroupBy::Place => Dimensions {
            app: Some(parsed(row, "app")?),
            function: Some(parsed(row, "function")?),
            region: Some(parsed(row, "region")?),
            cluster: Some(parsed(row, "cluster")?),
        },
        GroupBy::Column(_) | GroupBy::All => Dimensions::default(),
    };
    let name = match by {
        GroupBy::Column("at") => row.try_get::<i64, _>("at")?.to_string(),
        GroupBy::Column(column) => row.try_get(column)?,
        GroupBy::Place | GroupBy::All => String::new(),
    };
    Ok(Sum {
        used: UsageEntry {
            place,
            quantities: quantities(row)?,
        },
        name,
    })
}

/// The months of use, before `period`, of late usage that is on the statement of `period`.
///
/// # Errors
/// When the database fails.
pub async fn late_months(
    connection: &mut AnyConnection,
    tenant: TenantId,
    period: Month,
) -> Result<Vec<Month>, StoreError> {
    let rows = sqlx::query(
        "SELECT DISTINCT at FROM usage_days WHERE tenant = $1 AND period = $2 AND at < $3 ORDER BY at",
    )
    .bind(tenant.to_string())
    .bind(i64::from(period.index()))
    .bind(stored(period.start().get()))
    .fetch_all(connection)
    .await?;
    let mut months = Vec::new();
    for row in &rows {
        months.push(Month::of(Timestamp(crate::store::row::number(row, "at")?)));
    }
    months.dedup();
    Ok(months)
}

/// All usage ever: the sums of all stored records, of the hourly sums, and of the daily sums. The last two agree as long as no hour was deleted;
/// the first is the part that nodes of the release before sums sent as records, as long as none was deleted.
///
/// # Errors
/// When the database fails.
pub async fn sums_check(connection: &mut AnyConnection) -> Result<[Quantities; 3], StoreError> {
    let records = [
        halves("invocations", "1"),
        halves("memory", "(memory_mib * duration_us)"),
        halves("cpu", "cpu_us"),
        halves("gpu", "(gpu_memory_mib * duration_us)"),
        halves("egress", "egress_bytes"),
    ];
    // Each record is one call: the halves of a 1 are all in the lower one.
    let all = METERS.map(|(name, _)| halves(name, name)).join(", ");
    let mut found = Vec::with_capacity(3);
    for text in [
        format!(
            "SELECT {} FROM usage_records WHERE booked_at IS NOT NULL",
            records.join(", ")
        ),
        format!("SELECT {all} FROM usage_hours"),
        format!("SELECT {all} FROM usage_days"),
    ] {
        // The text contains only constants.
        let row = sqlx::query(AssertSqlSafe(text))
            .fetch_one(&mut *connection)
            .await?;
        found.push(quantities(&row)?);
    }
    found
        .try_into()
        .map_err(|_| StoreError::corrupt("usage_days", "three sums were asked for"))
}
