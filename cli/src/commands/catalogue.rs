//! `fdn catalogue`: lists ready-made functions, and deploys them by name.

use fdn_core::Timestamp;
use fdn_core::label::Labels;
use fdn_core::repository::{CatalogueEntry, DeployCatalogue};

use super::tenant::list;
use super::{client, deploy, target};
use crate::args::{CatalogueCommand, DeployCatalogueArgs};
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Row, size};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the nodes are not ready in time.
pub async fn run(
    command: &CatalogueCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        CatalogueCommand::List(args) => {
            let rows = client(&args.connect, env)?.catalogue().await?;
            list(args.output, &rows, "the catalogue is empty", console)
        }
        CatalogueCommand::Deploy(args) => run_deploy(args, env, console).await,
    }
}

async fn run_deploy(
    args: &DeployCatalogueArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let labels = args
        .labels
        .iter()
        .try_fold(Labels::default(), Labels::with)?;
    let signature = args
        .signature
        .as_deref()
        .map(input::text_file)
        .transpose()?;
    let request = DeployCatalogue {
        app: args.app.clone(),
        labels,
        signature,
    };
    let target = target(&args.connect, env)?;
    let client = Client::new(&target)?;
    let answer = client
        .deploy_catalogue(&args.name, args.tenant.as_ref(), &request)
        .await?;
    let port = target.context.as_ref().and_then(|c| c.gateway_port);
    deploy::report_deployment(&answer, port, &client, (args.output, args.wait), console).await
}

impl Row for CatalogueEntry {
    const COLUMNS: &'static [&'static str] = &["NAME", "LANGUAGE", "SIZE", "DOES", "DIGEST"];
    const NARROW: usize = 4;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.language.clone(),
            size(self.size),
            self.summary.clone(),
            self.digest.short(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
