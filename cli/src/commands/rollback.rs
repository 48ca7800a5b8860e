//! `fdn rollback`.

use fdn_core::{AppName, ErrorCode};

use super::describe::AppReport;
use super::{client, wait};
use crate::args::RollbackArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::Format;

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the nodes are not ready in time.
pub async fn run(
    args: &RollbackArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    // Which version is the one before the current changes with each rollback: of two people who go back at once, the second would undo what the
    // first did, and is refused instead. A version that is named is the same for both.
    let tag = match args.version {
        None => tag(&client, &args.name).await?,
        Some(_) => None,
    };
    let mut detail = client.rollback(&args.name, args.version, tag).await?;
    let people = matches!(args.output.output, Format::Table | Format::Wide);
    if people {
        console.line(&format!("{} is now {}", args.name, detail.summary.version))?;
    }
    if args.wait.waits() {
        detail = wait::until_ready(
            &client,
            &args.name,
            detail.summary.revision,
            args.wait.timeout,
            console,
        )
        .await?;
        if people {
            let count = detail.summary.nodes_ready;
            console.line(&format!(
                "ready on {count} node{}",
                if count == 1 { "" } else { "s" }
            ))?;
        }
    }
    if people {
        Ok(())
    } else {
        console.report(
            args.output.output,
            &AppReport {
                detail: &detail,
                now: fdn_service::now(),
            },
        )
    }
}

/// The app's present entity tag; `None` for a token that may deploy but not look, with which the rollback has no condition.
async fn tag(client: &Client, app: &AppName) -> Result<Option<String>, CliError> {
    match client.app_tag(app).await {
        Err(CliError::Problem(problem)) if problem.code == ErrorCode::Forbidden => Ok(None),
        other => other,
    }
}
