//! Builds spans from the records of ended calls, without measurements of its own.
//!
//! ```text
//! GET shop                        (server)  at the gateway that received the call: from the request's head to the response's last byte
//! ├─ stage resize                 (client)  an attempt at a workflow's stage, as seen by the gateway that leads the run
//! │  └─ POST shop/resize          (server)  the same attempt, as seen by the gateway that runs the stage, in whatever cluster
//! │     ├─ queue                            until admission, including the start of an instance if one was started
//! │     │  └─ place                         finding room for an instance in the cluster: the node and the scheduling stages
//! │     ├─ start                            until the call had its sandbox
//! │     └─ execute                          while the call had its sandbox
//! ```

use std::sync::Arc;
use std::time::Instant;

use fdn_core::runs::{AttemptOutcome, RunAttempt, RunInfo, RunStatus};
use fdn_core::usage::{CallRecord, UsageOutcome};
use fdn_core::{AppName, Revision};

use super::otlp::{Attribute, CLIENT, INTERNAL, SERVER, Span, Status};
use super::{EndedCall, nanos};
use crate::gateway::trace::Trace;
use crate::peers::Placement;

/// What has ended.
#[derive(Debug)]
pub enum EndedWork {
    /// A call that ran here.
    Call(Box<RecordedCall>),
    /// A run of a workflow that was led here.
    Run(Box<LedRun>),
    /// A call for which nothing ran here, because it was refused or forwarded.
    Unserved(Box<UnservedCall>),
}

/// A call that ran here.
#[derive(Debug)]
pub struct RecordedCall {
    /// The call's record.
    pub record: CallRecord,
    /// When the request arrived.
    pub arrived: Instant,
    /// How the instance started for it was placed, if one was.
    pub placement: Option<Arc<Placement>>,
}

/// A run of a workflow that was led here.
#[derive(Debug)]
pub struct LedRun {
    /// The run as it ended.
    pub run: RunInfo,
    /// The request's method.
    pub method: String,
    /// The response's status, if there was a response.
    pub status: Option<u16>,
    /// When the request arrived.
    pub arrived: Instant,
    /// The exported attempts, as many as there is room for.
    pub attempts: Vec<Attempt>,
}

/// An attempt at a stage.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The stage's index in the run.
    pub stage: usize,
    /// The attempt's number.
    pub attempt: u32,
    /// The trace context of its span.
    pub trace: Trace,
    /// When it was sent.
    pub begun: Instant,
    /// When it ended; `None` if the run ended first.
    pub ended: Option<Instant>,
}

/// A call for which nothing ran here.
#[derive(Debug, Default)]
pub struct UnservedCall {
    /// The app, if one of that name exists.
    pub app: Option<AppName>,
    /// The served revision of the app.
    pub revision: Option<Revision>,
    /// The request id.
    pub request: String,
    /// The request's method.
    pub method: String,
    /// The response's status.
    pub status: u16,
    /// The outcome.
    pub outcome: &'static str,
    /// The error code, if the call was refused.
    pub code: Option<&'static str>,
    /// The cluster and node that answered, if the call was forwarded.
    pub served_by: Option<String>,
    /// When the request arrived, if known.
    pub arrived: Option<Instant>,
}

/// Adds the spans of a call. `id` generates ids for spans that nothing else refers to.
pub(super) fn add(ended: &EndedCall, id: &mut dyn FnMut() -> u64, out: &mut Vec<Span>) {
    match &ended.what {
        EndedWork::Call(call) => recorded(ended, call, id, out),
        EndedWork::Run(run) => led(ended, run, out),
        EndedWork::Unserved(call) => out.push(answered(ended, call)),
    }
}

/// Start and end, in nanoseconds since 1970.
type Interval = (u64, u64);

/// The span that `trace` identifies.
fn span(trace: &Trace, name: String, kind: u8, (start, end): Interval) -> Span {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Span {
        trace_id: text(&trace.id()),
        span_id: text(&trace.span()),
        parent_span_id: trace.caller.as_ref().map(|caller| text(caller)),
        name,
        kind,
        start_time_unix_nano: start.to_string(),
        end_time_unix_nano: end.max(start).to_string(),
        attributes: Vec::new(),
        status: None,
    }
}

/// A child span, clamped to the interval `within`.
fn part(of: &Span, name: &str, (start, end): Interval, within: Interval, id: u64) -> Span {
    let start = start.clamp(within.0, within.1);
    Span {
        trace_id: of.trace_id.clone(),
        // An id of all zeros would mean none.
        span_id: format!("{:016x}", id | 1),
        parent_span_id: Some(of.span_id.clone()),
        name: name.to_owned(),
        kind: INTERNAL,
        start_time_unix_nano: start.to_string(),
        end_time_unix_nano: end.clamp(start, within.1).to_string(),
        attributes: Vec::new(),
        status: None,
    }
}

const fn micros(us: u64) -> u64 {
    us.saturating_mul(1000)
}

fn http(method: &str, status: Option<u16>, out: &mut Vec<Attribute>) {
    out.push(Attribute::text("http.request.method", method));
    out.extend(status.map(|status| Attribute::number("http.response.status_code", status)));
}

fn recorded(
    ended: &EndedCall,
    call: &RecordedCall,
    id: &mut dyn FnMut() -> u64,
    out: &mut Vec<Span>,
) {
    let used = &call.record.used;
    let facts = call.record.call.clone().unwrap_or_default();
    let start = ended.when.wall(call.arrived);
    let whole = (start, start.saturating_add(micros(facts.total_us)));
    let routed = &facts.routed;
    let name = match &routed.stage {
        Some(stage) => format!("{} {}/{stage}", facts.method, used.app),
        None => format!("{} {}", facts.method, used.app),
    };
    let mut root = span(&ended.trace, name, SERVER, whole);
    let about = &mut root.attributes;
    about.extend([
        Attribute::text("fdn.app", &used.app),
        Attribute::text("fdn.function", &used.function),
        Attribute::text("fdn.version", used.version),
        Attribute::text("fdn.outcome", used.outcome),
        Attribute::text("fdn.plan", routed.plan_use.as_str()),
        Attribute::text("fdn.request", &facts.request),
        Attribute::text("fdn.invocation", used.invocation),
    ]);
    let known = [
        routed
            .stage
            .as_ref()
            .map(|stage| Attribute::text("fdn.stage", stage)),
        routed
            .form
            .as_ref()
            .map(|form| Attribute::text("fdn.form", form)),
        routed
            .via
            .as_ref()
            .map(|node| Attribute::text("fdn.via", node)),
        routed
            .client
            .map(|client| Attribute::text("fdn.client", client)),
        routed
            .revision
            .map(|at| Attribute::number("fdn.revision", at.get())),
    ];
    about.extend(known.into_iter().flatten());
    http(&facts.method, facts.status, about);
    let is_well = matches!(used.outcome, UsageOutcome::Ok | UsageOutcome::Client);
    root.status = (!is_well).then(|| Status::failed(used.outcome.as_str()));
    let let_in = start.saturating_add(micros(facts.wait_us));
    let has_it = let_in.saturating_add(micros(facts.start_us));
    let ran = used.duration_us.saturating_sub(facts.start_us);
    let queue = part(&root, "queue", (start, let_in), whole, id());
    let place = call
        .placement
        .as_ref()
        .map(|placement| place(&queue, placement, ended, (start, let_in), id()));
    let begun = (facts.start_us > 0).then(|| part(&root, "start", (let_in, has_it), whole, id()));
    let executed = (has_it, has_it.saturating_add(micros(ran)));
    let execute = part(&root, "execute", executed, whole, id());
    out.extend([root, queue]);
    out.extend(place.into_iter().chain(begun));
    out.push(execute);
}

/// The span of finding room for the instance that was started for a call.
fn place(
    queue: &Span,
    placement: &Placement,
    ended: &EndedCall,
    within: Interval,
    id: u64,
) -> Span {
    let found = ended.when.wall(placement.found_at);
    let requested = found.saturating_sub(nanos(placement.took));
    let mut span = part(queue, "place", (requested, found), within, id);
    span.attributes = vec![
        Attribute::text("fdn.instance.node", &placement.node),
        Attribute::text("fdn.stages", placement),
    ];
    span
}

fn led(ended: &EndedCall, led: &LedRun, out: &mut Vec<Span>) {
    let run = &led.run;
    let whole = (ended.when.wall(led.arrived), ended.when.wall);
    let name = format!("{} {}", led.method, run.app);
    let mut root = span(&ended.trace, name, SERVER, whole);
    let word = status_word(run.status);
    root.attributes = vec![
        Attribute::text("fdn.app", &run.app),
        Attribute::text("fdn.outcome", word),
        Attribute::text("fdn.request", &run.request),
        Attribute::text("fdn.run", run.run),
        Attribute::number("fdn.revision", run.revision.get()),
    ];
    http(&led.method, led.status, &mut root.attributes);
    let is_well = matches!(run.status, RunStatus::Answered | RunStatus::Abandoned);
    root.status = (!is_well).then(|| Status::failed(word));
    out.push(root);
    for attempt in &led.attempts {
        let begun = ended.when.wall(attempt.begun);
        let over = attempt.ended.map_or(whole.1, |at| ended.when.wall(at));
        let Some(stage) = run.stages.get(attempt.stage) else {
            continue;
        };
        let name = format!("stage {}", stage.stage);
        let mut span = span(&attempt.trace, name, CLIENT, (begun, over));
        span.attributes = vec![
            Attribute::text("fdn.app", &run.app),
            Attribute::text("fdn.stage", &stage.stage),
            Attribute::number("fdn.attempt", attempt.attempt),
        ];
        let mut all = stage.attempts.iter();
        if let Some(info) = all.find(|info| info.attempt == attempt.attempt) {
            describe_attempt(info, &mut span);
        }
        out.push(span);
    }
}

/// Adds what is known of an attempt.
fn describe_attempt(info: &RunAttempt, span: &mut Span) {
    let word = attempt_word(info.outcome);
    span.attributes.extend([
        Attribute::text("fdn.to.cluster", &info.cluster),
        Attribute::text("fdn.outcome", word),
    ]);
    let node = info.node.as_ref();
    span.attributes
        .extend(node.map(|node| Attribute::text("fdn.to.node", node)));
    let is_well = matches!(
        info.outcome,
        AttemptOutcome::Running | AttemptOutcome::Done | AttemptOutcome::Cancelled
    );
    let why = || info.reason.clone().unwrap_or_else(|| word.to_owned());
    span.status = (!is_well).then(|| Status::failed(why()));
}

fn answered(ended: &EndedCall, call: &UnservedCall) -> Span {
    let start = call
        .arrived
        .map_or(ended.when.wall, |at| ended.when.wall(at));
    let app = call.app.as_ref().map_or("", |app| app.as_str());
    let name = format!("{} {app}", call.method);
    let whole = (start, ended.when.wall);
    let mut span = span(&ended.trace, name.trim_end().to_owned(), SERVER, whole);
    let known = [
        call.app.as_ref().map(|app| Attribute::text("fdn.app", app)),
        call.revision
            .map(|at| Attribute::number("fdn.revision", at.get())),
        call.code.map(|code| Attribute::text("fdn.error", code)),
        call.served_by
            .as_ref()
            .map(|by| Attribute::text("fdn.served_by", by)),
    ];
    span.attributes.extend(known.into_iter().flatten());
    span.attributes.extend([
        Attribute::text("fdn.outcome", call.outcome),
        Attribute::text("fdn.request", &call.request),
    ]);
    http(&call.method, Some(call.status), &mut span.attributes);
    span.status = (call.status >= 500).then(|| Status::failed(call.outcome));
    span
}

const fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "running",
        RunStatus::Answered => "answered",
        RunStatus::Failed => "failed",
        RunStatus::Late => "late",
        RunStatus::Abandoned => "abandoned",
        RunStatus::Lost => "lost",
    }
}

const fn attempt_word(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Running => "running",
        AttemptOutcome::Done => "done",
        AttemptOutcome::NotStarted => "not_started",
        AttemptOutcome::Lost => "lost",
        AttemptOutcome::Answered => "answered",
        AttemptOutcome::Refused => "refused",
        AttemptOutcome::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fdn_cluster::{Hop, Step};
    use fdn_core::usage::{CallFacts, UsageRecord};
    use fdn_core::{InvocationId, MebiBytes, Timestamp, VersionNumber};

    use super::super::Moment;
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn call(now: Instant) -> RecordedCall {
        let used = UsageRecord {
            invocation: InvocationId::from_uuid(uuid::Uuid::from_u128(1)),
            app: "thumbs".parse().expect("app"),
            function: "thumbs".parse().expect("function"),
            version: VersionNumber::FIRST,
            started_at: Timestamp(1),
            duration_us: 400_000,
            cpu_us: 10,
            memory_mib: MebiBytes(128),
            gpu_memory_mib: MebiBytes(0),
            egress_bytes: 7,
            outcome: UsageOutcome::FunctionEnded,
        };
        let facts = CallFacts {
            method: "GET".to_owned(),
            wait_us: 500_000,
            total_us: 900_000,
            ..CallFacts::default()
        };
        let hop = Hop {
            node: Some("n-2".parse().expect("node")),
            step: Step::Global,
            micros: 1500,
        };
        RecordedCall {
            record: CallRecord {
                used,
                call: Some(facts),
                noted: None,
            },
            arrived: now,
            placement: Some(Arc::new(Placement {
                took: ms(300),
                found_at: now + ms(400),
                node: "n-2".parse().expect("node"),
                hops: vec![hop],
                refused: 0,
            })),
        }
    }

    #[test]
    fn an_instance_that_was_started_for_a_call_is_seen_within_its_wait() {
        let now = Instant::now();
        let ended = EndedCall {
            trace: Trace::of(None, 1, 2),
            when: Moment {
                wall: 20_000_000_000,
                at: now + ms(10_000),
            },
            what: EndedWork::Call(Box::new(call(now))),
        };
        let (mut next, mut spans) = (16, Vec::new());
        let mut id = || {
            next += 2;
            next
        };
        add(&ended, &mut id, &mut spans);
        let seen: Vec<(&str, &str, &str)> = spans
            .iter()
            .map(|span| {
                let times = (&*span.start_time_unix_nano, &*span.end_time_unix_nano);
                (&*span.name, times.0, times.1)
            })
            .collect();
        let wanted = [
            ("GET thumbs", "10000000000", "10900000000"),
            ("queue", "10000000000", "10500000000"),
            ("place", "10100000000", "10400000000"),
            ("execute", "10500000000", "10900000000"),
        ];
        assert_eq!(seen, wanted);
        let parents: Vec<_> = spans.iter().map(|s| s.parent_span_id.as_ref()).collect();
        let (root, queue) = (Some(&spans[0].span_id), Some(&spans[1].span_id));
        assert_eq!(parents, [None, root, queue, root]);
        assert_eq!(spans[0].status, Some(Status::failed("function_ended")));
        let told = &spans[2].attributes;
        assert!(told.contains(&Attribute::text("fdn.instance.node", "n-2")));
        assert!(told.contains(&Attribute::text("fdn.stages", "global@n-2:1.500 on n-2")));
    }
}
