//! `fdn calls`: recorded calls of an app, from the nodes that received them.

use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::usage::{CallLine, CallList, CallQuery};
use serde::Serialize;

use super::client;
use crate::args::CallsArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Listing, Report, Row, millis, size, time};

/// Runs the command.
///
/// # Errors
/// When the app does not exist, or the controller refuses or cannot be reached.
pub async fn run(
    args: &CallsArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let now = fdn_service::now().get();
    let ago = |span: u64| Timestamp(now.saturating_sub(span));
    let query = CallQuery {
        since: ago(args.since.as_millis()),
        until: args.until.map(|span| ago(span.as_millis())),
        status: args.status,
        outcome: args.outcome,
        version: args.version,
        request: args.request.clone(),
        trace: args.trace.clone(),
        limit: args.limit,
    };
    let found = client(&args.connect, env)?
        .calls(&args.name, &query)
        .await?;
    console.report(args.output.output, &Calls(&found))
}

/// Calls in text form.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Calls<'a>(pub &'a CallList);

impl Report for Calls<'_> {
    fn text(&self, wide: bool) -> String {
        let rows = Listing {
            rows: &self.0.calls,
            nothing: "no calls",
            now: Timestamp(0),
        };
        let mut text = rows.text(wide);
        if self.0.more {
            text.push_str("there are more: raise --limit, or ask for less\n");
        }
        if !self.0.silent.is_empty() {
            let silent: Vec<String> = self.0.silent.iter().map(ToString::to_string).collect();
            text.push_str(&format!("without answer: {}\n", silent.join(", ")));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.0.calls.iter().map(Row::name).collect()
    }
}

impl Row for CallLine {
    const COLUMNS: &'static [&'static str] = &[
        "TIME",
        "NODE",
        "VERSION",
        "STATUS",
        "OUTCOME",
        "MS",
        "CPU-MS",
        "SENT",
        "REQUEST",
        "METHOD",
        "WAIT-MS",
        "START-MS",
        "HEAD-MS",
        "INSTANCE-MS",
        "MEMORY",
        "FUNCTION",
        "TRACE",
        "CALL",
    ];
    const NARROW: usize = 9;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let took = |us: u64| millis(Duration::from_micros(us).into());
        vec![
            time(self.started_at),
            self.node.to_string(),
            match &self.routed.form {
                Some(form) => format!("{} {form}", self.version),
                None => self.version.to_string(),
            },
            self.status
                .map_or_else(|| "-".to_owned(), |status| status.to_string()),
            self.outcome.to_string(),
            took(self.total_us),
            took(self.cpu_us),
            size(self.egress_bytes),
            self.request.clone(),
            self.method.clone(),
            took(self.wait_us),
            took(self.start_us),
            took(self.head_us),
            took(self.duration_us),
            self.memory_mib.to_string(),
            self.function.to_string(),
            self.trace.clone(),
            self.invocation.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.invocation.to_string()
    }
}
