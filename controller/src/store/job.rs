//! Jobs: their records, and the transitions between states.

use fdn_core::job::{JobAttempt, JobInfo, JobPriority, JobProgress, JobState};
use fdn_core::{AppName, ByteSize, ClusterId, JobId, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json_or_none, number, parsed, parsed_or_none, stored, time_or_none, to_json};

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job's id.
    pub id: JobId,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The app.
    pub app: AppName,
    /// Its state, with attempts and times.
    pub progress: JobProgress,
    /// Counts the changes of the row.
    pub generation: u64,
    /// Its priority.
    pub priority: JobPriority,
    /// The deadline by which it must have ended.
    pub deadline: Option<Timestamp>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// The account that submitted it.
    pub submitted_by: String,
    /// When the last attempt began.
    pub started_at: Option<Timestamp>,
    /// When the job ended.
    pub ended_at: Option<Timestamp>,
    /// Until when it is kept after its end.
    pub kept_until: Option<Timestamp>,
    /// The cluster of the last attempt.
    pub cluster: Option<ClusterId>,
    /// Why it is in its state.
    pub reason: Option<String>,
    /// The path and query that it is sent to.
    pub target: String,
    /// The media type of the input.
    pub content_type: Option<String>,
    /// The size of the input in bytes.
    pub input_size: u64,
    /// The HTTP status of the app's last answer.
    pub status: Option<u16>,
    /// The media type of the result.
    pub result_type: Option<String>,
    /// The size of the result in bytes.
    pub result_size: Option<u64>,
    /// The attempt whose result is in the object store, if it is there.
    pub result_attempt: Option<u32>,
    /// The URL that is notified of the end.
    pub webhook: Option<String>,
    /// The hash of the request, if it had an idempotency key.
    pub request: Option<String>,
    /// The last attempts.
    pub history: Vec<JobAttempt>,
}

/// Columns that are written together with a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransitionColumns {
    /// Why the job is in its new state.
    pub reason: Option<String>,
    /// The dispatcher that runs it.
    pub holder: Option<String>,
    /// The cluster where it runs; unchanged if `None`.
    pub cluster: Option<ClusterId>,
    /// When the attempt began; unchanged if `None`.
    pub started_at: Option<Timestamp>,
    /// When the job ended.
    pub ended_at: Option<Timestamp>,
    /// Until when it is kept after its end.
    pub kept_until: Option<Timestamp>,
    /// The app's answer.
    pub answer: Option<AnswerRow>,
    /// While it runs: the functions that it calls, in the form that `function_count` searches.
    pub functions: Option<String>,
    /// The last attempts; unchanged if `None`.
    pub history: Option<Vec<JobAttempt>>,
}

/// The app's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerRow {
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: Option<String>,
    /// The size in bytes.
    pub size: u64,
    /// The base64 of a small answer.
    pub inline: Option<String>,
    /// The attempt under which a large answer is in the object store.
    pub attempt: Option<u32>,
}

/// All columns except those with the bytes of input and result.
const COLUMNS: &str = "id, tenant, app, state, generation, attempt, failures, misses, priority, due_at, expires_at, deadline, submitted_at, \
    submitted_by, started_at, ended_at, kept_until, lease_until, cluster, reason, target, content_type, input_size, status, result_type, \
    result_size, result_attempt, webhook, request, history";

fn small(row: &AnyRow, column: &str) -> Result<u32, StoreError> {
    u32::try_from(number(row, column)?).map_err(|e| StoreError::corrupt(column, e))
}

fn number_or_none(row: &AnyRow, column: &str) -> Result<Option<u64>, StoreError> {
    let value: Option<i64> = row.try_get(column)?;
    value
        .map(|value| u64::try_from(value).map_err(|e| StoreError::corrupt(column, e)))
        .transpose()
}

fn job_row(row: &AnyRow) -> Result<JobRow, StoreError> {
    let priority = u8::try_from(number(row, "priority")?)
        .map_err(|e| StoreError::corrupt("priority", e))
        .and_then(|p| JobPriority::try_from(p).map_err(|e| StoreError::corrupt("priority", e)))?;
    let cut = |column: &str| -> Result<Option<u32>, StoreError> {
        let value = number_or_none(row, column)?;
        value
            .map(|value| u32::try_from(value).map_err(|e| StoreError::corrupt(column, e)))
            .transpose()
    };
    let status = cut("status")?.map(u16::try_from).transpose();
    Ok(JobRow {
        id: parsed(row, "id")?,
        tenant: parsed(row, "tenant")?,
        app: parsed(row, "app")?,
        progress: JobProgress {
            state: parsed(row, "state")?,
            attempt: small(row, "attempt")?,
            failures: small(row, "failures")?,
            misses: small(row, "misses")?,
            due_at: Timestamp(number(row, "due_at")?),
            expires_at: Timestamp(number(row, "expires_at")?),
            lease_until: time_or_none(row, "lease_until")?,
        },
        generation: number(row, "generation")?,
        priority,
        deadline: time_or_none(row, "deadline")?,
        submitted_at: Timestamp(number(row, "submitted_at")?),
        submitted_by: row.try_get("submitted_by")?,
        started_at: time_or_none(row, "started_at")?,
        ended_at: time_or_none(row, "ended_at")?,
        kept_until: time_or_none(row, "kept_until")?,
        cluster: parsed_or_none(row, "cluster")?,
        reason: row.try_get("reason")?,
        target: row.try_get("target")?,
        content_type: row.try_get("content_type")?,
        input_size: number(row, "input_size")?,
        status: status.map_err(|e| StoreError::corrupt("status", e))?,
        result_type: row.try_get("result_type")?,
        result_size: number_or_none(row, "result_size")?,
        result_attempt: cut("result_attempt")?,
        webhook: row.try_get("webhook")?,
        request: row.try_get("request")?,
        history: json_or_none(row, "history")?.unwrap_or_default(),
    })
}

impl JobRow {
    /// The deadline once a step has been written: a redrive, the only step of a job that has ended, takes it off.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadline.filter(|_| !self.progress.state.is_final())
    }

    /// Whether its retention has ended: it is as good as deleted.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.kept_until.is_some_and(|until| until <= now)
    }

    /// The job as the API shows it by itself: with its attempts.
    #[must_use]
    pub fn detail(&self) -> JobInfo {
        JobInfo {
            history: self.history.clone(),
            ..self.info()
        }
    }

    /// The job as the API shows it in lists: without its attempts.
    #[must_use]
    pub fn info(&self) -> JobInfo {
        JobInfo {
            id: self.id,
            app: self.app.clone(),
            state: self.progress.state,
            reason: self.reason.clone(),
            priority: self.priority,
            attempts: self.progress.attempt,
            failures: self.progress.failures,
            cluster: self.cluster.clone(),
            target: self.target.clone(),
            submitted_at: self.submitted_at,
            submitted_by: self.submitted_by.clone(),
            due_at: self.progress.due_at,
            expires_at: self.progress.expires_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            input_size: ByteSize::from_bytes(self.input_size),
            status: self.status,
            result_size: self.result_size.map(ByteSize::from_bytes),
            kept_until: self.kept_until,
            history: Vec::new(),
        }
    }
}

/// Inserts a job; `input` is base64, `None` if it is in the object store; `key` is the idempotency key of the submission.
///
/// # Errors
/// When the database fails, or a job was submitted with this key before.
pub async fn job_insert(
    connection: &mut AnyConnection,
    job: &JobRow,
    input: Option<&str>,
    key: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO jobs (id, tenant, app, state, generation, attempt, failures, misses, priority, due_at, expires_at, deadline, \
         submitted_at, submitted_by, target, content_type, input_size, input, webhook, idempotency, request) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)",
    )
    .bind(job.id.to_string())
    .bind(job.tenant.to_string())
    .bind(job.app.as_str())
    .bind(job.progress.state.as_str())
    .bind(stored(job.generation))
    .bind(i64::from(job.progress.attempt))
    .bind(i64::from(job.progress.failures))
    .bind(i64::from(job.progress.misses))
    .bind(i64::from(job.priority.get()))
    .bind(stored(job.progress.due_at.get()))
    .bind(stored(job.progress.expires_at.get()))
    .bind(job.deadline.map(|at| stored(at.get())))
    .bind(stored(job.submitted_at.get()))
    .bind(&job.submitted_by)
    .bind(&job.target)
    .bind(job.content_type.clone())
    .bind(stored(job.input_size))
    .bind(input.map(str::to_owned))
    .bind(job.webhook.clone())
    .bind(key.map(str::to_owned))
    .bind(job.request.clone())
    .execute(connection)
    .await?;
    Ok(())
}

/// The job with this id.
///
/// # Errors
/// When the database fails.
pub async fn job_get(
    connection: &mut AnyConnection,
    job: JobId,
) -> Result<Option<JobRow>, StoreError> {
    let text = format!("SELECT {COLUMNS} FROM jobs WHERE id = $1");
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(job.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(job_row).transpose()
}

/// The job that an account submitted to an app with an idempotency key.
///
/// # Errors
/// When the database fails.
pub async fn job_by_key(
    connection: &mut AnyConnection,
    (tenant, app): (TenantId, &AppName),
    by: &str,
    key: &str,
) -> Result<Option<JobRow>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS} FROM jobs WHERE app = $1 AND submitted_by = $2 AND idempotency = $3 AND tenant = $4"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(app.as_str())
        .bind(by)
        .bind(key)
        .bind(tenant.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(job_row).transpose()
}

/// The base64 of a small input and of a small result: the columns `input` and `result`.
///
/// # Errors
/// When the database fails.
pub async fn job_bytes(
    connection: &mut AnyConnection,
    job: JobId,
) -> Result<(Option<String>, Option<String>), StoreError> {
    let row = sqlx::query("SELECT input, result FROM jobs WHERE id = $1")
        .bind(job.to_string())
        .fetch_optional(connection)
        .await?;
    row.map_or(Ok((None, None)), |row| {
        Ok((row.try_get("input")?, row.try_get("result")?))
    })
}

/// A page of an app's jobs, newest first: those before the job `before`, in one state or all. Jobs of another tenant that had an app of this
/// name earlier are left out.
///
/// # Errors
/// When the database fails.
pub async fn job_list(
    connection: &mut AnyConnection,
    (tenant, app): (TenantId, &AppName),
    state: Option<JobState>,
    before: Option<JobId>,
    rows: u32,
) -> Result<Vec<JobRow>, StoreError> {
    // Ids have the same length and are lower case, so every database orders them alike; `~` comes after all of them.
    let before = before.map_or_else(|| "~".to_owned(), |job| job.to_string());
    let text = match state {
        Some(_) => format!(
            "SELECT {COLUMNS} FROM jobs WHERE app = $1 AND id < $2 AND tenant = $4 AND state = $5 ORDER BY id DESC LIMIT $3"
        ),
        None => format!(
            "SELECT {COLUMNS} FROM jobs WHERE app = $1 AND id < $2 AND tenant = $4 ORDER BY id DESC LIMIT $3"
        ),
    };
    let query = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(app.as_str())
        .bind(before)
        .bind(i64::from(rows))
        .bind(tenant.to_string());
    let query = match state {
        Some(state) => query.bind(state.as_str()),
        None => query,
    };
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(job_row).collect()
}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Jobs of this tenant; of all tenants if `None`.
    pub tenant: Option<TenantId>,
    /// Jobs of the tenants that this user is a member of; of all tenants if `None`.
    pub member: Option<String>,
    /// Jobs in this state; in all states if `None`.
    pub state: Option<JobState>,
}

/// A page of the jobs of all apps, newest first: those before the job `before`.
///
/// # Errors
/// When the database fails.
pub async fn job_page(
    connection: &mut AnyConnection,
    filter: &JobFilter,
    before: Option<JobId>,
    rows: u32,
) -> Result<Vec<JobRow>, StoreError> {
    let before = before.map_or_else(|| "~".to_owned(), |job| job.to_string());
    // Only the conditions that are set, so that the database can use their indices.
    let tenant = filter.tenant.map(|tenant| tenant.to_string());
    let wanted = [
        tenant.map(|tenant| ("tenant =", tenant, "")),
        filter.member.clone().map(|member| {
            let of = "tenant IN (SELECT m.tenant FROM members m WHERE m.user_name =";
            (of, member, ")")
        }),
        filter
            .state
            .map(|state| ("state =", state.as_str().to_owned(), "")),
    ];
    let wanted: Vec<_> = wanted.into_iter().flatten().collect();
    let conditions: String = wanted
        .iter()
        .zip(3..)
        .map(|((left, _, right), n)| format!(" AND {left} ${n}{right}"))
        .collect();
    let text =
        format!("SELECT {COLUMNS} FROM jobs WHERE id < $1{conditions} ORDER BY id DESC LIMIT $2");
    let mut query = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(before)
        .bind(i64::from(rows));
    for (_, value, _) in wanted {
        query = query.bind(value);
    }
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(job_row).collect()
}

/// Writes a transition, if the job is unchanged since `from` was read; otherwise writes nothing and returns `false`.
///
/// # Errors
/// When the database fails.
pub async fn job_step(
    connection: &mut AnyConnection,
    from: &JobRow,
    to: &JobProgress,
    beside: &TransitionColumns,
) -> Result<bool, StoreError> {
    let answer = beside.answer.as_ref();
    let history = beside.history.as_ref();
    let history = history.map(|attempts| to_json(attempts, "jobs.history"));
    let done = sqlx::query(
        "UPDATE jobs SET generation = generation + 1, state = $3, attempt = $4, failures = $5, misses = $6, due_at = $7, expires_at = $8, \
         lease_until = $9, reason = $10, holder = $11, cluster = COALESCE($12, cluster), started_at = COALESCE($13, started_at), \
         ended_at = $14, kept_until = $15, status = $16, result_type = $17, result_size = $18, result = $19, result_attempt = $20, functions = $21, \
         history = COALESCE($22, history), deadline = $23 \
         WHERE id = $1 AND generation = $2",
    )
    .bind(from.id.to_string())
    .bind(stored(from.generation))
    .bind(to.state.as_str())
    .bind(i64::from(to.attempt))
    .bind(i64::from(to.failures))
    .bind(i64::from(to.misses))
    .bind(stored(to.due_at.get()))
    .bind(stored(to.expires_at.get()))
    .bind(to.lease_until.map(|at| stored(at.get())))
    .bind(beside.reason.clone())
    .bind(beside.holder.clone())
    .bind(beside.cluster.as_ref().map(ToString::to_string))
    .bind(beside.started_at.map(|at| stored(at.get())))
    .bind(beside.ended_at.map(|at| stored(at.get())))
    .bind(beside.kept_until.map(|at| stored(at.get())))
    .bind(answer.map(|a| i64::from(a.status)))
    .bind(answer.and_then(|a| a.content_type.clone()))
    .bind(answer.map(|a| stored(a.size)))
    .bind(answer.and_then(|a| a.inline.clone()))
    .bind(answer.and_then(|a| a.attempt.map(i64::from)))
    .bind(beside.functions.clone())
    .bind(history.transpose()?)
    .bind(from.next_deadline().map(|at| stored(at.get())))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives a job up that was never accepted, so that nobody accepts it while it is deleted; `false` if it has been accepted or given up meanwhile, or
/// is gone. Its idempotency key is free at once.
///
/// # Errors
/// When the database fails.
pub async fn job_give_up_submission(
    connection: &mut AnyConnection,
    job: JobId,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE jobs SET generation = generation + 1, kept_until = 0, idempotency = NULL \
         WHERE id = $1 AND state = 'submitted' AND kept_until IS NULL",
    )
    .bind(job.to_string())
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives a job up whose retention has ended, so that nobody runs it again while it is deleted; `false` if it is to be kept, or is gone.
///
/// # Errors
/// When the database fails.
pub async fn job_give_up(
    connection: &mut AnyConnection,
    job: JobId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    // Earlier than any clock: a controller whose clock is behind must not take it for one that is kept.
    let done = sqlx::query(
        "UPDATE jobs SET generation = generation + 1, kept_until = 0 WHERE id = $1 AND kept_until IS NOT NULL AND kept_until <= $2",
    )
    .bind(job.to_string())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a job that was given up.
///
/// # Errors
/// When the database fails.
pub async fn job_delete(connection: &mut AnyConnection, job: JobId) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM jobs WHERE id = $1 AND kept_until = 0")
        .bind(job.to_string())
        .execute(connection)
        .await?;
    Ok(())
}
