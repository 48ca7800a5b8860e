//! `fdn env`.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::SecretName;
use fdn_core::api::DeployResponse;
use fdn_core::app::ChangeEnv;
use serde::Serialize;

use super::client;
use crate::args::{EnvCommand, OneAppArgs, OutputArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, table};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &EnvCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        EnvCommand::Show(args) => show(args, env, console).await,
        EnvCommand::Set(args) => {
            let change = ChangeEnv {
                set: args.variables.iter().cloned().collect(),
                unset: BTreeSet::new(),
            };
            let client = client(&args.connect, env)?;
            changed(
                &client.change_env(&args.app, &change).await?,
                &args.output,
                console,
            )
        }
        EnvCommand::Unset(args) => {
            let change = ChangeEnv {
                set: BTreeMap::new(),
                unset: args.names.iter().cloned().collect(),
            };
            let client = client(&args.connect, env)?;
            changed(
                &client.change_env(&args.app, &change).await?,
                &args.output,
                console,
            )
        }
    }
}

fn changed(
    response: &DeployResponse,
    output: &OutputArgs,
    console: &mut Console,
) -> Result<(), CliError> {
    console.report(output.output, &EnvironmentReport { response })
}

/// A version that was derived from another one.
#[derive(Serialize)]
#[serde(transparent)]
struct EnvironmentReport<'a> {
    response: &'a DeployResponse,
}

impl Report for EnvironmentReport<'_> {
    fn text(&self, _: bool) -> String {
        let DeployResponse {
            app,
            version,
            unchanged,
            ..
        } = self.response;
        match unchanged {
            true => format!("{app} {version} has these variables already\n"),
            false => format!("{app} is now {version}\n"),
        }
    }

    fn names(&self) -> Vec<String> {
        vec![self.response.version.to_string()]
    }
}

async fn show(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let detail = client(&args.connect, env)?.app(&args.app).await?;
    let current = detail.summary.version;
    let version = detail.versions.into_iter().find(|v| v.version == current);
    let variables = version.map(|v| v.manifest.env).unwrap_or_default();
    console.report(args.output.output, &Variables { variables })
}

/// Variables as a table.
#[derive(Serialize)]
#[serde(transparent)]
struct Variables {
    variables: BTreeMap<SecretName, String>,
}

impl Report for Variables {
    fn text(&self, _: bool) -> String {
        if self.variables.is_empty() {
            return "no variables\n".to_owned();
        }
        let rows = self.variables.iter();
        let rows = rows.map(|(name, value)| vec![name.to_string(), value.clone()]);
        table(&["NAME", "VALUE"], rows)
    }

    fn names(&self) -> Vec<String> {
        self.variables.keys().map(ToString::to_string).collect()
    }
}
