//! `fdn rollback`.

use super::describe::AppReport;
use super::{client, wait};
use crate::args::RollbackArgs;
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
    let mut detail = client.rollback(&args.name, args.version).await?;
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
