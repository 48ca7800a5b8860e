//! Changes of submitted jobs: cancel and redrive.

use std::time::Duration;

use fdn_core::job::{Event, JobRules, JobState, Redriven, Step};
use fdn_core::{AppName, JobId, TenantId, Timestamp};
use tracing::{debug, info};

use super::actor::Actor;
use super::job::{JobError, get, publish};
use crate::Error;
use crate::jobs::change::{EventDetails, step};
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::job::{JobRow, TransitionColumns, job_list, job_step};

/// The most dead letters that one request runs again.
const REDRIVE_MAX: u32 = 200;

/// Cancels a job that has not ended. A running attempt is aborted as soon as its dispatcher learns of it; its response is ignored.
///
/// # Errors
/// When the job has ended, there is no such job, or the store fails.
pub async fn cancel(
    state: &State,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
) -> Result<JobRow, Error> {
    let row = get(state, tenant, job).await?;
    let reason = format!("cancelled by {actor}");
    let details = EventDetails {
        reason: Some(reason),
        audit: Some(audit(actor, &row, "job.cancel")),
        ..EventDetails::default()
    };
    if step(state, job, Event::Cancelled, &details)
        .await?
        .is_none()
    {
        let row = get(state, tenant, job).await?;
        return Err(JobError::Ended(job, row.progress.state).into());
    }
    info!(%job, app = %row.app, %actor, "cancelled");
    get(state, tenant, job).await
}

/// Runs a job again that ended without success, without its deadline, which may have passed.
///
/// # Errors
/// When the job has not ended, succeeded or was cancelled, its retention has ended, or the store fails.
pub async fn redrive(
    state: &State,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
) -> Result<JobRow, Error> {
    let row = get(state, tenant, job).await?;
    let details = EventDetails {
        audit: Some(audit(actor, &row, "job.redrive")),
        ..EventDetails::default()
    };
    if step(state, job, redriven(state), &details).await?.is_none() {
        let row = get(state, tenant, job).await?;
        return Err(if row.is_over(fdn_service::now()) {
            Error::no_job(job)
        } else if row.progress.state.is_final() {
            JobError::Ended(job, row.progress.state).into()
        } else {
            JobError::NotEnded(job, row.progress.state).into()
        });
    }
    wake(state, job).await;
    get(state, tenant, job).await
}

fn redriven(state: &State) -> Event {
    let age = state.settings.jobs.max_age.as_millis();
    let expires_at = Timestamp(fdn_service::now().get().saturating_add(age));
    Event::Redriven { expires_at }
}

/// Runs dead letters of an app again, at most `REDRIVE_MAX` per call.
///
/// # Errors
/// When the store fails; then none is run again.
pub async fn redrive_all(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
) -> Result<Redriven, Error> {
    let (now, event) = (fdn_service::now(), redriven(state));
    let rules = JobRules {
        retry: state.settings.jobs.retry(),
        idempotent: false,
    };
    let sent: Vec<JobId> = in_transaction!(state.store, tx => {
        let dead = job_list(&mut tx, (tenant, app), Some(JobState::Dead), None, REDRIVE_MAX).await?;
        let mut sent = Vec::new();
        for row in dead.iter().filter(|row| !row.is_over(now)) {
            if let Step::To(progress) = row.progress.step(&rules, event, now, 0.0)
                && job_step(&mut tx, row, &progress, &TransitionColumns::default()).await?
            {
                sent.push(row.id);
            }
        }
        let entry = AuditEntry {
            after: Some(format!("{{\"state\":\"{}\",\"jobs\":{}}}", JobState::Queued, sent.len())),
            at: now,
            actor: actor.clone(),
            tenant: Some(tenant),
            action: "job.redrive",
            subject: format!("app/{app}"),
            before: Some(format!("{{\"state\":\"{}\",\"jobs\":{}}}", JobState::Dead, dead.len())),
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(sent)
    })?;
    for job in &sent {
        wake(state, *job).await;
    }
    let jobs = u32::try_from(sent.len()).unwrap_or(u32::MAX);
    Ok(Redriven {
        jobs,
        more: jobs == REDRIVE_MAX,
    })
}

/// Sends dispatchers the ticket of a redriven job. Without it they find the job later by themselves.
async fn wake(state: &State, job: JobId) {
    let patience = Duration::from_secs(1);
    let told = tokio::time::timeout(patience, publish(state, job)).await;
    if !matches!(told, Ok(Ok(()))) {
        debug!(%job, "no ticket for a job that was redriven; dispatchers look for it");
    }
}

fn audit(actor: &Actor, row: &JobRow, action: &'static str) -> AuditEntry {
    AuditEntry {
        at: fdn_service::now(),
        actor: actor.clone(),
        tenant: Some(row.tenant),
        action,
        subject: format!("job/{}", row.id),
        before: Some(format!("{{\"state\":\"{}\"}}", row.progress.state)),
        after: None,
    }
}
