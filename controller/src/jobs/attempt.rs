//! One attempt at a job: claimed, sent to a gateway, classified, recorded.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use fdn_core::api::header;
use fdn_core::job::{AttemptResult, Event, JobPass};
use fdn_core::{AppName, ByteSize, ClusterId, ErrorCode, Fault, HostName, JobId, Retry, Timestamp};
use fdn_service::CancellationToken;
use http::{HeaderMap, Method, StatusCode};
use tracing::warn;

use super::change::{Claim, Claimant, EventDetails, claim, step};
use crate::Error;
use crate::app::job::decoded;
use crate::artifacts::JobObject;
use crate::edge::node_client::NodeAddress;
use crate::error::chain;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::job::{AnswerRow, JobRow, job_bytes};
use crate::store::version::version_get;

/// The longest back-off before recording an attempt's end is retried while the store is unavailable.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// An attempt to be made.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRequest {
    /// The job.
    pub(crate) job: JobId,
    /// Its app.
    pub(crate) app: AppName,
    /// The chosen cluster.
    pub(crate) cluster: ClusterId,
    /// One of its gateways.
    pub(crate) gateway: NodeAddress,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchOutcome {
    /// The end of the attempt is recorded.
    Settled,
    /// The limit of running attempts of the app, or of a function that it calls, is reached; the number is the most attempts of the app that can
    /// run at once.
    Busy(u32),
    /// Another dispatcher has the job, it has ended, or the attempt was stopped.
    Gone,
    /// The store did not answer; it is unknown whether anything happened.
    StoreUnavailable,
}

/// The result of a call.
struct CallOutcome {
    ending: AttemptResult,
    repeatable: bool,
    reason: Option<String>,
    answer: Option<(u16, Option<String>, Bytes)>,
}

impl CallOutcome {
    fn of(ending: AttemptResult, reason: impl Into<String>) -> Self {
        Self {
            ending,
            repeatable: false,
            reason: Some(reason.into()),
            answer: None,
        }
    }
}

/// Makes an attempt. `claimed` gets the number of the attempt once this dispatcher has claimed it; `stop` aborts the call.
pub(crate) async fn attempt(
    state: &Arc<State>,
    target: &AttemptRequest,
    claimed: impl FnOnce(u32),
    stop: &CancellationToken,
) -> DispatchOutcome {
    let lease = state.settings.jobs.lease.as_millis();
    let claimant = Claimant {
        holder: state.singletons.holder(),
        cluster: &target.cluster,
        lease_until: Timestamp(fdn_service::now().get().saturating_add(lease)),
    };
    let row = match claim(state, (target.job, &target.app), &claimant).await {
        Ok(Claim::Granted(row)) => row,
        Ok(Claim::Busy(most)) => return DispatchOutcome::Busy(most),
        Ok(Claim::Gone) => return DispatchOutcome::Gone,
        Err(error) => {
            warn!(job = %target.job, error = chain(&error), "a job cannot be claimed now");
            return DispatchOutcome::StoreUnavailable;
        }
    };
    claimed(row.progress.attempt);
    let outcome = tokio::select! {
        outcome = run(state, &row, target) => outcome,
        () = stop.cancelled() => return DispatchOutcome::Gone,
    };
    let attempts = &state.metrics.jobs.attempts;
    attempts.with_label_values(&[label(outcome.ending)]).inc();
    tokio::select! {
        () = record_outcome(state, &row, outcome) => DispatchOutcome::Settled,
        () = stop.cancelled() => DispatchOutcome::Gone,
    }
}

const fn label(ending: AttemptResult) -> &'static str {
    match ending {
        AttemptResult::Succeeded => "succeeded",
        AttemptResult::Refused => "refused",
        AttemptResult::NeverBegun => "never_begun",
        AttemptResult::CutShort => "cut_short",
    }
}

/// Records how the attempt ended, and retries for as long as the store is unavailable. If the lease ends meanwhile, recording has no effect.
async fn record_outcome(state: &State, row: &JobRow, outcome: CallOutcome) {
    let mut pause = Duration::from_millis(50);
    loop {
        match try_record_outcome(state, row, &outcome).await {
            Ok(()) => return,
            Err(error) => {
                warn!(job = %row.id, error = chain(&error), "the end of an attempt cannot be written down; trying again");
            }
        }
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn try_record_outcome(
    state: &State,
    row: &JobRow,
    outcome: &CallOutcome,
) -> Result<(), Error> {
    let attempt = row.progress.attempt;
    let mut answer = None;
    if let Some((status, content_type, bytes)) = &outcome.answer {
        let large = bytes.len() as u64 > state.settings.jobs.inline_limit.as_bytes();
        if large {
            let object = JobObject::Result(attempt);
            let put = state.artifacts.object_put(row.id, object, bytes.clone());
            put.await
                .inspect_err(|_| state.metrics.artifacts.write_failures.inc())?;
        }
        answer = Some(AnswerRow {
            status: *status,
            content_type: content_type.clone(),
            size: bytes.len() as u64,
            inline: (!large).then(|| STANDARD.encode(bytes)),
            attempt: large.then_some(attempt),
        });
    }
    let details = EventDetails {
        reason: outcome.reason.clone(),
        answer,
        repeatable: outcome.repeatable,
        audit: None,
    };
    let event = Event::Ended {
        attempt,
        ending: outcome.ending,
    };
    // Without effect if somebody cancelled the job or the lease has ended. Objects of such an attempt are deleted with the job.
    step(state, row.id, event, &details).await.map(drop)
}

/// Records that an attempt was cut short because its controller stops. Without effect if it has ended.
pub(crate) async fn record_cut(state: &State, job: JobId, attempt: u32) -> Result<(), Error> {
    let details = EventDetails {
        reason: Some("its controller stopped before the app had answered".to_owned()),
        ..EventDetails::default()
    };
    let event = Event::Ended {
        attempt,
        ending: AttemptResult::CutShort,
    };
    step(state, job, event, &details).await.map(drop)
}

/// Makes the call.
async fn run(state: &State, row: &JobRow, target: &AttemptRequest) -> CallOutcome {
    let input = match input(state, row).await {
        Ok(input) => input,
        Err(error) => {
            return CallOutcome::of(AttemptResult::NeverBegun, format!("its input: {error}"));
        }
    };
    let (host, limit) = match app(state, row).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let reason = format!("the app {} does not exist any more", row.app);
            return CallOutcome::of(AttemptResult::Refused, reason);
        }
        Err(error) => return CallOutcome::of(AttemptResult::NeverBegun, error.to_string()),
    };
    let limit = limit + state.settings.jobs.answer_slack.as_duration();
    let limit = row
        .deadline
        .map_or(limit, |end| limit.min(end.since(fdn_service::now())));
    let request = match request(state, (row, &host, &target.gateway), input) {
        Ok(request) => request,
        Err(error) => return CallOutcome::of(AttemptResult::NeverBegun, error.to_string()),
    };
    match tokio::time::timeout(limit, call(request, state.settings.jobs.result_limit)).await {
        Ok(outcome) => outcome,
        Err(_) => CallOutcome::of(
            AttemptResult::CutShort,
            format!("no answer of cluster {} within {limit:?}", target.cluster),
        ),
    }
}

async fn input(state: &State, row: &JobRow) -> Result<Bytes, Error> {
    let (inline, _) = job_bytes(&mut *state.store.read().await?, row.id).await?;
    match inline {
        Some(text) => Ok(decoded(text, "jobs.input")?),
        None => Ok(state.artifacts.object_get(row.id, JobObject::Input).await?),
    }
}

/// The app's host name, and its own time limit.
async fn app(state: &State, row: &JobRow) -> Result<Option<(HostName, Duration)>, Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, &row.app).await?;
    let Some(found) = found.filter(|found| found.tenant == row.tenant) else {
        return Ok(None);
    };
    let mut limit = Duration::ZERO;
    for stage in found.workflow.stages() {
        let version =
            version_get(&mut connection, row.tenant, &stage.function, stage.version).await?;
        let stage = version.map_or(Duration::ZERO, |v| v.manifest.timeout.as_duration());
        // Stages may run one after the other.
        limit += stage;
    }
    if let Some(definition) = &found.definition {
        limit = limit.max(definition.timeout.as_duration());
    }
    Ok(Some((found.host, limit)))
}

fn request(
    state: &State,
    (row, host, gateway): (&JobRow, &HostName, &NodeAddress),
    input: Bytes,
) -> Result<reqwest::RequestBuilder, Error> {
    let (job, attempt) = (row.id, row.progress.attempt);
    let request = state
        .edge
        .node_clients
        .request(Method::POST, gateway, &row.target)?
        .header(header::CALL_HOST, host.as_str())
        .header(header::JOB, JobPass { job, attempt }.to_string())
        .header(header::REQUEST_ID, format!("{job}.{attempt}"))
        .body(input);
    Ok(match &row.content_type {
        Some(kind) => request.header("content-type", kind),
        None => request,
    })
}

async fn call(request: reqwest::RequestBuilder, most: ByteSize) -> CallOutcome {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => {
            let ending = if error.is_connect() || error.is_builder() {
                AttemptResult::NeverBegun
            } else {
                AttemptResult::CutShort
            };
            let reason = format!("the gateway: {}", chain(&error.without_url()));
            return CallOutcome::of(ending, reason);
        }
    };
    if let Some(outcome) = not_taken(response.headers()) {
        return outcome;
    }
    let status = response.status();
    let text = |name: &str| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let (kind, code) = (text("content-type"), text(header::ERROR));
    let bytes = match read(response, most).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let reason = format!("the answer is larger than {most}");
            return CallOutcome::of(AttemptResult::Refused, reason);
        }
        Err(error) => {
            let reason = format!("the answer broke off: {}", chain(&error.without_url()));
            return CallOutcome::of(AttemptResult::CutShort, reason);
        }
    };
    classify(status, code.as_deref(), kind, bytes)
}

/// The outcome if the node did not take the call, as one whose clock is wrong takes the controller's certificate for one that has ended. Nodes
/// take this field off the answers of functions.
fn not_taken(headers: &HeaderMap) -> Option<CallOutcome> {
    let outcome = headers.get(header::CALL_OUTCOME)?;
    (outcome == header::NOT_STARTED).then(|| {
        let reason = "the node does not accept the controller's certificate";
        CallOutcome::of(AttemptResult::NeverBegun, reason)
    })
}

/// The body of a response; `None` if it is larger than `most`.
async fn read(
    mut response: reqwest::Response,
    most: ByteSize,
) -> Result<Option<Bytes>, reqwest::Error> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        if (bytes.len() + piece.len()) as u64 > most.as_bytes() {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes.freeze()))
}

/// Classifies what a response means for the job.
fn classify(
    status: StatusCode,
    gateway: Option<&str>,
    kind: Option<String>,
    bytes: Bytes,
) -> CallOutcome {
    let code = gateway.and_then(|code| ErrorCode::try_from(code.to_owned()).ok());
    let (ending, repeatable) = match code {
        Some(code) => of_code(code),
        None if status.is_success() || status.is_redirection() => (AttemptResult::Succeeded, false),
        // The function itself asks for a later retry: it has done nothing.
        None if matches!(status.as_u16(), 425 | 429) => (AttemptResult::CutShort, true),
        None if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT => {
            (AttemptResult::Refused, false)
        }
        None => (AttemptResult::CutShort, false),
    };
    let reason = match (code, ending) {
        (_, AttemptResult::Succeeded) => None,
        (Some(code), _) => Some(format!("{code}: {}", code.title())),
        (None, _) => Some(format!("the app answered {status}")),
    };
    CallOutcome {
        ending,
        repeatable,
        reason,
        answer: (ending != AttemptResult::NeverBegun).then(|| (status.as_u16(), kind, bytes)),
    }
}

/// The meaning of a gateway's own error: the ending, and whether the function certainly did nothing.
fn of_code(code: ErrorCode) -> (AttemptResult, bool) {
    match code {
        // The call was not admitted, or not here: another time or place may work. The app's policy does not apply to jobs.
        ErrorCode::Overloaded
        | ErrorCode::NotReady
        | ErrorCode::UnknownHost
        | ErrorCode::NoClusterFits
        | ErrorCode::EngineFailed
        | ErrorCode::ImageMissing => (AttemptResult::NeverBegun, true),
        // No instance started: nothing ran, but this counts as a failed attempt, so that it does not go on forever.
        // The same holds for input that did not arrive in time or broke off: what a node cannot understand, it hands to no function.
        ErrorCode::InstanceNotStarted | ErrorCode::BadRequest => (AttemptResult::CutShort, true),
        other if other.fault() == Fault::Caller && other.retry() == Retry::Never => {
            (AttemptResult::Refused, false)
        }
        other if other.fault() == Fault::Caller => (AttemptResult::NeverBegun, true),
        _ => (AttemptResult::CutShort, false),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn input_that_came_too_slowly_is_sent_again_even_if_the_function_is_not_idempotent() {
        let answer = |code: &str| {
            let outcome = classify(StatusCode::BAD_REQUEST, Some(code), None, Bytes::new());
            (outcome.ending, outcome.repeatable)
        };
        assert_eq!(answer("FDN-2005"), (AttemptResult::CutShort, true));
        assert_eq!(
            answer(ErrorCode::BodyTooLarge.as_str()),
            (AttemptResult::Refused, false)
        );
        // The app's own answer.
        let own = classify(StatusCode::BAD_REQUEST, None, None, Bytes::new());
        assert_eq!(own.ending, AttemptResult::Refused);
    }

    #[test]
    fn a_node_that_does_not_take_the_call_ends_no_job() {
        let ending = |outcome: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CALL_OUTCOME, HeaderValue::from_static(outcome));
            not_taken(&headers).map(|outcome| outcome.ending)
        };
        assert_eq!(ending("not_started"), Some(AttemptResult::NeverBegun));
        assert_eq!(ending("lost"), None);
        assert!(not_taken(&HeaderMap::new()).is_none());
    }
}
