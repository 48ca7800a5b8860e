//! `fdn domain`.

use fdn_core::Timestamp;
use fdn_core::domain::{AddDomain, DomainInfo};
use serde::Serialize;

use super::client;
use super::page::left;
use crate::args::{DomainCommand, OneAppArgs, OneDomainArgs, RemoveDomainArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Listing, Report, Row, age, table};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &DomainCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        DomainCommand::Add(args) => add(args, env, console).await,
        DomainCommand::Verify(args) => verify(args, env, console).await,
        DomainCommand::List(args) => list(args, env, console).await,
        DomainCommand::Remove(args) => remove(args, env, console).await,
    }
}

async fn add(
    args: &OneDomainArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = AddDomain {
        host: args.host.clone(),
    };
    let info = client(&args.connect, env)?
        .add_domain(&args.app, &request)
        .await?;
    console.report(args.output.output, &Records { info: &info })?;
    console.note(&format!(
        "set these records, then: fdn domain verify {} {}",
        args.app, args.host
    ));
    Ok(())
}

/// The DNS records for a domain.
#[derive(Serialize)]
#[serde(transparent)]
struct Records<'a> {
    info: &'a DomainInfo,
}

impl Report for Records<'_> {
    fn text(&self, _: bool) -> String {
        let rows = self.info.records.iter().map(|record| {
            vec![
                record.name.clone(),
                record.kind.clone(),
                record.value.clone(),
                record.purpose.clone(),
            ]
        });
        table(&["NAME", "TYPE", "VALUE", "FOR"], rows)
    }

    fn names(&self) -> Vec<String> {
        vec![self.info.host.to_string()]
    }
}

async fn verify(
    args: &OneDomainArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let info = client.verify_domain(&args.app, &args.host).await?;
    console.report(args.output.output, &Verified { info: &info })
}

/// A verified domain.
#[derive(Serialize)]
#[serde(transparent)]
struct Verified<'a> {
    info: &'a DomainInfo,
}

impl Report for Verified<'_> {
    fn text(&self, _: bool) -> String {
        format!("{} answers to {}\n", self.info.app, self.info.host)
    }

    fn names(&self) -> Vec<String> {
        vec![self.info.host.to_string()]
    }
}

async fn list(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let domains = client(&args.connect, env)?.domains(&args.app).await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &domains,
            nothing: "no domains; ask for one with: fdn domain add APP HOST",
            now: fdn_service::now(),
        },
    )
}

async fn remove(
    args: &RemoveDomainArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    client.remove_domain(&args.app, &args.host).await?;
    console.line(&format!("{} was let go", args.host))
}

impl Row for DomainInfo {
    const COLUMNS: &'static [&'static str] = &["HOST", "STATE", "ENDS", "PROBLEM", "AGE", "BY"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.host.to_string(),
            self.state.as_str().to_owned(),
            self.ends_at
                .map_or_else(|| "-".to_owned(), |end| left(end, now)),
            self.problem.clone().unwrap_or_else(|| "-".to_owned()),
            age(self.created_at, now),
            self.created_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.host.to_string()
    }
}
