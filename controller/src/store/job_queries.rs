//! Queries of the dispatchers: jobs that wait, have lost their dispatcher, have expired, or need not be kept any longer; and job leases.

use fdn_core::job::JobState;
use fdn_core::{AppName, FunctionName, JobId, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// The most jobs that one statement names: databases bound the number of parameters.
const NAMED_MAX: usize = 500;

/// Locks the job counts of an app until the transaction ends.
///
/// # Errors
/// When the database fails.
pub async fn lane_lock(
    connection: &mut AnyConnection,
    app: &AppName,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO job_lanes (app, touched) VALUES ($1, $2) ON CONFLICT (app) DO UPDATE SET touched = excluded.touched",
    )
    .bind(app.as_str())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// The number of an app's jobs in a state, counted up to `most`.
///
/// # Errors
/// When the database fails.
pub async fn lane_count(
    connection: &mut AnyConnection,
    app: &AppName,
    state: JobState,
    most: u32,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM jobs WHERE app = $1 AND state = $2 LIMIT $3) AS found",
    )
    .bind(app.as_str())
    .bind(state.as_str())
    .bind(i64::from(most))
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}

/// The number of running jobs of a tenant that call a function, over all apps, counted up to `most`.
///
/// # Errors
/// When the database fails.
pub async fn function_count(
    connection: &mut AnyConnection,
    (tenant, function): (TenantId, &FunctionName),
    most: u32,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM jobs WHERE state = 'running' AND tenant = $1 AND functions LIKE $2 LIMIT $3) AS found",
    )
    .bind(tenant.to_string())
    // A function's name contains no character that is special in a pattern.
    .bind(format!("% {function} %"))
    .bind(i64::from(most))
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}

/// The number of jobs in each state that has any.
///
/// # Errors
/// When the database fails.
pub async fn job_counts(
    connection: &mut AnyConnection,
) -> Result<Vec<(JobState, u64)>, StoreError> {
    let rows = sqlx::query("SELECT state, COUNT(*) AS n FROM jobs GROUP BY state")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| Ok((parsed(row, "state")?, number(row, "n")?)))
        .collect()
}

fn ids(rows: &[AnyRow]) -> Result<Vec<JobId>, StoreError> {
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// Tenants with queued jobs that are due, at most `most`: those after the tenant `after` first, then the others.
///
/// # Errors
/// When the database fails.
pub async fn waiting_tenants(
    connection: &mut AnyConnection,
    now: Timestamp,
    (after, most): (Option<TenantId>, u32),
) -> Result<Vec<TenantId>, StoreError> {
    let rows = sqlx::query(
        "SELECT tenant FROM jobs WHERE state = 'queued' AND due_at <= $1 GROUP BY tenant \
         ORDER BY CASE WHEN tenant > $3 THEN 0 ELSE 1 END, tenant LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .bind(after.map_or_else(String::new, |tenant| tenant.to_string()))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| parsed(row, "tenant")).collect()
}

/// A tenant's queued jobs that are due, by priority and age, at most `most`: none of the apps in `except`, of which only the first 500
/// are regarded.
///
/// # Errors
/// When the database fails.
pub async fn waiting_jobs(
    connection: &mut AnyConnection,
    (tenant, except): (TenantId, &[&AppName]),
    now: Timestamp,
    most: u32,
) -> Result<Vec<JobId>, StoreError> {
    let except = except.get(..NAMED_MAX).unwrap_or(except);
    let names: Vec<String> = (4..).take(except.len()).map(|n| format!("${n}")).collect();
    let others = if names.is_empty() {
        String::new()
    } else {
        format!("AND app NOT IN ({})", names.join(", "))
    };
    let text = format!(
        "SELECT id FROM jobs WHERE state = 'queued' AND tenant = $1 AND due_at <= $2 {others} ORDER BY priority DESC, due_at, id LIMIT $3"
    );
    let mut query = sqlx::query(AssertSqlSafe(text))
        .bind(tenant.to_string())
        .bind(stored(now.get()))
        .bind(i64::from(most));
    for app in except {
        query = query.bind(app.as_str());
    }
    let rows = query.fetch_all(connection).await?;
    ids(&rows)
}

/// Running jobs whose leases have ended by the clock, those that ended first before others, each with the generation of its row: every extension of
/// a lease changes that.
///
/// # Errors
/// When the database fails.
pub async fn overdue_leases(
    connection: &mut AnyConnection,
    now: Timestamp,
    most: u32,
) -> Result<Vec<(JobId, u64)>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, generation FROM jobs WHERE state = 'running' AND lease_until <= $1 ORDER BY lease_until LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| Ok((parsed(row, "id")?, number(row, "generation")?)))
        .collect()
}

/// Queued jobs that have expired.
///
/// # Errors
/// When the database fails.
pub async fn overdue_jobs(
    connection: &mut AnyConnection,
    now: Timestamp,
    most: u32,
) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM jobs WHERE state = 'queued' AND expires_at <= $1 ORDER BY expires_at LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .fetch_all(connection)
    .await?;
    ids(&rows)
}

/// Jobs submitted before `before`, never accepted, and not given up yet.
///
/// # Errors
/// When the database fails.
pub async fn abandoned_jobs(
    connection: &mut AnyConnection,
    before: Timestamp,
    most: u32,
) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM jobs WHERE state = 'submitted' AND submitted_at < $1 AND kept_until IS NULL ORDER BY submitted_at LIMIT $2",
    )
    .bind(stored(before.get()))
    .bind(i64::from(most))
    .fetch_all(connection)
    .await?;
    ids(&rows)
}

/// Jobs whose retention has ended.
///
/// # Errors
/// When the database fails.
pub async fn expired_jobs(
    connection: &mut AnyConnection,
    now: Timestamp,
    most: u32,
) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM jobs WHERE kept_until IS NOT NULL AND kept_until <= $1 ORDER BY kept_until LIMIT $2",
    )
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .fetch_all(connection)
    .await?;
    ids(&rows)
}

/// Extends the leases of those `jobs` that a dispatcher holds. It may hold others that it does not know of, because it was never told that its claim was
/// written: their leases must end.
///
/// # Errors
/// When the database fails.
pub async fn lease_extend(
    connection: &mut AnyConnection,
    holder: &str,
    jobs: &[JobId],
    until: Timestamp,
) -> Result<(), StoreError> {
    for jobs in jobs.chunks(NAMED_MAX) {
        let names: Vec<String> = (3..).take(jobs.len()).map(|n| format!("${n}")).collect();
        let text = format!(
            "UPDATE jobs SET generation = generation + 1, lease_until = $2 WHERE holder = $1 AND state = 'running' AND id IN ({})",
            names.join(", ")
        );
        let mut query = sqlx::query(AssertSqlSafe(text))
            .bind(holder)
            .bind(stored(until.get()));
        for job in jobs {
            query = query.bind(job.to_string());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The jobs that a dispatcher runs, with the number of the attempt.
///
/// # Errors
/// When the database fails.
pub async fn held_jobs(
    connection: &mut AnyConnection,
    holder: &str,
) -> Result<Vec<(JobId, u32)>, StoreError> {
    let rows = sqlx::query("SELECT id, attempt FROM jobs WHERE holder = $1 AND state = 'running'")
        .bind(holder)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let attempt: i64 = row.try_get("attempt")?;
            let attempt = u32::try_from(attempt).map_err(|e| StoreError::corrupt("attempt", e))?;
            Ok((parsed(row, "id")?, attempt))
        })
        .collect()
}
