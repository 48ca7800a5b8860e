//! `/v1/apps/{app}/jobs`, `/v1/jobs/{job}` and `/v1/apps/{app}/schedules`.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use bytes::{Bytes, BytesMut};
use fdn_core::api::LogLine;
use fdn_core::job::{
    JobInfo, JobPriority, JobReceipt, JobState, PutSchedule, Redriven, ScheduleInfo,
};
use fdn_core::{AppName, ByteSize, DurationMs, JobId, Problem, Right, ScheduleName};
use futures::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Look, RunJobs};
use super::error::ApiError;
use super::page::{PageParams, PageRequest};
use crate::Error;
use crate::app::job::{self, JobError, Submission};
use crate::app::job_change;
use crate::app::logs::{LogQuery, logs};
use crate::app::schedule;
use crate::state::State;
use crate::store::job::{JobFilter, JobRow};
use crate::store::job_schedule::ScheduleFilter;

type Shared = web::Data<State>;
type App = web::Path<AppName>;
type Job = web::Path<JobId>;
type Schedule = web::Path<(AppName, ScheduleName)>;
type Answer<T> = Result<web::Json<T>, ApiError>;

/// The longest media type accepted.
const MEDIA_TYPE_MAX: usize = 255;

/// Parameters of a job's submission.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubmitParams {
    /// 0 to 9: higher ones of the same tenant go first. 5 by default.
    #[param(value_type = Option<u8>, minimum = 0, maximum = 9)]
    priority: Option<JobPriority>,
    /// How long it may wait before it is dropped, such as `10m`.
    #[param(value_type = Option<String>)]
    max_age: Option<DurationMs>,
    /// When it must have ended, from now, such as `1h`.
    #[param(value_type = Option<String>)]
    deadline: Option<DurationMs>,
    /// Who is told of its end: an http or https address.
    webhook: Option<String>,
    /// The path and query that it is sent to; `/` by default.
    target: Option<String>,
    /// Of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// Submit a job: the app is called with the request's body, by POST, once there is room for it. Answered when the broker has confirmed it: then it will end
/// in one of the final states, once, whatever fails meanwhile.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(
        ("app" = String, Path, description = "The app's name"),
        SubmitParams,
        ("idempotency-key" = Option<String>, Header, description = "The same request again with the same key is the same job"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 202, description = "Accepted", body = JobReceipt),
        (status = 413, description = "FDN-6014: the input is too large", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-6015, FDN-6018: not valid", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "FDN-6013: too many wait", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "FDN-6016: not accepted; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/jobs")]
pub(crate) async fn job_submit(
    call: Authorized<RunJobs, (App, web::Query<SubmitParams>, web::Payload)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (actor, tenant) = (call.actor(), call.tenant()?);
    let _room = Arc::clone(&state.submissions)
        .try_acquire_owned()
        .map_err(|_| Error::TooMany {
            what: "too many jobs are being submitted",
            after: std::time::Duration::from_secs(1),
        })?;
    let (app, params, payload) = call.input;
    let params = params.into_inner();
    let submission = Submission {
        priority: params.priority.unwrap_or_default(),
        max_age: params.max_age,
        deadline: params.deadline,
        webhook: params.webhook,
        target: params.target,
        content_type: media_type(&request)?,
        input: read(&state, payload).await?,
    };
    let key = call.key.as_deref();
    // Once begun, the submission continues to its end, even if the caller disconnects.
    let (shared, key) = (state.into_inner(), key.map(str::to_owned));
    let submitting = tokio::spawn(async move {
        job::submit(&shared, &actor, (tenant, &app), key.as_deref(), submission).await
    });
    let accepted = submitting
        .await
        .map_err(|e| Error::Internal(format!("a submission broke: {e}")))??;
    let mut response = HttpResponse::Accepted();
    let place = format!("/v1/jobs/{}", accepted.receipt.id);
    response.insert_header((header::LOCATION, place));
    response.insert_header(("cache-control", "no-store"));
    if accepted.replayed {
        response.insert_header(("idempotency-replayed", "true"));
    }
    Ok(response.json(accepted.receipt))
}

fn media_type(request: &HttpRequest) -> Result<Option<String>, Error> {
    let Some(value) = request.headers().get(header::CONTENT_TYPE) else {
        return Ok(None);
    };
    let text = value.to_str().ok().filter(|t| t.len() <= MEDIA_TYPE_MAX);
    let text = text.ok_or_else(|| JobError::Invalid("content-type: a media type".to_owned()))?;
    Ok(Some(text.to_owned()))
}

/// Reads the input, up to the limit.
async fn read(state: &State, mut payload: web::Payload) -> Result<Bytes, Error> {
    let limit: ByteSize = state.settings.jobs.input_limit;
    let mut input = BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|e| Error::BadRequest(format!("the input: {e}")))?;
        if (input.len() + piece.len()) as u64 > limit.as_bytes() {
            return Err(JobError::TooLarge(limit).into());
        }
        input.extend_from_slice(&piece);
    }
    Ok(input.freeze())
}

/// Parameters of lists of jobs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only those in this state; `dead` are the dead letters.
    #[param(value_type = Option<JobState>)]
    state: Option<JobState>,
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
    /// Of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

impl ListParams {
    /// The requested page, and the job that it begins after.
    fn page(&self, state: &State) -> Result<(PageRequest, Option<JobId>), Error> {
        let page = PageParams {
            limit: self.limit,
            cursor: self.cursor.clone(),
        };
        let wanted = page.validate(&state.settings.api)?;
        let before = match wanted.after.as_str() {
            "" => None,
            id => Some(id.parse().map_err(Error::from)?),
        };
        Ok((wanted, before))
    }
}

/// The jobs of the caller's tenants, newest first; an admin's are all.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(ListParams),
    responses((status = 200, body = [JobInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/jobs")]
pub(crate) async fn job_list_all(
    call: Authorized<Look, web::Query<ListParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (wanted, before) = call.input.page(&state)?;
    let filter = JobFilter {
        tenant: call.named_tenant(),
        member: call.person()?.list_filter(Right::Look),
        state: call.input.state,
    };
    let rows = job::all(&state, &filter, before, wanted.rows()).await?;
    let rows = rows.iter().map(JobRow::info).collect();
    Ok(wanted.answer(&request, rows, |job: &JobInfo| job.id.to_string()))
}

/// An app's jobs, newest first.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ListParams),
    responses((status = 200, body = [JobInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/jobs")]
pub(crate) async fn job_list(
    call: Authorized<Look, (App, web::Query<ListParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (app, params) = &call.input;
    let (wanted, before) = params.page(&state)?;
    let owned = (call.tenant()?, &**app);
    let rows = job::list(&state, owned, params.state, before, wanted.rows()).await?;
    let rows = rows.iter().map(JobRow::info).collect();
    Ok(wanted.answer(&request, rows, |job: &JobInfo| job.id.to_string()))
}

/// Run an app's dead letters again, some hundred at a time.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses((status = 200, body = Redriven), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[post("/v1/apps/{app}/jobs/redrive")]
pub(crate) async fn jobs_redrive(
    call: Authorized<RunJobs, App>,
    state: Shared,
) -> Answer<Redriven> {
    let tenant = call.tenant()?;
    Ok(web::Json(
        job_change::redrive_all(&state, &call.actor(), (tenant, &call.input)).await?,
    ))
}

/// One job.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobInfo), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/jobs/{job}")]
pub(crate) async fn job_get(call: Authorized<Look, Job>, state: Shared) -> Answer<JobInfo> {
    let row = job::get(&state, owner(&call, *call.input)?, *call.input).await?;
    Ok(web::Json(row.detail()))
}

/// The tenant of a job; an error for a job that does not exist.
fn owner<R: super::auth::RequiredRight, T>(
    call: &Authorized<R, T>,
    job: JobId,
) -> Result<fdn_core::TenantId, Error> {
    call.named_tenant().ok_or_else(|| Error::no_job(job))
}

/// End a job that has not ended; an attempt that runs is cut short.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("job" = String, Path, description = "The job's id")),
    responses(
        (status = 200, body = JobInfo),
        (status = 409, description = "FDN-6011: it has ended", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/jobs/{job}")]
pub(crate) async fn job_cancel(call: Authorized<RunJobs, Job>, state: Shared) -> Answer<JobInfo> {
    let owner = owner(&call, *call.input)?;
    let row = job_change::cancel(&state, &call.actor(), owner, *call.input).await?;
    Ok(web::Json(row.detail()))
}

/// Run a job again that ended without success.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("job" = String, Path, description = "The job's id")),
    responses(
        (status = 200, body = JobInfo),
        (status = 409, description = "FDN-6010, FDN-6011: it has not ended, or succeeded, or was cancelled", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/jobs/{job}/redrive")]
pub(crate) async fn job_redrive(call: Authorized<RunJobs, Job>, state: Shared) -> Answer<JobInfo> {
    let owner = owner(&call, *call.input)?;
    let row = job_change::redrive(&state, &call.actor(), owner, *call.input).await?;
    Ok(web::Json(row.detail()))
}

/// What the app answered, in its own media type.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("job" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The bytes of the answer", body = serde_json::Value, content_type = "*/*"),
        (status = 409, description = "FDN-6010: it has not ended", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "FDN-6012: there is no answer", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/jobs/{job}/result")]
pub(crate) async fn job_result(
    call: Authorized<Look, Job>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&call, *call.input)?;
    let (kind, bytes) = job::result(&state, owner, *call.input).await?;
    // In a browser, what a function wrote must not become a page of this origin.
    Ok(HttpResponse::Ok()
        .content_type(kind.unwrap_or_else(|| "application/octet-stream".to_owned()))
        .insert_header(("content-disposition", "attachment"))
        .insert_header(("x-content-type-options", "nosniff"))
        .insert_header(("content-security-policy", "sandbox"))
        .body(bytes))
}

/// Parameters of a job's log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobLogParams {
    /// How many of the app's last lines are searched.
    #[serde(default = "default_tail")]
    tail: u32,
    /// Of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

const fn default_tail() -> u32 {
    1000
}

/// What the app's functions wrote while they ran a job, oldest first; one JSON object a line.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("job" = String, Path, description = "The job's id"), JobLogParams),
    responses(
        (status = 200, body = LogLine, content_type = "application/x-ndjson"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/jobs/{job}/logs")]
pub(crate) async fn job_logs(
    call: Authorized<Look, (Job, web::Query<JobLogParams>)>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (job, params) = &call.input;
    let row = job::get(&state, owner(&call, **job)?, **job).await?;
    let query = LogQuery {
        follow: false,
        tail: params.tail,
    };
    let (state, app) = (state.into_inner(), row.app.clone());
    let lines = logs(state, call.caller, row.tenant, app, query).await?;
    let prefix = format!("{}.", row.id);
    let lines = lines.filter(move |line| {
        let ours = serde_json::from_slice::<LogLine>(line)
            .is_ok_and(|line| line.request.starts_with(&prefix));
        std::future::ready(ours)
    });
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        .insert_header(("cache-control", "no-store"))
        .insert_header(("content-encoding", "identity"))
        .streaming(lines.map(Ok::<_, Infallible>)))
}

/// Parameters of the list of schedules.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ScheduleListParams {
    /// The most rows.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
    /// Of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// The schedules of the caller's tenants, by app and name; an admin's are all.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(ScheduleListParams),
    responses((status = 200, body = [ScheduleInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/schedules")]
pub(crate) async fn schedule_list_all(
    call: Authorized<Look, web::Query<ScheduleListParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let page = PageParams {
        limit: call.input.limit,
        cursor: call.input.cursor.clone(),
    };
    let wanted = page.validate(&state.settings.api)?;
    let filter = ScheduleFilter {
        tenant: call.named_tenant(),
        member: call.person()?.list_filter(Right::Look),
    };
    let rows = schedule::all(&state, &filter, &wanted.after, wanted.rows()).await?;
    // No name contains a slash, and it sorts before every character that names can contain.
    let key = |one: &ScheduleInfo| format!("{}/{}", one.app, one.name);
    Ok(wanted.answer(&request, rows, key))
}

/// An app's schedules, by name.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), PageParams),
    responses((status = 200, body = [ScheduleInfo]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/schedules")]
pub(crate) async fn schedule_list(
    call: Authorized<Look, (App, web::Query<PageParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (app, page) = &call.input;
    let wanted = page.validate(&state.settings.api)?;
    let key = |schedule: &ScheduleInfo| schedule.name.to_string();
    let rows = wanted.cut(schedule::list(&state, app).await?, key);
    Ok(wanted.answer(&request, rows, key))
}

/// Submit a job of an app again and again.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("name" = String, Path, description = "The schedule's name in the app: a DNS label")),
    request_body = PutSchedule,
    responses(
        (status = 200, body = ScheduleInfo),
        (status = 422, description = "FDN-6017: not valid", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/schedules/{name}")]
pub(crate) async fn schedule_put(
    call: Authorized<RunJobs, (Schedule, web::Json<PutSchedule>)>,
    state: Shared,
) -> Answer<ScheduleInfo> {
    let (path, request) = &call.input;
    let (app, name) = &**path;
    let tenant = call.tenant()?;
    let set = schedule::put(&state, &call.actor(), (tenant, app), name, request).await?;
    Ok(web::Json(set))
}

/// Take a schedule away; jobs that it submitted stay.
#[utoipa::path(
    tag = "jobs",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("name" = String, Path, description = "The schedule's name in the app")),
    responses((status = 204, description = "Gone"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/apps/{app}/schedules/{name}")]
pub(crate) async fn schedule_remove(
    call: Authorized<RunJobs, Schedule>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, name) = &*call.input;
    let tenant = call.tenant()?;
    schedule::remove(&state, &call.actor(), (tenant, app), name).await?;
    Ok(HttpResponse::NoContent().finish())
}
