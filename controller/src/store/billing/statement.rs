//! Issued statements. Rows are only ever added.

use fdn_core::billing::{Line, Money, Month, Statement, StatementState, StatementSummary};
use fdn_core::{TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::{StoreError, month};
use crate::store::row::{json, number, parsed, stored, to_json};
use crate::store::usage::{ROWS, rows_text};

/// Issues a statement unless it was issued before; returns whether it is new.
///
/// # Errors
/// When the database fails.
pub async fn statement_insert(
    connection: &mut AnyConnection,
    statement: &Statement,
) -> Result<bool, StoreError> {
    let (tenant, period) = (
        statement.tenant.to_string(),
        i64::from(statement.month.index()),
    );
    let new = sqlx::query(
        "INSERT INTO statements (tenant, month, issued_at, currency, micros, line_count, meters) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, month) DO NOTHING",
    )
    .bind(&tenant)
    .bind(period)
    .bind(stored(statement.at.get()))
    .bind(statement.total.currency.to_string())
    .bind(statement.total.micros)
    .bind(stored(statement.line_count))
    .bind(to_json(&statement.meters, "statements.meters")?)
    .execute(&mut *connection)
    .await?;
    if new.rows_affected() == 0 {
        return Ok(false);
    }
    let mut number = 0;
    for lines in statement.lines.chunks(ROWS) {
        let text = format!(
            "INSERT INTO statement_lines (tenant, month, line, entry) VALUES {}",
            rows_text(lines.len(), 4)
        );
        // The text contains only placeholders; values are bound.
        let mut query = sqlx::query(AssertSqlSafe(text));
        for line in lines {
            let entry = to_json(line, "statement_lines.entry")?;
            query = query
                .bind(tenant.clone())
                .bind(period)
                .bind(number)
                .bind(entry);
            number += 1;
        }
        query.execute(&mut *connection).await?;
    }
    Ok(true)
}

fn total(row: &AnyRow) -> Result<Money, StoreError> {
    Ok(Money::new(row.try_get("micros")?, parsed(row, "currency")?))
}

/// An issued statement with at most `limit` lines, from line `from` on.
///
/// # Errors
/// When the database fails.
pub async fn statement_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    of: Month,
    (from, limit): (u64, u32),
) -> Result<Option<Statement>, StoreError> {
    let head = sqlx::query("SELECT issued_at, currency, micros, line_count, meters FROM statements WHERE tenant = $1 AND month = $2")
        .bind(tenant.to_string())
        .bind(i64::from(of.index()))
        .fetch_optional(&mut *connection)
        .await?;
    let Some(head) = head else {
        return Ok(None);
    };
    let rows = sqlx::query(
        "SELECT entry FROM statement_lines WHERE tenant = $1 AND month = $2 AND line >= $3 ORDER BY line LIMIT $4",
    )
    .bind(tenant.to_string())
    .bind(i64::from(of.index()))
    .bind(stored(from))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    let lines: Vec<Line> = rows
        .iter()
        .map(|row| json(row, "entry"))
        .collect::<Result<_, _>>()?;
    Ok(Some(Statement {
        tenant,
        month: of,
        state: StatementState::Issued,
        at: Timestamp(number(&head, "issued_at")?),
        total: total(&head)?,
        meters: json(&head, "meters")?,
        line_count: number(&head, "line_count")?,
        lines,
    }))
}

/// Issued statements of months before `before`, newest first, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn statement_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    before: Month,
    limit: u32,
) -> Result<Vec<StatementSummary>, StoreError> {
    let rows = sqlx::query(
        "SELECT month, issued_at, currency, micros FROM statements WHERE tenant = $1 AND month < $2 \
         ORDER BY month DESC LIMIT $3",
    )
    .bind(tenant.to_string())
    .bind(i64::from(before.index()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(StatementSummary {
                month: month(row, "month")?,
                state: StatementState::Issued,
                at: Timestamp(number(row, "issued_at")?),
                total: total(row)?,
            })
        })
        .collect()
}

/// Tenants with usage or storage in a month whose statement is not issued.
///
/// # Errors
/// When the database fails.
pub async fn statement_missing(
    connection: &mut AnyConnection,
    of: Month,
) -> Result<Vec<TenantId>, StoreError> {
    let mut missing = Vec::new();
    for tenant in super::owner::tenant_list_billed(connection, of).await? {
        let row =
            sqlx::query("SELECT COUNT(*) AS n FROM statements WHERE tenant = $1 AND month = $2")
                .bind(tenant.to_string())
                .bind(i64::from(of.index()))
                .fetch_one(&mut *connection)
                .await?;
        if number(&row, "n")? == 0 {
            missing.push(tenant);
        }
    }
    Ok(missing)
}
