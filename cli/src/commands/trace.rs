//! `fdn trace`: shows one call as a whole: where it arrived and where it ran, by which plan, binding and revision, and why there.

use std::time::Duration;

use fdn_core::AppName;
use fdn_core::api::Explanation;
use fdn_core::predicted::Compared;
use fdn_core::runs::{RunAttempt, RunInfo, RunStage};
use fdn_core::trace::{CallPlace, CallTrace, TracedCall};
use serde::Serialize;

use super::client;
use super::explain::{PLANNED, planned};
use crate::args::TraceArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, indented, millis, table, time};

/// The most apps that are searched if none is named: each search asks every node.
const APPS: usize = 20;

/// Runs the command.
///
/// # Errors
/// When the call does not exist, or the controller refuses or cannot be reached.
pub async fn run(
    args: &TraceArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let found = match &args.app {
        Some(app) => client.trace(app, &args.request, args.client).await?,
        None => search_all_apps(&client, args).await?,
    };
    console.report(args.output.output, &TraceReport(&found))
}

/// Searches for the call in one app after the other.
async fn search_all_apps(client: &Client, args: &TraceArgs) -> Result<CallTrace, CliError> {
    let apps = client.apps(None, None).await?;
    let apps: Vec<AppName> = apps.into_iter().map(|app| app.app).collect();
    if apps.len() > APPS {
        let text = format!("there are {} apps: name one with --app", apps.len());
        return Err(CliError::Usage(text));
    }
    let mut last = CliError::Usage("there is no app".to_owned());
    for app in &apps {
        match client.trace(app, &args.request, args.client).await {
            Ok(found) => return Ok(found),
            Err(error) if is_absent(&error) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn is_absent(error: &CliError) -> bool {
    matches!(error, CliError::Problem(problem) if problem.code == fdn_core::ErrorCode::NotFound)
}

/// A call in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct TraceReport<'a>(pub &'a CallTrace);

const LEGEND: &str = "\
WAIT until it was let in; START until it had an instance; RUN until the head of its answer; REST until all was sent and the function had
ended; all in milliseconds
";

impl Report for TraceReport<'_> {
    fn text(&self, wide: bool) -> String {
        let traced = self.0;
        let mut text = table(&[], head(traced));
        text.push('\n');
        let rows = traced.calls.iter().map(call);
        text.push_str(&indented(&table(&CALLS, rows), 2));
        let mut rows = traced.calls.iter().flat_map(predicted).peekable();
        if rows.peek().is_some() {
            text.push_str("\nplan and this call\n\n");
            text.push_str(&indented(&table(&COMPARED, rows), 2));
        }
        if let Some(run) = &traced.run {
            text.push_str("\nstages\n\n");
            text.push_str(&indented(&table(&STAGES, stages(run, traced)), 2));
        }
        let plan = traced.explained.iter().flat_map(|why| &why.plan);
        let mut then = plan
            .flat_map(|plan| &plan.candidates)
            .map(planned)
            .peekable();
        if then.peek().is_some() {
            text.push_str("\nwhen it was planned\n\n");
            text.push_str(&indented(&table(&PLANNED, then), 2));
        }
        if wide {
            text.push('\n');
            text.push_str(&indented(LEGEND, 2));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        let calls = self.0.calls.iter();
        calls.map(|call| call.call.invocation.to_string()).collect()
    }
}

/// The properties of the call as a whole.
fn head(traced: &CallTrace) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("app", traced.app.to_string());
    row("request", traced.request.clone());
    row("trace", traced.trace.clone());
    row("arrived", time(traced.started_at()));
    let client = traced.client.map(|client| client.to_string());
    row("client", client.unwrap_or_else(|| "not known".to_owned()));
    row("gateway", place(&traced.gateway));
    if let Some(why) = &traced.explained {
        row("DNS gives", bound(why));
        if let Some(plan) = &why.plan {
            let (at, revision) = (time(plan.planned_at), plan.revision);
            row(
                "planned",
                format!("{at} (revision {revision}): {}", plan.reason),
            );
        }
        let chosen = why.chosen.as_ref().map(ToString::to_string);
        let chosen = chosen.unwrap_or_else(|| "no cluster".to_owned());
        row("chosen now", format!("{chosen}: {}", why.reason));
    }
    let told = traced.told;
    row(
        "told",
        format!(
            "nodes revision {}, DNS servers revision {}",
            told.nodes, told.dns
        ),
    );
    if traced.differs.is_empty() {
        row("differs", "in nothing from what holds now".to_owned());
    }
    for (at, text) in traced.differs.iter().enumerate() {
        row(if at == 0 { "differs" } else { "" }, text.clone());
    }
    if traced.others > 0 {
        let text = format!("{} older calls have the same request id", traced.others);
        row("others", text);
    }
    if !traced.silent.is_empty() {
        let silent: Vec<String> = traced.silent.iter().map(ToString::to_string).collect();
        row("without answer", silent.join(", "));
    }
    rows
}

fn place(place: &CallPlace) -> String {
    match &place.cluster {
        Some(cluster) => format!("{} of {cluster}", place.node),
        None => format!("{}, which is not alive any more", place.node),
    }
}

/// The binding of the client in DNS.
fn bound(why: &Explanation) -> String {
    match &why.bound {
        Some(bound) => format!(
            "{} for clients in {} (revision {})",
            bound.cluster, bound.prefix, bound.revision
        ),
        None => format!(
            "the nearest living cluster to {}, until a plan is made for it",
            why.client
        ),
    }
}

const CALLS: [&str; 12] = [
    "NODE", "CLUSTER", "STAGE", "VERSION", "REVISION", "STATUS", "OUTCOME", "WAIT", "START", "RUN",
    "REST", "FROM",
];

/// One call: where it ran, which version, and how long each part took.
fn call(traced: &TracedCall) -> Vec<String> {
    let (line, none) = (&traced.call, || "-".to_owned());
    let took = |us: u64| millis(Duration::from_micros(us).into());
    vec![
        line.node.to_string(),
        traced
            .cluster
            .as_ref()
            .map_or_else(none, ToString::to_string),
        line.routed
            .stage
            .as_ref()
            .map_or_else(none, ToString::to_string),
        line.version.to_string(),
        line.routed
            .revision
            .map_or_else(none, |revision| revision.to_string()),
        line.status.map_or_else(none, |status| status.to_string()),
        line.outcome.to_string(),
        took(line.wait_us),
        took(line.start_us),
        took(line.head_us),
        took(line.rest_us()),
        line.routed
            .via
            .as_ref()
            .map_or_else(none, ToString::to_string),
    ]
}

const COMPARED: [&str; 5] = ["NODE", "PHASE", "PREDICTED", "THIS CALL", "ERROR"];

/// The plan's estimates beside the measured times.
fn predicted(traced: &TracedCall) -> Vec<Vec<String>> {
    let row = |phase: &str, term: &Compared| {
        let none = || "-".to_owned();
        vec![
            traced.call.node.to_string(),
            phase.to_owned(),
            millis(term.predicted),
            term.actual.map_or_else(none, millis),
            term.error()
                .map_or_else(none, |error| format!("{:+.1} %", error * 100.0)),
        ]
    };
    let terms = traced.predicted.iter();
    terms
        .flat_map(|terms| {
            [
                row("queue", &terms.queue),
                row("execution", &terms.execution),
            ]
        })
        .collect()
}

const STAGES: [&str; 7] = [
    "STAGE", "ATTEMPT", "CLUSTER", "NODE", "PLANNED", "OUTCOME", "MS",
];

/// Every attempt at a stage, and the cluster that the current plan assigns to the stage.
fn stages(run: &RunInfo, traced: &CallTrace) -> Vec<Vec<String>> {
    let plan = traced.explained.as_ref().and_then(|why| why.plan.as_ref());
    let row = |stage: &RunStage, attempt: &RunAttempt| {
        let none = || "-".to_owned();
        let planned = plan.and_then(|plan| plan.stages.get(&stage.stage));
        let took = attempt
            .ended_at
            .map(|end| millis(end.since(attempt.started_at).into()));
        vec![
            stage.stage.to_string(),
            attempt.attempt.to_string(),
            attempt.cluster.to_string(),
            attempt.node.as_ref().map_or_else(none, ToString::to_string),
            planned.map_or_else(none, ToString::to_string),
            outcome(attempt),
            took.unwrap_or_else(none),
        ]
    };
    let mut rows = Vec::new();
    for stage in &run.stages {
        rows.extend(stage.attempts.iter().map(|attempt| row(stage, attempt)));
    }
    rows
}

fn outcome(attempt: &RunAttempt) -> String {
    let word = serde_json::to_value(attempt.outcome).ok();
    let word = word.and_then(|word| word.as_str().map(str::to_owned));
    let word = word.unwrap_or_else(|| "-".to_owned());
    match &attempt.reason {
        Some(reason) => format!("{word}: {reason}"),
        None => word,
    }
}
