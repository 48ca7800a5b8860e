//! Schedules: jobs that are submitted repeatedly, at the times of a cron expression.
//!
//! A schedule advances and its job is written in one transaction, so each time submits one job however many controllers look. Times that passed
//! while no controller ran are not made up for: together they submit one job, and the next one is in the future.

use bytes::Bytes;
use fdn_core::job::{Event, JobRules, JobState, Step};
use fdn_core::job::{JobProgress, PutSchedule, SCHEDULE_BODY_MAX, ScheduleInfo};
use fdn_core::{AppName, Coded, ErrorCode, ScheduleName, TenantId, Timestamp};
use tracing::{debug, info, warn};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::actor::Actor;
use super::job::{JobError, Submission, publish, validate};
use super::policy::existing;
use crate::Error;
use crate::error::chain;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::job::{JobRow, job_insert};
use crate::store::job_queries::lane_count;
use crate::store::job_schedule::{
    ScheduleFilter, ScheduleRow, schedule_advance, schedule_delete, schedule_due, schedule_list,
    schedule_page, schedule_put,
};
use crate::store::tenant::tenant_get;

/// The most schedules of one sweep.
const BATCH: u32 = 200;

/// The schedules of an app, by name.
///
/// # Errors
/// When the store fails.
pub async fn list(state: &State, app: &AppName) -> Result<Vec<ScheduleInfo>, Error> {
    let rows = schedule_list(&mut *state.store.read().await?, app).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// A page of the schedules of all apps that match the filter, by app and name, after `after`, written as `APP/NAME`.
///
/// # Errors
/// When the store fails.
pub async fn all(
    state: &State,
    filter: &ScheduleFilter,
    after: &str,
    rows: u32,
) -> Result<Vec<ScheduleInfo>, Error> {
    let (app, name) = after.split_once('/').unwrap_or((after, ""));
    let mut connection = state.store.read().await?;
    let rows = schedule_page(&mut connection, filter, (app, name), rows).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// The job that a schedule submits.
fn submission(schedule: &PutSchedule) -> Submission {
    Submission {
        priority: schedule.priority,
        max_age: schedule.max_age,
        deadline: None,
        webhook: None,
        target: schedule.target.clone(),
        content_type: schedule.content_type.clone(),
        input: Bytes::from(schedule.input.clone()),
    }
}

/// Creates or replaces a schedule.
///
/// # Errors
/// When it is not valid, there are too many, there is no such app, or the store fails.
pub async fn put(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    name: &ScheduleName,
    schedule: &PutSchedule,
) -> Result<ScheduleInfo, Error> {
    let now = fdn_service::now();
    if schedule.input.len() > SCHEDULE_BODY_MAX {
        let text = format!("input: at most {SCHEDULE_BODY_MAX} bytes");
        return Err(JobError::Schedule(text).into());
    }
    let kind = schedule.content_type.as_deref().unwrap_or_default();
    if kind.len() > 255 || !kind.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return Err(JobError::Schedule("content_type: a media type".to_owned()).into());
    }
    validate(
        state,
        (tenant, app),
        &actor.name,
        &submission(schedule),
        now,
    )
    .map_err(|e| JobError::Schedule(e.to_string()))?;
    let most = state.settings.jobs.schedules_per_app as usize;
    let info = ScheduleInfo {
        name: name.clone(),
        app: app.clone(),
        schedule: schedule.clone(),
        next_at: schedule.cron.next(now).filter(|_| !schedule.paused),
        last_at: None,
        last_job: None,
        updated_at: now,
        updated_by: actor.to_string(),
    };
    let row = ScheduleRow { tenant, info };
    let set: ScheduleInfo = in_transaction!(state.store, tx => {
        existing(&mut tx, tenant, app).await?;
        let there = schedule_list(&mut tx, app).await?;
        let before = there.iter().find(|row| row.info.name == *name);
        if before.is_none() && there.len() >= most {
            let text = format!("app {app} has {most} schedules, as many as it may");
            return Err(JobError::Schedule(text).into());
        }
        schedule_put(&mut tx, &row).await?;
        let json = |schedule: &PutSchedule| serde_json::to_string(schedule).ok();
        let entry = AuditEntry {
            before: before.and_then(|row| json(&row.info.schedule)),
            after: json(schedule),
            ..audit(actor, (tenant, app), name, "schedule.set", now)
        };
        audit_insert(&mut tx, &entry).await?;
        let there = schedule_list(&mut tx, app).await?;
        let set = there.into_iter().find(|row| row.info.name == *name);
        set.map(|row| row.info).ok_or_else(|| Error::Internal("a schedule vanished".to_owned()))
    })?;
    info!(%app, schedule = %name, %actor, "a schedule was set");
    Ok(set)
}

/// Removes a schedule. Jobs that it submitted are kept.
///
/// # Errors
/// When there is no such schedule, or the store fails.
pub async fn remove(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    name: &ScheduleName,
) -> Result<(), Error> {
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        let there = schedule_list(&mut tx, app).await?;
        let old = there.iter().find(|row| row.info.name == *name);
        if !schedule_delete(&mut tx, app, name).await? {
            return Err(Error::NotFound {
                what: format!("schedule {name} of app {app}"),
                hint: "`fdn schedule list APP` shows what exists",
            });
        }
        let entry = AuditEntry {
            before: old.and_then(|row| serde_json::to_string(&row.info.schedule).ok()),
            ..audit(actor, (tenant, app), name, "schedule.remove", now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok(())
    })
}

fn audit(
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    name: &ScheduleName,
    action: &'static str,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: Some(tenant),
        action,
        subject: format!("schedule/{app}/{name}"),
        before: None,
        after: None,
    }
}

/// Submits the jobs of schedules that are due. One that cannot be submitted stays due.
///
/// # Errors
/// When the database fails.
pub(crate) async fn submit_due(state: &State, now: Timestamp) -> Result<(), Error> {
    let due = schedule_due(&mut *state.store.read().await?, now, BATCH).await?;
    let mut broker_answers = true;
    for row in due {
        let submitted = match submit_one(state, &row, now).await {
            Err(error) if error.code() != ErrorCode::DatabaseFailed => {
                let info = &row.info;
                warn!(app = %info.app, schedule = %info.name, error = chain(&error), "a schedule cannot be submitted now; the others go on");
                continue;
            }
            submitted => submitted?,
        };
        if let Some(job) = submitted {
            state.metrics.jobs.scheduled.inc();
            debug!(job = %job.id, app = %job.app, schedule = %row.info.name, "submitted by a schedule");
            // A ticket only saves time. An unreachable broker is waited for once, not for every job.
            if broker_answers && let Err(error) = publish(state, job.id).await {
                broker_answers = false;
                debug!(job = %job.id, error = chain(&error), "no ticket for a scheduled job; dispatchers look for it");
            }
        }
    }
    Ok(())
}

async fn submit_one(
    state: &State,
    row: &ScheduleRow,
    now: Timestamp,
) -> Result<Option<JobRow>, Error> {
    let info = &row.info;
    let next = info.schedule.cron.next(now);
    let by = format!("schedule {}", info.name);
    let submission = submission(&info.schedule);
    let job = match validate(state, (row.tenant, &info.app), &by, &submission, now) {
        Ok(job) => Some(accept(state, job, now)),
        Err(refused) => {
            // A limit in the settings has become stricter since the schedule was set.
            warn!(app = %info.app, schedule = %info.name, error = chain(&refused), "a schedule submits nothing");
            None
        }
    };
    let most = state.settings.jobs.waiting_per_app;
    in_transaction!(state.store, tx => {
        let full = lane_count(&mut tx, &info.app, JobState::Queued, most).await? >= u64::from(most);
        let tenant = tenant_get(&mut tx, &fdn_core::account::TenantRef::Id(row.tenant)).await?;
        let served = tenant.is_some_and(|tenant| tenant.suspended_at.is_none());
        let job = job.as_ref().filter(|_| !full && served);
        if !schedule_advance(&mut tx, info, next, job.map(|job| job.id)).await? {
            return Ok(None);
        }
        if let Some(job) = job {
            let input = STANDARD.encode(&submission.input);
            job_insert(&mut tx, job, Some(&input), None).await?;
        }
        Ok::<_, Error>(job.cloned())
    })
}

/// Sets a scheduled job to `queued` at once: being in the store, it needs no confirmation by the broker.
fn accept(state: &State, job: JobRow, now: Timestamp) -> JobRow {
    let rules = JobRules {
        retry: state.settings.jobs.retry(),
        idempotent: false,
    };
    let progress: JobProgress = match job.progress.step(&rules, Event::Confirmed, now, 0.0) {
        Step::To(progress) => progress,
        Step::Stale => job.progress.clone(),
    };
    JobRow { progress, ..job }
}
