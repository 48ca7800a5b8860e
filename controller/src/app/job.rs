//! The jobs API: submit, list, show, and fetch the result. [`super::job_change`] cancels and redrives.
//!
//! A submission is, in this order: a row in the state `submitted`, a large input in the object store, a ticket that the broker confirms, and the
//! step to `queued`. A caller that gets a 202 has a job that reaches exactly one final state. If the broker does not confirm, the row is deleted
//! again, unless a dispatcher has received the ticket nevertheless and accepted the job. A controller that crashes in between leaves a row
//! without a ticket; the sweep deletes it after `jobs.accept_within`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fdn_core::job::{Event, JobPriority, JobProgress, JobReceipt, JobState, is_target};
use fdn_core::message::{Envelope, JobTicket, Message};
use fdn_core::{
    AppName, ByteSize, Coded, DurationMs, ErrorCode, JobId, MessageId, TenantId, Timestamp,
};
use tracing::{debug, warn};

use super::actor::Actor;
use super::idempotency::Refusal;
use crate::Error;
use crate::artifacts::JobObject;
use crate::error::chain;
use crate::jobs::change::{EventDetails, step};
use crate::jobs::webhooks;
use crate::state::State;
use crate::store::job::{
    JobFilter, JobRow, job_by_key, job_bytes, job_delete, job_get, job_give_up_submission,
    job_insert, job_list, job_page,
};
use crate::store::job_queries::lane_count;
use crate::store::{Constraint, StoreError, in_transaction};

/// Why a request about a job or schedule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The job has not ended.
    #[error("job {0} has not ended: it is {1}; ask again later")]
    NotEnded(JobId, JobState),
    /// The job has ended, in a state that this request cannot change.
    #[error("job {0} is {1}; this changes nothing")]
    Ended(JobId, JobState),
    /// There is no stored response of the app.
    #[error("job {job} is {state} and has no result{}", .reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default())]
    NoResult {
        /// The job.
        job: JobId,
        /// The job's state.
        state: JobState,
        /// The reason why it is in that state.
        reason: Option<String>,
    },
    /// Too many jobs of the app are waiting.
    #[error("{0} jobs of {1} wait, as many as may; send it again when some have ended")]
    Full(u32, AppName),
    /// The input is too large.
    #[error("the input is larger than {0}; send less, or a reference to it")]
    TooLarge(ByteSize),
    /// A parameter is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The broker did not confirm the ticket.
    #[error("the broker did not confirm the job, and nothing was stored; send it again later")]
    NotAccepted,
    /// A schedule is not valid.
    #[error("{0}")]
    Schedule(String),
    /// The webhook's address is not allowed.
    #[error("the webhook {0}")]
    Webhook(&'static str),
}

impl Coded for JobError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotEnded(..) => ErrorCode::JobNotFinal,
            Self::Ended(..) => ErrorCode::JobEnded,
            Self::NoResult { .. } => ErrorCode::JobNoResult,
            Self::Full(..) => ErrorCode::JobsFull,
            Self::TooLarge(_) => ErrorCode::JobTooLarge,
            Self::Invalid(_) => ErrorCode::JobInvalid,
            Self::NotAccepted => ErrorCode::JobNotAccepted,
            Self::Schedule(_) => ErrorCode::ScheduleInvalid,
            Self::Webhook(_) => ErrorCode::WebhookRefused,
        }
    }
}

/// A job to be submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// The priority.
    pub priority: JobPriority,
    /// The longest time it may wait before it is dropped.
    pub max_age: Option<DurationMs>,
    /// The deadline for its end, from now.
    pub deadline: Option<DurationMs>,
    /// The URL that is called when it has ended.
    pub webhook: Option<String>,
    /// The path and query that the request is sent to.
    pub target: Option<String>,
    /// The media type of the input.
    pub content_type: Option<String>,
    /// The input.
    pub input: Bytes,
}

/// Validates a submission and creates its row.
pub(crate) fn validate(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    by: &str,
    submission: &Submission,
    now: Timestamp,
) -> Result<JobRow, JobError> {
    let settings = &state.settings.jobs;
    if submission.input.len() as u64 > settings.input_limit.as_bytes() {
        return Err(JobError::TooLarge(settings.input_limit));
    }
    let target = submission.target.clone().unwrap_or_else(|| "/".to_owned());
    if !is_target(&target) {
        let text = "target: a path with or without a query, such as /resize?width=200";
        return Err(JobError::Invalid(text.to_owned()));
    }
    let max_age = submission.max_age.unwrap_or(settings.max_age);
    if max_age.as_millis() == 0 || max_age > settings.max_age_limit {
        return Err(JobError::Invalid(format!(
            "max_age: above 0 and at most {}",
            settings.max_age_limit
        )));
    }
    if submission
        .deadline
        .is_some_and(|deadline| deadline.as_millis() == 0)
    {
        return Err(JobError::Invalid("deadline: above 0".to_owned()));
    }
    if let Some(url) = &submission.webhook {
        webhooks::check(url, settings.webhooks.private).map_err(JobError::Webhook)?;
    }
    let later = |span: DurationMs| Timestamp(now.get().saturating_add(span.as_millis()));
    let deadline = submission.deadline.map(later);
    let expires_at = deadline.map_or(later(max_age), |end| end.min(later(max_age)));
    Ok(JobRow {
        id: JobId::from_uuid(uuid::Uuid::now_v7()),
        tenant,
        app: app.clone(),
        progress: JobProgress::submitted(now, expires_at),
        generation: 1,
        priority: submission.priority,
        deadline,
        submitted_at: now,
        submitted_by: by.to_owned(),
        started_at: None,
        ended_at: None,
        kept_until: None,
        cluster: None,
        reason: None,
        target,
        content_type: submission.content_type.clone(),
        input_size: submission.input.len() as u64,
        status: None,
        result_type: None,
        result_size: None,
        result_attempt: None,
        webhook: submission.webhook.clone(),
        request: None,
        history: Vec::new(),
    })
}

/// The hash of a submission with an idempotency key, to recognize the same one. Keyed, since inputs may be guessed.
fn request_hash(state: &State, app: &AppName, submission: &Submission) -> String {
    let input = fdn_core::Digest::of(&submission.input);
    let text = format!(
        "fdn-job\n{app}\n{:?}\n{input}",
        (
            submission.priority,
            submission.max_age,
            submission.deadline,
            &submission.webhook,
            &submission.target,
            &submission.content_type,
        )
    );
    state.token.derive(&text).expose().to_owned()
}

/// An accepted job, submitted by this request or by an earlier one with the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The response.
    pub receipt: JobReceipt,
    /// Whether an earlier request submitted it.
    pub replayed: bool,
}

/// Submits a job.
///
/// # Errors
/// When it is not valid, too many are waiting, the broker does not confirm it, or a store fails.
pub async fn submit(
    state: &State,
    actor: &Actor,
    (tenant, app): (TenantId, &AppName),
    key: Option<&str>,
    submission: Submission,
) -> Result<Accepted, Error> {
    let now = fdn_service::now();
    let mut row = validate(state, (tenant, app), &actor.name, &submission, now)?;
    row.request = key.map(|_| request_hash(state, app, &submission));
    if let Some(before) = find_earlier(
        state,
        (tenant, app),
        &actor.name,
        key,
        row.request.as_deref(),
    )
    .await?
    {
        return Ok(before);
    }
    let most = state.settings.jobs.waiting_per_app;
    let mut connection = state.store.read().await?;
    let waiting = lane_count(&mut connection, app, JobState::Queued, most).await?;
    drop(connection);
    if waiting >= u64::from(most) {
        return Err(JobError::Full(most, app.clone()).into());
    }
    let large = row.input_size > state.settings.jobs.inline_limit.as_bytes();
    let inline = (!large).then(|| STANDARD.encode(&submission.input));
    let inserted: Result<(), StoreError> = in_transaction!(state.store, tx => {
        job_insert(&mut tx, &row, inline.as_deref(), key).await
    });
    match inserted {
        Ok(()) => {}
        // Another request with the same key was faster.
        Err(StoreError::Refused {
            constraint: Constraint::Unique,
            ..
        }) if key.is_some() => {
            let found = find_earlier(
                state,
                (tenant, app),
                &actor.name,
                key,
                row.request.as_deref(),
            )
            .await?;
            return found.ok_or_else(|| Refusal::Running.into());
        }
        Err(error) => return Err(error.into()),
    }
    if large
        && let Err(error) = state
            .artifacts
            .object_put(row.id, JobObject::Input, submission.input)
            .await
    {
        state.metrics.artifacts.write_failures.inc();
        if let Err(error) = delete_submission(state, row.id).await {
            warn!(job = %row.id, error = chain(&error), "a job that was not accepted waits for the sweep");
        }
        return Err(error.into());
    }
    announce(state, &row).await?;
    state.metrics.jobs.submitted.inc();
    debug!(job = %row.id, %app, %actor, "accepted");
    Ok(Accepted {
        receipt: receipt(state, &row),
        replayed: false,
    })
}

/// Sends the ticket and sets the job to `queued`.
async fn announce(state: &State, row: &JobRow) -> Result<(), Error> {
    match publish(state, row.id).await {
        Ok(()) => {
            step(state, row.id, Event::Confirmed, &EventDetails::default()).await?;
        }
        Err(error) => {
            warn!(job = %row.id, error = chain(&error), "a job's ticket was not confirmed");
            // If the store fails too, the caller gets that error: it is unknown then whether anything is stored.
            if delete_submission(state, row.id).await? {
                return Err(JobError::NotAccepted.into());
            }
        }
    }
    // The job may have been dispatched, ended or cancelled by now: it was accepted in any case, by this step or by a dispatcher that has its ticket,
    // unless a sweep has given it up.
    let there = job_get(&mut *state.store.read().await?, row.id).await?;
    match there {
        Some(job) if job.progress.state != JobState::Submitted => Ok(()),
        _ => Err(JobError::NotAccepted.into()),
    }
}

/// Sends the ticket of a job to the dispatchers.
///
/// # Errors
/// When the broker does not confirm it in time; it may have received it nevertheless.
pub(crate) async fn publish(state: &State, job: JobId) -> Result<(), fdn_bus::BusError> {
    let id = MessageId::from_uuid(uuid::Uuid::now_v7());
    let message = Message::JobTicket(JobTicket { job });
    let envelope = Envelope::new(id, fdn_service::now(), message);
    let limit = state.settings.dispatch.confirm_timeout.as_duration();
    match tokio::time::timeout(limit, state.broker.publish(&envelope)).await {
        Ok(confirmed) => confirmed,
        Err(_) => Err(fdn_bus::BusError::NotConfirmed { id }),
    }
}

/// Deletes a submission that was not accepted. Returns whether it was still there: then nobody accepts it any more, and if its objects cannot be
/// deleted now, the sweep deletes it later.
///
/// # Errors
/// When the store fails.
pub(crate) async fn delete_submission(state: &State, job: JobId) -> Result<bool, Error> {
    let given_up: bool = in_transaction!(state.store, tx => {
        Ok::<_, Error>(job_give_up_submission(&mut tx, job).await?)
    })?;
    if given_up && let Err(error) = delete_given_up(state, job).await {
        warn!(%job, error = chain(&error), "a job that was not accepted waits for the sweep");
    }
    Ok(given_up)
}

/// Deletes a job that was given up: objects first, so that an interrupted deletion leaves a row that the next sweep finds.
///
/// # Errors
/// When a store fails.
pub(crate) async fn delete_given_up(state: &State, job: JobId) -> Result<(), Error> {
    state.artifacts.objects_delete(job).await?;
    in_transaction!(state.store, tx => Ok::<_, Error>(job_delete(&mut tx, job).await?))
}

/// The job that an earlier request with this key submitted.
async fn find_earlier(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    by: &str,
    key: Option<&str>,
    request: Option<&str>,
) -> Result<Option<Accepted>, Error> {
    let Some(key) = key else { return Ok(None) };
    let found = job_by_key(&mut *state.store.read().await?, (tenant, app), by, key).await?;
    let Some(row) = found else { return Ok(None) };
    if row.request.as_deref() != request {
        return Err(Refusal::Mismatch.into());
    }
    if row.progress.state == JobState::Submitted {
        return Err(Refusal::Running.into());
    }
    Ok(Some(Accepted {
        receipt: receipt(state, &row),
        replayed: true,
    }))
}

fn receipt(state: &State, row: &JobRow) -> JobReceipt {
    let secret = || webhooks::secret(state, row.tenant, &row.app);
    JobReceipt {
        id: row.id,
        app: row.app.clone(),
        state: match row.progress.state {
            JobState::Submitted => JobState::Queued,
            other => other,
        },
        webhook_secret: row.webhook.as_ref().map(|_| secret().expose().to_owned()),
    }
}

/// A job of a tenant. One that was not accepted yet counts as missing.
///
/// # Errors
/// When there is no such job, or the store fails.
pub async fn get(state: &State, tenant: TenantId, job: JobId) -> Result<JobRow, Error> {
    let found = job_get(&mut *state.store.read().await?, job).await?;
    found
        .filter(|row| row.tenant == tenant && row.progress.state != JobState::Submitted)
        .ok_or_else(|| Error::no_job(job))
}

/// A page of an app's jobs, newest first.
///
/// # Errors
/// When the store fails.
pub async fn list(
    state: &State,
    app: (TenantId, &AppName),
    of: Option<JobState>,
    before: Option<JobId>,
    rows: u32,
) -> Result<Vec<JobRow>, Error> {
    Ok(job_list(&mut *state.store.read().await?, app, of, before, rows).await?)
}

/// A page of the jobs of all apps that match the filter, newest first.
///
/// # Errors
/// When the store fails.
pub async fn all(
    state: &State,
    filter: &JobFilter,
    before: Option<JobId>,
    rows: u32,
) -> Result<Vec<JobRow>, Error> {
    Ok(job_page(&mut *state.store.read().await?, filter, before, rows).await?)
}

/// The response of the app: media type and body.
///
/// # Errors
/// When there is no such job, it has not ended or has no response, or a store fails.
pub async fn result(
    state: &State,
    tenant: TenantId,
    job: JobId,
) -> Result<(Option<String>, Bytes), Error> {
    let row = get(state, tenant, job).await?;
    if !row.progress.state.is_final() {
        return Err(JobError::NotEnded(job, row.progress.state).into());
    }
    let missing = || JobError::NoResult {
        job,
        state: row.progress.state,
        reason: row.reason.clone(),
    };
    row.result_size.ok_or_else(missing)?;
    let bytes = match row.result_attempt {
        Some(attempt) => {
            let object = JobObject::Result(attempt);
            state.artifacts.object_get(job, object).await?
        }
        None => {
            let (_, text) = job_bytes(&mut *state.store.read().await?, job).await?;
            decoded(text.ok_or_else(missing)?, "jobs.result")?
        }
    };
    Ok((row.result_type.clone(), bytes))
}

/// Decodes the base64 text of a column of bytes.
pub(crate) fn decoded(text: String, column: &str) -> Result<Bytes, StoreError> {
    let bytes = STANDARD.decode(text);
    bytes
        .map(Bytes::from)
        .map_err(|e| StoreError::corrupt(column, e))
}
