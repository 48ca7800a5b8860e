//! The only way in which a job changes: read it, compute the step with [`fdn_core::job::JobProgress`], and write it on condition that the job is
//! unchanged.

use fdn_core::job::attempt::{AttemptContext, record_step};
use fdn_core::job::{Event, JobProgress, JobRules, JobState, Step};
use fdn_core::{AppName, ClusterId, JobId, MessageId, TenantId, Timestamp};
use sqlx::AnyConnection;

use super::bounds::Bounds;
use crate::Error;
use crate::settings::JobSettings;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::job::{AnswerRow, JobRow, TransitionColumns, job_get, job_step};
use crate::store::version::version_get;
use crate::store::webhook::{Origin, WebhookRow, webhook_insert};
use crate::store::{StoreError, in_transaction};

/// How often a step is computed again when the job has changed meanwhile.
const TRIES: u32 = 8;

/// The details that come with an event.
#[derive(Clone, Debug, Default)]
pub struct EventDetails {
    /// The reason, in words for people.
    pub reason: Option<String>,
    /// The app's response; stored if the job ends with it.
    pub answer: Option<AnswerRow>,
    /// Whether the attempt may be repeated even if the function is not idempotent, since it certainly did nothing.
    pub repeatable: bool,
    /// The audit log entry, for changes that people make.
    pub audit: Option<AuditEntry>,
}

/// The claimant of a job.
#[derive(Clone, Debug)]
pub struct Claimant<'a> {
    /// The id of the dispatcher.
    pub holder: &'a str,
    /// The cluster that the attempt is sent to.
    pub cluster: &'a ClusterId,
    /// When the attempt counts as lost.
    pub lease_until: Timestamp,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claimant has the attempt.
    Granted(Box<JobRow>),
    /// The limit of running attempts of the app, or of a function that it calls, is reached; the number is the most attempts of the app that can
    /// run at once.
    Busy(u32),
    /// The job cannot be claimed: it has ended, is not due, or another dispatcher has it.
    Gone,
}

/// Whether all functions of an app are idempotent.
async fn idempotent(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<bool, StoreError> {
    let Some(row) = app_get(connection, app).await? else {
        return Ok(false);
    };
    for stage in row.workflow.stages() {
        let version = version_get(connection, tenant, &stage.function, stage.version).await?;
        if !version.is_some_and(|version| version.manifest.idempotent) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The reason for a job's new state, with a default where the event has none.
fn reason(row: &JobRow, event: Event, to: &JobProgress, details: &EventDetails) -> Option<String> {
    let said = details.reason.clone();
    match to.state {
        JobState::Submitted | JobState::Running | JobState::Succeeded => None,
        JobState::Dropped => Some(match said.or_else(|| row.reason.clone()) {
            Some(last) => format!("no attempt could begin before it was too old: {last}"),
            None => "it waited until it was too old, or its deadline had come, and never ran".to_owned(),
        }),
        JobState::Failed if matches!(event, Event::LeaseLost { .. }) => Some(
            "its dispatcher was lost while it ran; it may have run, and its function does not say that it is idempotent"
                .to_owned(),
        ),
        JobState::Dead if matches!(event, Event::LeaseLost { .. }) => {
            Some("its dispatcher was lost while it ran, and no attempt is left".to_owned())
        }
        JobState::Queued | JobState::Cancelled | JobState::Failed | JobState::Dead => said,
    }
}

/// The columns that are written together with the step to `to`.
fn columns(
    settings: &JobSettings,
    (row, to, event): (&JobRow, &JobProgress, Event),
    details: &EventDetails,
    now: Timestamp,
) -> TransitionColumns {
    let keep = match to.state {
        JobState::Dead => settings.dead_keep,
        JobState::Submitted
        | JobState::Queued
        | JobState::Running
        | JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Dropped => settings.keep,
    };
    let ended = to.state.is_final();
    let reason = reason(row, event, to, details);
    let about = AttemptContext {
        cluster: None,
        status: details.answer.as_ref().map(|answer| answer.status),
        reason: reason.clone(),
    };
    TransitionColumns {
        history: record_step(&row.history, (&row.progress, to), event, &about, now),
        reason,
        ended_at: ended.then_some(now),
        kept_until: ended.then(|| Timestamp(now.get().saturating_add(keep.as_millis()))),
        answer: details.answer.clone().filter(|_| ended),
        started_at: row.started_at,
        ..TransitionColumns::default()
    }
}

/// Applies an event to a job. Returns the new state of the job; `None` if the event is stale.
///
/// # Errors
/// When the store fails, or the job keeps changing.
pub async fn step(
    state: &State,
    job: JobId,
    event: Event,
    details: &EventDetails,
) -> Result<Option<JobRow>, Error> {
    for _ in 0..TRIES {
        let now = fdn_service::now();
        let jitter = rand::random_range(0.0..1.0);
        let result: StepResult = in_transaction!(state.store, tx => {
            try_step(&mut tx, &state.settings.jobs, (job, event), details, (now, jitter)).await
        })?;
        match result {
            StepResult::Done(row) => {
                count_end(state, &row);
                return Ok(Some(*row));
            }
            StepResult::Stale => return Ok(None),
            StepResult::Changed => {}
        }
    }
    Err(Error::Internal(format!(
        "job {job} changed {TRIES} times while it was to be changed"
    )))
}

/// The result of one try.
enum StepResult {
    Done(Box<JobRow>),
    Stale,
    Changed,
}

async fn try_step(
    tx: &mut AnyConnection,
    settings: &JobSettings,
    (job, event): (JobId, Event),
    details: &EventDetails,
    (now, jitter): (Timestamp, f64),
) -> Result<StepResult, Error> {
    let Some(row) = job_get(tx, job).await? else {
        return Ok(StepResult::Stale);
    };
    // It is being deleted: its input may be gone already.
    if row.is_over(now) {
        return Ok(StepResult::Stale);
    }
    let asks = matches!(event, Event::Ended { .. } | Event::LeaseLost { .. });
    let rules = JobRules {
        retry: settings.retry(),
        idempotent: asks && (details.repeatable || idempotent(tx, row.tenant, &row.app).await?),
    };
    let Step::To(to) = row.progress.step(&rules, event, now, jitter) else {
        return Ok(StepResult::Stale);
    };
    let columns = columns(settings, (&row, &to, event), details, now);
    if !job_step(tx, &row, &to, &columns).await? {
        return Ok(StepResult::Changed);
    }
    if let Some(entry) = &details.audit {
        let after = Some(format!("{{\"state\":\"{}\"}}", to.state));
        let entry = AuditEntry {
            after,
            ..entry.clone()
        };
        audit_insert(tx, &entry).await?;
    }
    let row = JobRow {
        generation: row.generation + 1,
        deadline: row.next_deadline(),
        reason: columns.reason,
        ended_at: columns.ended_at,
        kept_until: columns.kept_until,
        status: columns.answer.as_ref().map(|answer| answer.status),
        result_size: columns.answer.as_ref().map(|answer| answer.size),
        progress: to,
        history: columns.history.unwrap_or(row.history),
        ..row
    };
    enqueue_webhook(tx, &row, now).await?;
    Ok(StepResult::Done(Box::new(row)))
}

/// Enqueues the webhook of a job that has ended, in the same transaction.
async fn enqueue_webhook(
    tx: &mut AnyConnection,
    row: &JobRow,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(url) = row
        .webhook
        .as_ref()
        .filter(|_| row.progress.state.is_final())
    else {
        return Ok(());
    };
    let id = MessageId::from_uuid(uuid::Uuid::now_v7());
    let body = serde_json::json!({ "id": id, "event": "job.ended", "job": row.info() });
    let webhook = WebhookRow {
        id,
        origin: Origin::Job {
            job: row.id,
            app: row.app.clone(),
        },
        tenant: row.tenant,
        url: url.clone(),
        body: body.to_string(),
        due_at: now,
        failures: 0,
    };
    Ok(webhook_insert(tx, &webhook).await?)
}

/// Counts the end of a job, and wakes the sender of webhooks.
fn count_end(state: &State, row: &JobRow) {
    if row.progress.state.is_final() {
        let name = row.progress.state.as_str();
        state.metrics.jobs.ended.with_label_values(&[name]).inc();
        if row.webhook.is_some() {
            state.webhook_wake.notify_one();
        }
    }
}

/// Claims a job for an attempt, within the limits of the app and of the functions that it calls, counted over all dispatchers.
///
/// # Errors
/// When the store fails.
pub async fn claim(
    state: &State,
    (job, app): (JobId, &AppName),
    claimant: &Claimant<'_>,
) -> Result<Claim, Error> {
    let settings = &state.settings.jobs;
    let now = fdn_service::now();
    let rules = JobRules {
        retry: settings.retry(),
        idempotent: false,
    };
    let event = Event::Claimed {
        lease_until: claimant.lease_until,
    };
    let (claim, dropped): (Claim, Option<JobRow>) = in_transaction!(state.store, tx => {
        let bounds = Bounds::of(&mut tx, app, settings.running_per_app).await?;
        bounds.lock(&mut tx, now).await?;
        if bounds.reached(&mut tx).await? {
            return Ok((Claim::Busy(bounds.max()), None));
        }
        let Some(row) = job_get(&mut tx, job).await? else {
            return Ok((Claim::Gone, None));
        };
        let Step::To(to) = row.progress.step(&rules, event, now, 0.0) else {
            return Ok((Claim::Gone, None));
        };
        let mut columns = columns(settings, (&row, &to, event), &EventDetails::default(), now);
        if to.state == JobState::Running {
            columns.holder = Some(claimant.holder.to_owned());
            columns.cluster = Some(claimant.cluster.clone());
            columns.started_at = Some(now);
            columns.functions = Some(bounds.functions());
            let about = AttemptContext {
                cluster: Some(claimant.cluster.clone()),
                ..AttemptContext::default()
            };
            columns.history = record_step(&row.history, (&row.progress, &to), event, &about, now);
        }
        if !job_step(&mut tx, &row, &to, &columns).await? {
            return Ok((Claim::Gone, None));
        }
        let row = JobRow {
            generation: row.generation + 1,
            started_at: columns.started_at,
            ended_at: columns.ended_at,
            kept_until: columns.kept_until,
            reason: columns.reason,
            history: columns.history.unwrap_or(row.history),
            progress: to,
            ..row
        };
        if row.progress.state == JobState::Running {
            return Ok((Claim::Granted(Box::new(row)), None));
        }
        enqueue_webhook(&mut tx, &row, now).await?;
        Ok::<_, Error>((Claim::Gone, Some(row)))
    })?;
    if let Some(row) = dropped {
        count_end(state, &row);
    }
    Ok(claim)
}
