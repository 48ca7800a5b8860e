//! `fdn workflow`: validates, deploys and shows workflows.

use std::io::Read;
use std::path::Path;

use fdn_core::ErrorCode;
use fdn_core::api::WorkflowDetail;
use fdn_core::workflow::TEXT_MAX;
use serde::Serialize;

use super::{client, wait};
use crate::args::{WorkflowCommand, WorkflowDeployArgs, WorkflowFileArgs, WorkflowShowArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Report, indented, table};

/// Runs the command.
///
/// # Errors
/// When the file cannot be read, the workflow is rejected, or the controller cannot be reached.
pub async fn run(
    command: &WorkflowCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        WorkflowCommand::Validate(args) => validate(args, env, console).await,
        WorkflowCommand::Deploy(args) => deploy(args, env, console).await,
        WorkflowCommand::Show(args) => show(args, env, console).await,
    }
}

async fn validate(
    args: &WorkflowFileArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let text = read(&args.file)?;
    let client = client(&args.connect, env)?;
    let tenant = args.tenant.as_ref();
    let detail = client.put_workflow(&args.name, tenant, text, true).await?;
    console.report(args.output.output, &WorkflowReport(&detail))
}

async fn deploy(
    args: &WorkflowDeployArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let WorkflowDeployArgs { file, wait } = args;
    let text = read(&file.file)?;
    let client = client(&file.connect, env)?;
    let tenant = file.tenant.as_ref();
    let detail = client.put_workflow(&file.name, tenant, text, false).await?;
    let people = matches!(file.output.output, Format::Table | Format::Wide);
    if people {
        let what = if detail.unchanged { "was" } else { "is now" };
        console.line(&format!("{} {what} {}", file.name, detail.version))?;
    }
    if let Some(revision) = detail.revision.filter(|_| wait.waits()) {
        let ready = wait::until_ready(&client, &file.name, revision, wait.timeout, console).await?;
        if people {
            let count = ready.summary.nodes_ready;
            let s = if count == 1 { "" } else { "s" };
            console.line(&format!("ready on {count} node{s}"))?;
        }
    }
    console.report(file.output.output, &WorkflowReport(&detail))
}

async fn show(
    args: &WorkflowShowArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let detail = client(&args.connect, env)?.workflow(&args.name).await?;
    console.report(args.output.output, &WorkflowReport(&detail))
}

/// Reads a workflow, limited to the size that a controller accepts.
fn read(path: &Path) -> Result<String, CliError> {
    let failed = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
        code: ErrorCode::InputInvalid,
    };
    let most = TEXT_MAX as u64 + 1;
    let mut text = String::new();
    let result = if path == Path::new("-") {
        std::io::stdin().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
    };
    result.map_err(|error| failed(error.to_string()))?;
    if text.len() > TEXT_MAX {
        return Err(failed(format!("it is longer than {TEXT_MAX} bytes")));
    }
    Ok(text)
}

/// A workflow in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct WorkflowReport<'a>(pub &'a WorkflowDetail);

impl Report for WorkflowReport<'_> {
    fn text(&self, _wide: bool) -> String {
        let detail = self.0;
        let head = [
            ["app".to_owned(), detail.app.to_string()],
            ["host".to_owned(), detail.host.to_string()],
            ["timeout".to_owned(), detail.definition.timeout.to_string()],
        ];
        let mut text = table(&[], head.map(Vec::from));
        let entries: Vec<String> = detail.placement.keys().map(ToString::to_string).collect();
        let mut columns = vec!["STAGE", "FUNCTION", "VERSION", "NEEDS"];
        columns.extend(entries.iter().map(String::as_str));
        let workflow = &detail.definition.workflow;
        let rows = workflow.stages().iter().map(|stage| {
            let needs = workflow.edges().iter().filter(|edge| edge.to == stage.name);
            let needs: Vec<String> = needs.map(|edge| edge.from.to_string()).collect();
            let mut row = vec![
                stage.name.to_string(),
                stage.function.to_string(),
                stage.version.to_string(),
                if needs.is_empty() {
                    "-".to_owned()
                } else {
                    needs.join(",")
                },
            ];
            for places in detail.placement.values() {
                let place = places.iter().find(|place| place.stage == stage.name);
                row.push(place.map_or_else(|| "-".to_owned(), |place| place.cluster.to_string()));
            }
            row
        });
        text.push('\n');
        text.push_str(&indented(&table(&columns, rows), 2));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.app.to_string()]
    }
}
