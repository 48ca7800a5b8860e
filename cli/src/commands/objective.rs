//! `fdn objective`.

use fdn_core::rollout::{ObjectiveInfo, RolloutInfo};
use serde::Serialize;

use super::client;
use crate::args::{ObjectiveCommand, OneAppArgs, SetObjectiveArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, table, time};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &ObjectiveCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        ObjectiveCommand::Show(args) => show(args, env, console).await,
        ObjectiveCommand::Set(args) => set(args, env, console).await,
        ObjectiveCommand::Clear(args) => {
            let client = client(&args.connect, env)?;
            client.clear_objective(&args.app).await?;
            console.line(&format!("versions of {} are no longer watched", args.app))
        }
    }
}

async fn show(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let info = client(&args.connect, env)?.objective(&args.app).await?;
    console.report(args.output.output, &ObjectiveReport { info: &info })
}

async fn set(
    args: &SetObjectiveArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let info = client.set_objective(&args.app, &args.objective()).await?;
    console.report(args.output.output, &ObjectiveReport { info: &info })
}

#[derive(Serialize)]
#[serde(transparent)]
struct ObjectiveReport<'a> {
    info: &'a ObjectiveInfo,
}

impl Report for ObjectiveReport<'_> {
    fn text(&self, _: bool) -> String {
        let mut text = match &self.info.objective {
            None => format!(
                "{} has no objective; versions are not watched\n",
                self.info.app
            ),
            Some(objective) => {
                let bound = |bound: Option<String>| bound.unwrap_or_else(|| "any".to_owned());
                let cell = |name: &str, value: String| vec![name.to_owned(), value];
                table(
                    &[],
                    [
                        cell(
                            "errors",
                            bound(objective.error_percent.map(|p| format!("at most {p} %"))),
                        ),
                        cell(
                            "p99",
                            bound(objective.p99_ms.map(|ms| format!("at most {ms} ms"))),
                        ),
                        cell("window", objective.window.to_string()),
                        cell("minimum calls", objective.minimum_calls.to_string()),
                    ],
                )
            }
        };
        if let Some(rollout) = &self.info.rollout {
            text.push_str(&rollout_summary(rollout));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.info.app.to_string()]
    }
}

/// How well a version meets its objective, in one line.
pub(super) fn rollout_summary(rollout: &RolloutInfo) -> String {
    let RolloutInfo {
        version,
        baseline,
        state,
        since,
        calls,
        failures,
        reason,
    } = rollout;
    format!(
        "{version} against {baseline} is {} since {}: {reason} ({calls} calls, {failures} failed)\n",
        state.as_str(),
        time(*since)
    )
}
