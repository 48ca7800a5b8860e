//! Webhook requests still to be sent, for ended jobs and for budget alerts: one table each, of the same shape.

use fdn_core::billing::BudgetName;
use fdn_core::{AppName, JobId, MessageId, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// The cause of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A job that ended.
    Job {
        /// The job.
        job: JobId,
        /// The app; its secret signs the request.
        app: AppName,
    },
    /// A budget alert; the secret for the tenant's budgets signs the request.
    Budget(BudgetName),
}

impl Origin {
    const fn table(&self) -> &'static str {
        match self {
            Self::Job { .. } => "job_webhooks",
            Self::Budget(_) => "budget_webhooks",
        }
    }
}

/// A request still to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRow {
    /// The event's id.
    pub id: MessageId,
    /// Its cause.
    pub origin: Origin,
    /// The tenant.
    pub tenant: TenantId,
    /// The URL it goes to.
    pub url: String,
    /// The body.
    pub body: String,
    /// When it is due next.
    pub due_at: Timestamp,
    /// The number of failed attempts.
    pub failures: u32,
}

fn webhook_row(row: &AnyRow, origin: Origin) -> Result<WebhookRow, StoreError> {
    Ok(WebhookRow {
        id: parsed(row, "id")?,
        origin,
        tenant: parsed(row, "tenant")?,
        url: row.try_get("url")?,
        body: row.try_get("body")?,
        due_at: Timestamp(number(row, "due_at")?),
        failures: u32::try_from(number(row, "failures")?)
            .map_err(|e| StoreError::corrupt("failures", e))?,
    })
}

/// Inserts a request, in the transaction that ends its job or raises the alert.
///
/// # Errors
/// When the database fails.
pub async fn webhook_insert(
    connection: &mut AnyConnection,
    row: &WebhookRow,
) -> Result<(), StoreError> {
    let query = match &row.origin {
        Origin::Job { job, app } => sqlx::query(
            "INSERT INTO job_webhooks (id, tenant, url, body, due_at, failures, lease_until, job, app) \
             VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8)",
        )
        .bind(row.id.to_string())
        .bind(row.tenant.to_string())
        .bind(&row.url)
        .bind(&row.body)
        .bind(stored(row.due_at.get()))
        .bind(i64::from(row.failures))
        .bind(job.to_string())
        .bind(app.as_str()),
        Origin::Budget(budget) => sqlx::query(
            "INSERT INTO budget_webhooks (id, tenant, url, body, due_at, failures, lease_until, budget) \
             VALUES ($1, $2, $3, $4, $5, $6, 0, $7)",
        )
        .bind(row.id.to_string())
        .bind(row.tenant.to_string())
        .bind(&row.url)
        .bind(&row.body)
        .bind(stored(row.due_at.get()))
        .bind(i64::from(row.failures))
        .bind(budget.as_str()),
    };
    query.execute(connection).await?;
    Ok(())
}

/// Requests that are due and not leased: at most `most` of each kind, and `of_tenant` of these of one tenant, with the tenants in turn.
///
/// # Errors
/// When the database fails.
pub async fn webhook_due(
    connection: &mut AnyConnection,
    now: Timestamp,
    (most, of_tenant): (u32, u32),
) -> Result<Vec<WebhookRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, tenant, job, app, url, body, due_at, failures FROM \
         (SELECT id, tenant, job, app, url, body, due_at, failures, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY due_at, id) AS turn \
         FROM job_webhooks WHERE due_at <= $1 AND lease_until <= $1) AS due WHERE turn <= $3 ORDER BY turn, due_at, id LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .bind(i64::from(of_tenant))
    .fetch_all(&mut *connection)
    .await?;
    let of_job = |row: &AnyRow| {
        let (job, app) = (parsed(row, "job")?, parsed(row, "app")?);
        webhook_row(row, Origin::Job { job, app })
    };
    let mut due: Vec<WebhookRow> = rows.iter().map(of_job).collect::<Result<_, _>>()?;
    let rows = sqlx::query(
        "SELECT id, tenant, budget, url, body, due_at, failures FROM \
         (SELECT id, tenant, budget, url, body, due_at, failures, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY due_at, id) AS turn \
         FROM budget_webhooks WHERE due_at <= $1 AND lease_until <= $1) AS due WHERE turn <= $3 ORDER BY turn, due_at, id LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .bind(i64::from(of_tenant))
    .fetch_all(connection)
    .await?;
    for row in &rows {
        due.push(webhook_row(row, Origin::Budget(parsed(row, "budget")?))?);
    }
    Ok(due)
}

/// Leases a request until `until`; `false` if another controller has it or has tried it since.
///
/// # Errors
/// When the database fails.
pub async fn webhook_claim(
    connection: &mut AnyConnection,
    row: &WebhookRow,
    now: Timestamp,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let text = format!(
        "UPDATE {} SET lease_until = $3 WHERE id = $1 AND lease_until <= $2 AND failures = $4",
        row.origin.table()
    );
    let done = sqlx::query(AssertSqlSafe(text))
        .bind(row.id.to_string())
        .bind(stored(now.get()))
        .bind(stored(until.get()))
        .bind(i64::from(row.failures))
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Records a failed attempt: the request is due again at `due_at`.
///
/// # Errors
/// When the database fails.
pub async fn webhook_reschedule(
    connection: &mut AnyConnection,
    row: &WebhookRow,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let text = format!(
        "UPDATE {} SET failures = $2, due_at = $3, lease_until = 0 WHERE id = $1",
        row.origin.table()
    );
    sqlx::query(AssertSqlSafe(text))
        .bind(row.id.to_string())
        .bind(i64::from(row.failures.saturating_add(1)))
        .bind(stored(due_at.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes a request that was sent or given up.
///
/// # Errors
/// When the database fails.
pub async fn webhook_done(
    connection: &mut AnyConnection,
    row: &WebhookRow,
) -> Result<(), StoreError> {
    let text = format!("DELETE FROM {} WHERE id = $1", row.origin.table());
    sqlx::query(AssertSqlSafe(text))
        .bind(row.id.to_string())
        .execute(connection)
        .await?;
    Ok(())
}
