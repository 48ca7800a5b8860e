//! Schedules of recurring jobs.

use fdn_core::job::{PutSchedule, ScheduleInfo};
use fdn_core::{AppName, JobId, ScheduleName, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use tracing::warn;

use super::StoreError;
use super::row::{json, number, parsed, parsed_or_none, stored, time_or_none, to_json};
use crate::error::chain;

/// One schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The schedule as the API shows it.
    pub info: ScheduleInfo,
}

/// A query for all columns of a schedule, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, name, tenant, schedule, next_at, last_at, last_job, updated_at, updated_by FROM job_schedules ",
            $rest
        )
    };
}

fn schedule_row(row: &AnyRow) -> Result<ScheduleRow, StoreError> {
    Ok(ScheduleRow {
        tenant: parsed(row, "tenant")?,
        info: ScheduleInfo {
            name: parsed(row, "name")?,
            app: parsed(row, "app")?,
            schedule: json::<PutSchedule>(row, "schedule")?,
            next_at: time_or_none(row, "next_at")?,
            last_at: time_or_none(row, "last_at")?,
            last_job: parsed_or_none(row, "last_job")?,
            updated_at: Timestamp(number(row, "updated_at")?),
            updated_by: row.try_get("updated_by")?,
        },
    })
}

/// The schedules of an app, by name.
///
/// # Errors
/// When the database fails.
pub async fn schedule_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<ScheduleRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE app = $1 ORDER BY name"))
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(schedule_row).collect()
}

/// Which schedules to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Schedules of this tenant; of all tenants if `None`.
    pub tenant: Option<TenantId>,
    /// Schedules of the tenants that this user is a member of; of all tenants if `None`.
    pub member: Option<String>,
}

/// A page of the schedules of all apps, by app and name: those after the schedule `name` of `app`.
///
/// # Errors
/// When the database fails.
pub async fn schedule_page(
    connection: &mut AnyConnection,
    filter: &ScheduleFilter,
    (app, name): (&str, &str),
    rows: u32,
) -> Result<Vec<ScheduleRow>, StoreError> {
    let tenant = filter.tenant.map(|tenant| tenant.to_string());
    let rows = sqlx::query(
        select!("WHERE (app > $1 OR (app = $1 AND name > $2)) AND ($3 = '' OR tenant = $3) \
         AND ($4 = '' OR tenant IN (SELECT m.tenant FROM members m WHERE m.user_name = $4)) ORDER BY app, name LIMIT $5"),
    )
    .bind(app)
    .bind(name)
    .bind(tenant.unwrap_or_default())
    .bind(filter.member.clone().unwrap_or_default())
    .bind(i64::from(rows))
    .fetch_all(connection)
    .await?;
    rows.iter().map(schedule_row).collect()
}

/// Inserts or updates a schedule; its last job stays recorded.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn schedule_put(
    connection: &mut AnyConnection,
    row: &ScheduleRow,
) -> Result<(), StoreError> {
    let info = &row.info;
    sqlx::query(
        "INSERT INTO job_schedules (app, name, tenant, schedule, next_at, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (app, name) DO UPDATE SET schedule = excluded.schedule, next_at = excluded.next_at, updated_at = excluded.updated_at, \
         updated_by = excluded.updated_by",
    )
    .bind(info.app.as_str())
    .bind(info.name.as_str())
    .bind(row.tenant.to_string())
    .bind(to_json(&info.schedule, "job_schedules.schedule")?)
    .bind(info.next_at.map(|at| stored(at.get())))
    .bind(stored(info.updated_at.get()))
    .bind(&info.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a schedule; returns whether there was one.
///
/// # Errors
/// When the database fails.
pub async fn schedule_delete(
    connection: &mut AnyConnection,
    app: &AppName,
    name: &ScheduleName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM job_schedules WHERE app = $1 AND name = $2")
        .bind(app.as_str())
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Schedules whose next time has come. One that cannot be read is left out and logged, so that it does not hold up the others.
///
/// # Errors
/// When the database fails.
pub async fn schedule_due(
    connection: &mut AnyConnection,
    now: Timestamp,
    most: u32,
) -> Result<Vec<ScheduleRow>, StoreError> {
    let rows = sqlx::query(select!(
        "WHERE next_at <= $1 ORDER BY next_at, app, name LIMIT $2"
    ))
    .bind(stored(now.get()))
    .bind(i64::from(most))
    .fetch_all(connection)
    .await?;
    let mut due = Vec::with_capacity(rows.len());
    for row in &rows {
        match schedule_row(row) {
            Ok(found) => due.push(found),
            Err(error) => {
                let text = |column: &str| row.try_get::<String, _>(column).unwrap_or_default();
                warn!(
                    app = text("app"),
                    schedule = text("name"),
                    error = chain(&error),
                    "a schedule cannot be read; the others go on"
                );
            }
        }
    }
    Ok(due)
}

/// Advances a schedule from the time in `from`; `false` if another controller did so, or the schedule was changed.
///
/// # Errors
/// When the database fails.
pub async fn schedule_advance(
    connection: &mut AnyConnection,
    from: &ScheduleInfo,
    next_at: Option<Timestamp>,
    job: Option<JobId>,
) -> Result<bool, StoreError> {
    let Some(at) = from.next_at else {
        return Ok(false);
    };
    let done = sqlx::query(
        "UPDATE job_schedules SET next_at = $4, last_at = COALESCE($5, last_at), last_job = COALESCE($6, last_job) \
         WHERE app = $1 AND name = $2 AND next_at = $3 AND updated_at = $7",
    )
    .bind(from.app.as_str())
    .bind(from.name.as_str())
    .bind(stored(at.get()))
    .bind(next_at.map(|at| stored(at.get())))
    .bind(job.map(|_| stored(at.get())))
    .bind(job.map(|job| job.to_string()))
    .bind(stored(from.updated_at.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}
