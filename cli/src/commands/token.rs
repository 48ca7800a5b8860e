//! `fdn token`: API tokens for tools.

use fdn_core::account::{ApiTokenInfo, CreateApiToken, CreatedApiToken};
use fdn_core::{Right, Timestamp};
use serde::Serialize;

use super::page::left;
use super::tenant::list;
use super::{client, each};
use crate::args::{ApiTokenCommand, CreateApiTokenArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Report, Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &ApiTokenCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        ApiTokenCommand::Create(args) => create(args, env, console).await,
        ApiTokenCommand::List(args) => {
            let rows = client(&args.connect, env)?.api_tokens().await?;
            let nothing = "you have no API token; make one: fdn token create NAME --scope look";
            list(args.output, &rows, nothing, console)
        }
        ApiTokenCommand::Revoke(args) => {
            let client = client(&args.connect, env)?;
            each(&args.ids, console, async |id| {
                let revoked = client.revoke_api_token(*id).await;
                revoked.map(|()| format!("took back {id}"))
            })
            .await
        }
    }
}

async fn create(
    args: &CreateApiTokenArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = CreateApiToken {
        name: args.name.clone(),
        scopes: args.scopes.iter().copied().collect(),
        tenant: args.tenant.clone(),
        ttl: args.ttl,
    };
    let made = client(&args.connect, env)?
        .create_api_token(&request)
        .await?;
    if args.output.output != Format::Table {
        return console.report(args.output.output, &TokenReport(&made));
    }
    // Only the token goes to standard output, so that it can be redirected to a file.
    console.line(&made.token)?;
    console.note(&format!(
        "{} is good for {}; it is not shown again",
        made.info.id, args.ttl
    ));
    Ok(())
}

/// A created token, for scripts.
#[derive(Serialize)]
#[serde(transparent)]
struct TokenReport<'a>(&'a CreatedApiToken);

impl Report for TokenReport<'_> {
    fn text(&self, _: bool) -> String {
        format!("{}\n", self.0.token)
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.info.id.to_string()]
    }
}

impl Row for ApiTokenInfo {
    const COLUMNS: &'static [&'static str] = &[
        "ID",
        "NAME",
        "SCOPES",
        "STATE",
        "ENDS",
        "LAST USED",
        "TENANT",
        "AGE",
    ];
    const NARROW: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let state = match (self.revoked_at, self.is_open(now)) {
            (Some(_), _) => "taken back",
            (None, true) => "open",
            (None, false) => "over",
        };
        let scopes: Vec<&str> = self
            .scopes
            .iter()
            .map(|right: &Right| right.as_str())
            .collect();
        vec![
            self.id.to_string(),
            self.name.clone(),
            scopes.join(","),
            state.to_owned(),
            left(self.expires_at, now),
            self.last_used_at
                .map_or_else(|| "never".to_owned(), |at| format!("{} ago", age(at, now))),
            self.tenant
                .map_or_else(|| "all".to_owned(), |tenant| tenant.to_string()),
            age(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
