//! `fdn plan`: previews where clients would be sent, and how long their calls would take and what they would cost, before anything is deployed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fdn_core::preview::{PlanPreview, PlanRequest, PlannedGroup, WhatIfOutcome};
use fdn_core::workflow::Declaration;
use fdn_core::{ClientPrefix, ClusterId, Coded as _, ErrorCode, Millis};
use serde::Serialize;

use super::client;
use crate::args::PlanArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, indented, millis, table};

/// The largest file in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// When the file is not valid, or the controller refuses or cannot be reached.
pub async fn run(
    args: &PlanArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = request(args)?;
    let client = client(&args.connect, env)?;
    let preview = client.plan(&request, args.tenant.as_ref()).await?;
    console.report(args.output.output, &PreviewReport(&preview))
}

fn request(args: &PlanArgs) -> Result<PlanRequest, CliError> {
    let mut request = PlanRequest {
        app: args.app.clone(),
        clients: args.clients.clone(),
        rate: args.rate,
        duration: args.duration,
        memory: args.memory,
        answer: args.answer,
        what_if: args.what_if.clone(),
        ..PlanRequest::default()
    };
    let path = Path::new(&args.what);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => request.manifest = Some(crate::input::text(path, FILE_MAX)?),
        Some("yaml" | "yml" | "json") => {
            let text = crate::input::text(path, FILE_MAX)?;
            let declared = Declaration::parse(&text).map_err(|error| CliError::File {
                path: path.to_owned(),
                reason: error.to_string(),
                code: error.code(),
            })?;
            request.workflow = Some(declared);
        }
        _ if args.app.is_some() => {
            return Err(CliError::File {
                path: path.to_owned(),
                reason: "name a manifest (.toml) or a workflow (.yaml, .json)".to_owned(),
                code: ErrorCode::BadRequest,
            });
        }
        _ => request.app = Some(args.what.parse()?),
    }
    Ok(request)
}

/// A preview in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct PreviewReport<'a>(pub &'a PlanPreview);

const COLUMNS: [&str; 4] = ["CLIENTS", "CLUSTER", "LATENCY", "WHY"];
const STAGES: [&str; 3] = ["CLIENTS", "STAGE", "CLUSTER"];
/// The most clients that are named in one line.
const NAMED: usize = 3;

fn clients(group: &PlannedGroup) -> String {
    let named = group.clients.iter().take(NAMED).map(ToString::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match group.clients.len() {
        0 => "unknown".to_owned(),
        count if count > NAMED => format!("{named} and {} more", count - NAMED),
        _ => named,
    }
}

const CHANGES: [&str; 6] = ["CLIENTS", "NOW", "LATENCY", "THEN", "LATENCY", "CHANGE"];

/// Where clients go now and where they would go, grouped by equal changes.
fn changes(then: &[PlannedGroup], outcome: &WhatIfOutcome) -> String {
    type Place<'a> = (Option<&'a ClusterId>, Option<Millis>);
    fn place_of<'a>(groups: &'a [PlannedGroup], client: &ClientPrefix) -> Place<'a> {
        let group = groups.iter().find(|group| group.clients.contains(client));
        (
            group.map(|group| &group.cluster),
            group.and_then(|group| group.latency),
        )
    }
    let clients = outcome.before.iter().chain(then);
    let clients: BTreeSet<&ClientPrefix> = clients.flat_map(|group| &group.clients).collect();
    let mut ways: BTreeMap<(Place<'_>, Place<'_>), Vec<&ClientPrefix>> = BTreeMap::new();
    for client in clients {
        let way = (place_of(&outcome.before, client), place_of(then, client));
        ways.entry(way).or_default().push(client);
    }
    let rows = ways.into_iter().map(|((now, then), clients)| {
        let cluster = |place: Place<'_>| place.0.map_or("-".to_owned(), ToString::to_string);
        let latency = |place: Place<'_>| place.1.map_or("-".to_owned(), millis);
        let change = match (now.1, then.1) {
            (Some(now), Some(then)) => format!("{:+.2}", (then - now).get()),
            _ => "-".to_owned(),
        };
        let named = clients.iter().take(NAMED).map(ToString::to_string);
        let mut named = named.collect::<Vec<_>>().join(", ");
        if clients.len() > NAMED {
            named.push_str(&format!(" and {} more", clients.len() - NAMED));
        }
        vec![
            named,
            cluster(now),
            latency(now),
            cluster(then),
            latency(then),
            change,
        ]
    });
    let mut text = indented(&table(&CHANGES, rows), 2);
    text.push_str(&format!(
        "\nother apps  {} clients would be sent elsewhere, {} groups have no place\n",
        outcome.others_moved, outcome.others_unplaced
    ));
    text
}

impl Report for PreviewReport<'_> {
    fn text(&self, _: bool) -> String {
        let PlanPreview {
            groups,
            unplaced,
            price,
            rate,
            what_if,
            forms,
            ..
        } = self.0;
        let rows = groups.iter().map(|group| {
            let latency = group.latency.map_or_else(|| "-".to_owned(), millis);
            let (cluster, reason) = (group.cluster.to_string(), group.reason.clone());
            vec![clients(group), cluster, latency, reason]
        });
        let mut text = match groups.is_empty() {
            true => "no clients could be placed\n".to_owned(),
            false => table(&COLUMNS, rows),
        };
        if groups.iter().any(|group| group.stages.len() > 1) {
            let rows = groups.iter().flat_map(|group| {
                let stages = group.stages.iter();
                stages.map(|(stage, at)| vec![clients(group), stage.to_string(), at.to_string()])
            });
            text.push('\n');
            text.push_str(&indented(&table(&STAGES, rows), 2));
        }
        if let Some(outcome) = what_if {
            text.push('\n');
            text.push_str(&changes(groups, outcome));
        }
        for why in unplaced {
            text.push_str(&format!("not placed: {why}\n"));
        }
        text.push_str(&super::explain::forms(forms));
        let list = match &price.price_list {
            Some(list) => format!("by price list {list}, nothing free"),
            None => "no price list is in force".to_owned(),
        };
        text.push_str(&format!(
            "\nprice  {} for a million calls, {} for 30 days at {rate} calls/s ({list})\n",
            price.million, price.month
        ));
        text
    }

    fn names(&self) -> Vec<String> {
        let clusters = self.0.groups.iter().map(|group| group.cluster.to_string());
        clusters.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn of(words: &[&str]) -> Result<PlanRequest, CliError> {
        let cli = Cli::try_parse_from([&["fdn", "plan"], words].concat()).expect("valid");
        match cli.command {
            Command::Plan(args) => request(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_told_from_an_app() {
        let asked = of(&["hello", "--rate", "2.5", "--client", "203.0.113.0/24"]).expect("an app");
        assert_eq!(asked.app.expect("named").as_str(), "hello");
        assert_eq!((asked.rate, asked.clients.len()), (Some(2.5), 1));
        let folder = tempfile::tempdir().expect("folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let manifest = write("fdn.toml", "memory = \"64MiB\"\n");
        assert!(of(&[&manifest]).expect("a manifest").manifest.is_some());
        let flow = write("flow.yaml", "stages:\n  - name: a\n    function: hello\n");
        let asked = of(&[&flow, "--app", "flow"]).expect("a workflow");
        assert!(asked.workflow.is_some() && asked.app.is_some());
        let wrong = write("wrong.yaml", "stages: 5\n");
        let error = of(&[&wrong]).expect_err("no workflow");
        assert_eq!(error.code(), ErrorCode::WorkflowInvalid);
        assert!(of(&["absent.toml"]).is_err() && of(&["UP"]).is_err());
    }
}
