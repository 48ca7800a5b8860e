//! `fdn key`.

use fdn_core::Timestamp;
use fdn_core::policy::api::{CreateKey, KeyInfo};

use super::client;
use super::page::left;
use crate::args::{CreateKeyArgs, KeyCommand, OneAppArgs, RevokeKeyArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &KeyCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        KeyCommand::Create(args) => create(args, env, console).await,
        KeyCommand::List(args) => list(args, env, console).await,
        KeyCommand::Revoke(args) => revoke(args, env, console).await,
    }
}

async fn create(
    args: &CreateKeyArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = CreateKey {
        name: args.name.clone(),
        ttl: args.ttl,
    };
    let made = client(&args.connect, env)?
        .create_key(&args.app, &request)
        .await?;
    match args.output.output {
        // Only the key goes to standard output, so that it can be redirected to a file.
        Format::Table | Format::Wide | Format::Name => {
            console.line(&made.key)?;
            console.note(&format!(
                "this is the only time that it is shown; take it back with: fdn key revoke {} {}",
                args.app, made.info.id
            ));
            Ok(())
        }
        Format::Json => {
            let text = serde_json::to_string_pretty(&made);
            console.line(&text.map_err(|e| CliError::Output(std::io::Error::other(e)))?)
        }
        Format::Yaml => {
            let text = serde_norway::to_string(&made);
            let text = text.map_err(|e| CliError::Output(std::io::Error::other(e)))?;
            console.line(text.trim_end())
        }
    }
}

async fn list(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let keys = client(&args.connect, env)?.keys(&args.app).await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &keys,
            nothing: "no keys; make one with: fdn key create APP --name NAME",
            now: fdn_service::now(),
        },
    )
}

async fn revoke(
    args: &RevokeKeyArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    client(&args.connect, env)?
        .revoke_key(&args.app, args.key)
        .await?;
    console.line(&format!("took {} back", args.key))
}

impl Row for KeyInfo {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "STATE", "ENDS", "AGE", "BY"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let state = match (self.revoked_at, self.counts(now)) {
            (Some(_), _) => "taken back",
            (None, true) => "counts",
            (None, false) => "over",
        };
        vec![
            self.id.to_string(),
            self.name.to_string(),
            state.to_owned(),
            self.expires_at
                .map_or_else(|| "-".to_owned(), |end| left(end, now)),
            age(self.created_at, now),
            self.created_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
