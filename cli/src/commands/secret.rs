//! `fdn secret`.

use fdn_core::Timestamp;
use fdn_core::app::{SecretInfo, SetSecret};
use serde::Serialize;

use super::client;
use crate::args::{OneAppArgs, OneSecretArgs, SecretCommand, SetSecretArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Listing, Report, Row, age};

/// Runs the command.
///
/// # Errors
/// When the value cannot be read, or the controller refuses or cannot be reached.
pub async fn run(
    command: &SecretCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        SecretCommand::Set(args) => set(args, env, console).await,
        SecretCommand::List(args) => list(args, env, console).await,
        SecretCommand::Remove(args) => remove(args, env, console).await,
    }
}

async fn set(
    args: &SetSecretArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let value = SetSecret {
        value: input::secret_value(&args.file)?,
        dry_run: false,
    };
    let client = client(&args.connect, env)?;
    let info = client.set_secret(&args.app, &args.name, &value).await?;
    console.report(args.output.output, &Set { info: &info })
}

/// A secret that was set.
#[derive(Serialize)]
#[serde(transparent)]
struct Set<'a> {
    info: &'a SecretInfo,
}

impl Report for Set<'_> {
    fn text(&self, _: bool) -> String {
        let SecretInfo {
            name,
            revision,
            used,
            ..
        } = self.info;
        let hint = if *used {
            "running functions get it now"
        } else {
            "no function gets it before a version names it in `secrets`"
        };
        format!("{name} is set (revision {revision}); {hint}\n")
    }

    fn names(&self) -> Vec<String> {
        vec![self.info.name.to_string()]
    }
}

async fn list(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let secrets = client(&args.connect, env)?.secrets(&args.app).await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &secrets,
            nothing: "no secrets; set one with: fdn secret set APP NAME --file FILE",
            now: fdn_service::now(),
        },
    )
}

async fn remove(
    args: &OneSecretArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    client(&args.connect, env)?
        .remove_secret(&args.app, &args.name)
        .await?;
    console.line(&format!("removed {}", args.name))
}

impl Row for SecretInfo {
    const COLUMNS: &'static [&'static str] = &["NAME", "USED", "REVISION", "AGE", "BY"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            if self.used { "yes" } else { "no" }.to_owned(),
            self.revision.to_string(),
            age(self.updated_at, now),
            self.updated_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
