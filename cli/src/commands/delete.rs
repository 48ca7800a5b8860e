//! `fdn delete`.

use fdn_core::VersionNumber;

use super::{client, each, wait};
use crate::args::DeleteArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;

/// Runs the command.
///
/// # Errors
/// When the user declines, the controller refuses or cannot be reached, or the nodes still have the app after the timeout.
pub async fn run(
    args: &DeleteArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    if let Some(version) = args.only {
        return delete_version(args, version, &client, console).await;
    }
    if !args.yes {
        let names: Vec<String> = args.names.iter().map(ToString::to_string).collect();
        let question = format!(
            "delete {} with all versions at {}?",
            names.join(", "),
            client.place()
        );
        input::confirm(console, &question)?;
    }
    let made = each(&args.names, console, async |name| {
        let deleted = client.delete(name).await;
        deleted.map(|()| format!("deleted {name}"))
    })
    .await;
    // That nobody reads what was said is no reason not to wait: a node that is late must be told of by the exit code.
    let all = matches!(made, Ok(()) | Err(CliError::Output(_)));
    if all && args.wait.waits() {
        wait::until_gone(&client, &args.names, args.wait.timeout, console).await?;
    }
    made
}

async fn delete_version(
    args: &DeleteArgs,
    version: VersionNumber,
    client: &Client,
    console: &mut Console,
) -> Result<(), CliError> {
    let [name] = args.names.as_slice() else {
        return Err(CliError::Usage(
            "--only goes with one app: versions of different apps have nothing to do with each other"
                .to_owned(),
        ));
    };
    if !args.yes {
        let question = format!("delete {version} of {name} at {}?", client.place());
        input::confirm(console, &question)?;
    }
    client.delete_version(name, version).await?;
    console.line(&format!("deleted {version} of {name}"))
}
