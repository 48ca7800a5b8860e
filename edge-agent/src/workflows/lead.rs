//! Leads a run: performs the actions of the state machine, keeps outputs as long as they are needed, and answers the caller.
//!
//! A run lives as long as its caller waits: when the caller disconnects, everything in progress is cancelled.

mod accounting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::header::HeaderMap as ActixHeaders;
use actix_http::{Payload, Response};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::{ClusterId, ErrorCode, Problem};
use fdn_scheduling::run::{
    Action, Event, Failure, FailureKind, Outcome as RunOutcome, Run, StagePlan,
};
use futures::StreamExt;
use futures::future::{AbortHandle, Aborted, LocalBoxFuture, abortable};
use futures::stream::FuturesUnordered;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::time::timeout;
use tracing::{debug, info};

use self::accounting::RunAccounting;
use super::answer;
use super::budget::Budget;
use super::call::{Output, StageCall, refusal_code};
use super::here;
use super::inputs::{Parent, SharedInputs, add_parents, problem};
use super::prewarm::Prewarming;
use super::run_changes::{RecordedRun, begun};
use crate::apps::{StageServing, Staged};
use crate::gateway::body::GatewayBody;
use crate::gateway::head::{self, Ids, Peer};
use crate::gateway::problem::ProblemResponse;
use crate::gateway::routes::Route;
use crate::gateway::service::Gateway;
use crate::gateway::upload;
use crate::invocations::retry::is_idempotent;
use crate::metrics::Outcome;
use crate::policy::Pass;
use crate::policy::guard::client_text;
use crate::traces::RunSpans;

/// The call that started a run.
pub(crate) struct Caller<'a> {
    pub(crate) head: &'a actix_http::RequestHead,
    pub(crate) host: &'a str,
    pub(crate) ids: &'a Ids,
    pub(crate) peer: &'a Peer,
    pub(crate) arrived: Instant,
    /// The decision of the app's policy, if it has one.
    pub(crate) pass: Option<&'a Pass>,
    /// The job that calls, if one does.
    pub(crate) job: Option<&'a http::HeaderValue>,
}

/// The end of an attempt (stage, number, result); [`Aborted`] if it was cancelled.
type Ended = (usize, u32, Result<Result<Output, Failure>, Aborted>);

struct Lead<'a> {
    gateway: &'a Gateway,
    route: &'a Route,
    staged: &'a Staged,
    caller: &'a Caller<'a>,
    body: Bytes,
    run: Run,
    outputs: Vec<Option<Output>>,
    inputs: SharedInputs,
    /// What the run may keep besides the request.
    budget: Budget,
    ran: Vec<Option<ClusterId>>,
    calls: FuturesUnordered<LocalBoxFuture<'a, Ended>>,
    aborts: BTreeMap<(usize, u32), AbortHandle>,
    /// Whether a function may have begun. Until then the run can be repeated without harm.
    may_have_begun: bool,
    prewarming: Prewarming<'a>,
    begun: Instant,
    accounting: RunAccounting,
}

impl Gateway {
    /// Runs a workflow for its caller.
    ///
    /// # Errors
    /// When the run was not admitted, or its body did not arrive.
    pub(crate) async fn lead(
        &self,
        caller: &Caller<'_>,
        payload: Payload,
        route: &Route,
        staged: &Staged,
    ) -> Result<Response<GatewayBody>, ProblemResponse> {
        let workflows = &self.workflows;
        let Ok(permit) = Arc::clone(&workflows.runs).try_acquire_owned() else {
            workflows.metrics.runs.with_label_values(&["refused"]).inc();
            return Err(ProblemResponse::of_call(ErrorCode::Overloaded));
        };
        let time = staged.run.timeout.as_duration();
        let limit = workflows.settings.run_data.as_bytes();
        let entry = &staged.stages[staged.entry];
        let limit = entry.deployed.as_ref().map_or(limit, |deployed| {
            limit.min(deployed.body_limit().as_bytes())
        });
        let limit = caller.pass.map_or(limit, |pass| pass.body_limit(limit));
        let length = head::content_length(caller.head.headers());
        let whole = timeout(time, upload::all(payload, length, limit)).await;
        let body = whole.map_err(|_| crate::gateway::service::NOT_UPLOADED)??;
        workflows.metrics.running.inc();
        let mut accounting = RunAccounting {
            app: Arc::clone(&route.metrics),
            metrics: workflows.metrics.clone(),
            arrived: caller.arrived,
            outcome: (Outcome::Client, "abandoned"),
            kept: 0,
            run: RecordedRun::new(
                begun(workflows, caller, route, staged),
                &workflows.run_changes,
            ),
            spans: self.traced(&caller.ids.trace).map(|traced| {
                let method = caller.head.method.as_str();
                Box::new(RunSpans::new(*traced, method))
            }),
            _permit: permit,
        };
        accounting.keep(body.len());
        let busy = route.metrics.running();
        let deadline = time.saturating_sub(caller.arrived.elapsed());
        let (run, first) = Run::new(plans(self, staged, caller), deadline);
        let (stages, begun) = (staged.stages.len(), Instant::now());
        // The request is kept as long as the run is.
        let data = workflows.settings.run_data.as_usize();
        let budget = Budget::new(data.saturating_sub(body.len()));
        let lead = Lead {
            prewarming: Prewarming::new(self, staged, begun),
            begun,
            gateway: self,
            route,
            staged,
            caller,
            body,
            run,
            outputs: (0..stages).map(|_| None).collect(),
            inputs: SharedInputs::default(),
            budget,
            ran: vec![None; stages],
            calls: FuturesUnordered::new(),
            aborts: BTreeMap::new(),
            may_have_begun: false,
            accounting,
        };
        let answer = lead.lead_on(first).await;
        drop(busy);
        Ok(answer)
    }
}

/// The stages' input to the state machine: where each may run, and how it may be retried.
fn plans(gateway: &Gateway, staged: &Staged, caller: &Caller<'_>) -> Vec<StagePlan> {
    let workflows = &gateway.workflows;
    let method = Method::from_bytes(caller.head.method.as_str().as_bytes()).unwrap_or(Method::POST);
    let plan = |(index, stage): (usize, &StageServing)| {
        let rules = staged.run.rules_of(&stage.name);
        let wanted = staged.run.cluster_of(&stage.name, &workflows.cluster);
        let mut clusters = vec![wanted.clone()];
        let others = [&workflows.cluster].into_iter().chain(&staged.others);
        for other in others {
            if !clusters.contains(other) {
                clusters.push(other.clone());
            }
        }
        if workflows.client.is_none() {
            clusters = vec![workflows.cluster.clone()];
        }
        let own = stage.manifest.timeout.as_duration();
        StagePlan {
            parents: staged.parents[index].clone(),
            when: rules.when,
            clusters,
            retries: rules.retries,
            backoff: rules.backoff.as_duration(),
            timeout: rules
                .timeout
                .map_or(own, |limit| limit.as_duration().min(own)),
            idempotent: if index == staged.entry {
                is_idempotent(&method, stage.manifest.idempotent)
            } else {
                stage.manifest.idempotent
            },
        }
    };
    staged.stages.iter().enumerate().map(plan).collect()
}

impl Lead<'_> {
    async fn lead_on(mut self, first: Vec<Action>) -> Response<GatewayBody> {
        let begun = self.begun;
        let mut actions = first;
        loop {
            for action in actions {
                if let Some(outcome) = self.perform(action) {
                    return self.answer(outcome);
                }
            }
            let data = self.gateway.workflows.settings.run_data.as_usize();
            self.accounting
                .keep(data.saturating_sub(self.budget.left()));
            self.prewarming.advance(&self.run);
            let due = [self.run.next_due(), self.prewarming.next_due()];
            let due = due.into_iter().flatten().min().unwrap_or(Duration::MAX);
            let until = tokio::time::Instant::now() + due.saturating_sub(begun.elapsed()).min(DAY);
            let event = tokio::select! {
                biased;
                Some((stage, attempt, ended)) = self.calls.next(), if !self.calls.is_empty() => {
                    match self.taken(stage, attempt, ended) {
                        Some(event) => event,
                        None => { actions = Vec::new(); continue; }
                    }
                }
                Some(result) = self.prewarming.pending.next(), if !self.prewarming.pending.is_empty() => {
                    self.prewarming.on_result(result);
                    actions = Vec::new();
                    continue;
                }
                () = tokio::time::sleep_until(until) => Event::Tick,
            };
            actions = self.run.apply(event, begun.elapsed());
            let (parents, run) = (&self.staged.parents, &self.run);
            // A stage that has not ended may need its input for another attempt.
            let needs =
                |stage: usize, of: &[usize]| parents[stage] == of && run.settled(stage).is_none();
            let stages = parents.len();
            self.inputs
                .retain(|of| (0..stages).any(|stage| needs(stage, of)));
        }
    }

    /// Takes the result of an attempt; returns the event for the state machine, `None` if the attempt was cancelled.
    fn taken(
        &mut self,
        stage: usize,
        attempt: u32,
        ended: Result<Result<Output, Failure>, Aborted>,
    ) -> Option<Event> {
        self.aborts.remove(&(stage, attempt));
        self.accounting.attempted(stage, attempt);
        let name = &self.staged.stages[stage].name;
        let refused = |failure: &Failure| failure.kind == FailureKind::NotStarted;
        self.may_have_begun |= !matches!(&ended, Ok(Err(failure)) if refused(failure));
        match ended {
            Err(Aborted) => None,
            Ok(Ok(output)) => {
                self.staged.stages[stage].stats.put_out(output.body.len());
                self.prewarming.done(stage);
                // A gateway of another cluster adds its node; on this node, the field could only be the function's own.
                let node = output
                    .headers
                    .get(header::NODE)
                    .filter(|_| self.is_away(stage));
                let node = node.and_then(|node| node.to_str().ok()?.parse().ok());
                let bytes = output.body.len();
                self.accounting.run.done(stage, attempt, bytes, node);
                self.outputs[stage] = Some(output);
                self.count(stage, "done");
                Some(Event::Done { stage, attempt })
            }
            Ok(Err(failure)) => {
                self.count(stage, kind(failure.kind));
                self.accounting.run.failed(stage, attempt, &failure);
                let (app, reason) = (&self.staged.app, &failure.reason);
                let request = String::from_utf8_lossy(&self.caller.ids.request);
                info!(%app, stage = %name, attempt, %request, reason, "an attempt at a stage failed");
                Some(Event::Failed {
                    stage,
                    attempt,
                    failure,
                })
            }
        }
    }

    fn is_away(&self, stage: usize) -> bool {
        self.ran[stage].as_ref() != Some(&self.gateway.workflows.cluster)
    }

    fn count(&self, stage: usize, outcome: &str) {
        let place = if self.is_away(stage) { "away" } else { "here" };
        let stages = &self.gateway.workflows.metrics.stages;
        stages.with_label_values(&[place, outcome]).inc();
    }

    fn perform(&mut self, action: Action) -> Option<RunOutcome> {
        match action {
            Action::Start {
                stage,
                cluster,
                attempt,
                inputs,
                deadline,
            } => {
                let left = deadline.saturating_sub(self.begun.elapsed());
                let call = self.call(stage, attempt, &inputs, left);
                self.start(stage, attempt, cluster, call);
                None
            }
            Action::Cancel { stage, attempt } => {
                if let Some(abort) = self.aborts.remove(&(stage, attempt)) {
                    abort.abort();
                    self.may_have_begun = true;
                    self.count(stage, "lost");
                    self.accounting.run.cancelled(stage, attempt);
                    self.accounting.attempted(stage, attempt);
                }
                None
            }
            Action::Forget { stage } => {
                self.outputs[stage] = None;
                None
            }
            Action::Finish(outcome) => Some(outcome),
        }
    }

    /// Composes a call.
    ///
    /// # Errors
    /// When its input is larger than what the run may still keep.
    fn call(
        &mut self,
        stage: usize,
        attempt: u32,
        inputs: &[(usize, fdn_scheduling::run::Settled)],
        left: Duration,
    ) -> Result<StageCall, Failure> {
        let serving = &self.staged.stages[stage];
        let rules = self.staged.run.rules_of(&serving.name);
        let caller = self.caller;
        let is_entry = stage == self.staged.entry;
        let mut headers = if is_entry {
            of_client(caller.head.headers(), caller.peer)
        } else {
            HeaderMap::new()
        };
        if let Some(pass) = caller.pass {
            pass.identity().add_headers(&mut headers);
        } else if let Some(job) = caller.job {
            headers.insert(header::IDENTITY, job.clone());
        }
        let body = if is_entry {
            self.body.clone()
        } else {
            let parents: Vec<Parent<'_>> = inputs
                .iter()
                .map(|(parent, settled)| Parent {
                    stage: &self.staged.stages[*parent].name,
                    settled: *settled,
                    output: self.outputs[*parent].as_ref(),
                    failure: self
                        .run
                        .failure(*parent)
                        .map(|f| (f, self.run.attempts(*parent))),
                })
                .collect();
            add_parents(&parents, &mut headers);
            let of = &self.staged.parents[stage];
            let input = self.inputs.of(of, &parents, &self.budget)?;
            if let Some(kind) = input.kind {
                headers.insert(http::header::CONTENT_TYPE, kind);
            }
            input.body
        };
        let mut set = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set(header::STAGE, serving.name.to_string());
        set(header::ATTEMPT, attempt.to_string());
        set(header::DEADLINE, left.as_millis().to_string());
        let target = caller
            .head
            .uri
            .path_and_query()
            .map(|target| target.as_str());
        let target = rules
            .path
            .as_deref()
            .or(target.filter(|_| is_entry))
            .unwrap_or("/");
        let method = caller.head.method.as_str().as_bytes();
        Ok(StageCall {
            app: self.staged.app.clone(),
            host: self.staged.host.clone(),
            stage: serving.name.clone(),
            version: format!("{}@{}", serving.function, serving.version),
            attempt,
            method: match is_entry {
                true => Method::from_bytes(method).unwrap_or(Method::POST),
                false => Method::POST,
            },
            uri: target.parse().unwrap_or_else(|_| Uri::from_static("/")),
            headers,
            body,
            requested_host: caller.host.to_owned(),
            client: client_text(caller.head, caller.peer),
            ids: Ids {
                request: caller.ids.request.clone(),
                trace: caller.ids.trace.child(rand::random()),
            },
            left,
            budget: self.budget.clone(),
        })
    }

    fn answer(mut self, outcome: RunOutcome) -> Response<GatewayBody> {
        // Calls still in progress are no longer needed.
        self.calls.clear();
        let ids = &self.caller.ids.request;
        let mut response = match outcome {
            RunOutcome::Answered(exits) => {
                self.accounting.outcome = (Outcome::Ok, "answered");
                let declared = (0..self.staged.stages.len()).filter(|at| self.staged.is_exit(*at));
                let is_single = declared.count() == 1;
                let mut outputs = Vec::with_capacity(exits.len());
                for exit in exits {
                    if let Some(output) = self.outputs[exit].take() {
                        outputs.push((&self.staged.stages[exit].name, output));
                    }
                }
                match outputs.pop() {
                    Some((_, output)) if is_single => answer::single(output),
                    last => {
                        outputs.extend(last);
                        answer::several(&outputs, &self.budget).unwrap_or_else(|| {
                            self.accounting.outcome = (Outcome::FunctionEnded, "failed");
                            let left = self.budget.left();
                            let told = format!(
                                "its answer is larger than the {left} bytes that the run may still keep"
                            );
                            answer::failed(Problem::new(ErrorCode::WorkflowTooLarge, told), ids)
                        })
                    }
                }
            }
            RunOutcome::Failed {
                stage,
                attempt,
                failure,
            } => {
                let is_size = failure
                    .reason
                    .starts_with(ErrorCode::WorkflowTooLarge.as_str());
                let code = match self.refusal(Some(&failure)) {
                    Some(code) => code,
                    None if is_size => ErrorCode::WorkflowTooLarge,
                    None => ErrorCode::StageFailed,
                };
                self.accounting.outcome = (Outcome::of_code(code), "failed");
                answer::failed(self.problem(code, stage, attempt, &failure.reason), ids)
            }
            RunOutcome::Late { stage, attempt } => {
                let time = self.staged.run.timeout;
                let told = format!("the workflow's {time} were over");
                let refusal = self.refusal(self.run.failure(stage));
                let code = refusal.unwrap_or(ErrorCode::WorkflowTimeout);
                self.accounting.outcome = (Outcome::of_code(code), "late");
                answer::failed(self.problem(code, stage, attempt, &told), ids)
            }
        };
        let stages = self.staged.stages.iter().zip(&self.ran);
        let ran: Vec<_> = stages
            .filter_map(|(stage, cluster)| Some((&stage.name, cluster.as_ref()?.to_string())))
            .collect();
        answer::add_stages_header(&mut response, &ran);
        if let Some(spans) = &mut self.accounting.spans {
            spans.answered(response.status().as_u16());
        }
        debug!(app = %self.staged.app, ?ran, "a workflow has ended");
        response
    }

    /// The code for a run that ends with this failure if nothing began: whoever asks again later loses nothing.
    fn refusal(&self, failure: Option<&Failure>) -> Option<ErrorCode> {
        let failure = failure.filter(|failure| failure.kind == FailureKind::NotStarted)?;
        (!self.may_have_begun).then(|| refusal_code(&failure.reason))
    }

    fn problem(&self, code: ErrorCode, stage: usize, attempt: u32, reason: &str) -> Problem {
        problem(code, &self.staged.stages[stage].name, attempt, reason)
    }
}

impl<'a> Lead<'a> {
    /// Starts an attempt; one whose call could not be composed fails at once.
    fn start(
        &mut self,
        stage: usize,
        attempt: u32,
        cluster: ClusterId,
        call: Result<StageCall, Failure>,
    ) {
        let (gateway, revision) = (self.gateway, self.route.revision);
        let serving: &'a StageServing = &self.staged.stages[stage];
        let announced_to = self.prewarming.calls(stage);
        self.ran[stage] = Some(cluster.clone());
        self.accounting.run.begun(stage, attempt, cluster.clone());
        if let (Some(spans), Ok(call)) = (&mut self.accounting.spans, &call) {
            spans.begun(stage, attempt, call.ids.trace.clone());
        }
        let (calling, abort) = abortable(async move {
            let call = call?;
            // Another node of this cluster may run what this one cannot.
            let is_here = serving.deployed.is_some() || gateway.workflows.client.is_none();
            if cluster == gateway.workflows.cluster && is_here {
                return here::call(gateway, revision, serving, call).await;
            }
            match &gateway.workflows.client {
                Some(client) => client.call(&cluster, call, announced_to).await,
                None => {
                    let told = "this node calls no other clusters";
                    Err(Failure::new(FailureKind::NotStarted, told))
                }
            }
        });
        self.aborts.insert((stage, attempt), abort);
        self.calls
            .push(Box::pin(async move { (stage, attempt, calling.await) }));
    }
}

/// The longest sleep, since the runtime's timers have a maximum.
const DAY: Duration = Duration::from_secs(86_400);

const fn kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::NotStarted => "not_started",
        FailureKind::Lost => "lost",
        FailureKind::Answered => "answered",
        FailureKind::Refused => "refused",
    }
}

/// The caller's header fields for the entry stage, without hop-by-hop ones and those that only gateways may set.
pub(super) fn of_client(headers: &ActixHeaders, peer: &Peer) -> HeaderMap {
    let bound = head::connection_options(headers);
    let mut out = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        let stays = match text {
            "connection"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "te"
            | "trailer"
            | "upgrade"
            | "http2-settings"
            | "expect"
            | "host"
            | "content-length"
            | "traceparent"
            // Only a gateway may state who called.
            | header::IDENTITY
            | header::JOB
            | header::REQUEST_ID => false,
            "x-forwarded-host" | "x-forwarded-proto" => peer.trusted,
            _ => {
                !text.starts_with("fdn-call-")
                    && !head::is_disguised(text)
                    && !bound.iter().any(|option| option.eq_ignore_ascii_case(text))
            }
        };
        if stays
            && let (Ok(name), Ok(value)) = (
                HeaderName::from_bytes(text.as_bytes()),
                HeaderValue::from_bytes(value.as_bytes()),
            )
        {
            out.append(name, value);
        }
    }
    if peer.secure {
        out.entry(head::FORWARDED_PROTO)
            .or_insert(HeaderValue::from_static("https"));
    }
    out
}
