//! `fdn dns txt`: manages text records of names in the zone, such as proofs of ownership for certificate authorities.

use fdn_core::Timestamp;
use fdn_core::txt::{AddTxt, SetTxt, TxtInfo};
use serde::Serialize;

use super::client;
use super::page::left;
use crate::args::{AddTxtArgs, ListTxtArgs, RemoveTxtArgs, SetTxtArgs, TxtCommand};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Listing, Report, Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &TxtCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        TxtCommand::Set(args) => set(args, env, console).await,
        TxtCommand::Add(args) => add(args, env, console).await,
        TxtCommand::Remove(args) => remove(args, env, console).await,
        TxtCommand::List(args) => list(args, env, console).await,
    }
}

async fn set(args: &SetTxtArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let request = SetTxt {
        values: args.values.clone(),
        ttl: args.ttl,
        expires_in: args.expires_in,
    };
    let info = client(&args.connect, env)?
        .set_txt(&args.name, &request)
        .await?;
    console.report(args.output.output, &Records(&info))
}

async fn add(args: &AddTxtArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let request = AddTxt {
        value: args.value.clone(),
        ttl: args.ttl,
        expires_in: args.expires_in,
    };
    let info = client(&args.connect, env)?
        .add_txt(&args.name, &request)
        .await?;
    console.report(args.output.output, &Records(&info))
}

async fn remove(
    args: &RemoveTxtArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    client.remove_txt(&args.name, args.value.as_deref()).await?;
    console.line(&match &args.value {
        Some(value) => format!("{value} was taken away from {}", args.name),
        None => format!("{} has no text records of its own any more", args.name),
    })
}

async fn list(
    args: &ListTxtArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let records = client.txt(args.tenant.as_ref()).await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &records,
            nothing: "no text records; set some with: fdn dns txt set NAME VALUE",
            now: fdn_service::now(),
        },
    )
}

/// The text records of a name in zone file format.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Records<'a>(pub &'a TxtInfo);

impl Report for Records<'_> {
    fn text(&self, _: bool) -> String {
        let TxtInfo {
            name, values, ttl, ..
        } = self.0;
        let seconds = ttl.as_millis() / 1000;
        let lines: Vec<String> = values
            .iter()
            .map(|value| format!("{name}. {seconds} IN TXT {}\n", quoted(value)))
            .collect();
        lines.concat()
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.name.to_string()]
    }
}

/// A character string in zone file format (RFC 1035, section 5.1).
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Row for TxtInfo {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "TTL", "ENDS", "VALUES", "APP", "CHANGED", "BY"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let values: Vec<String> = self.values.iter().map(|value| quoted(value)).collect();
        vec![
            self.name.to_string(),
            self.ttl.to_string(),
            or_none(self.expires_at.map(|end| left(end, now))),
            values.join(" "),
            or_none(self.app.as_ref().map(ToString::to_string)),
            age(self.updated_at, now),
            self.updated_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_in_a_zone_file() {
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted(r#"say "a\b""#), r#""say \"a\\b\"""#);
    }
}
