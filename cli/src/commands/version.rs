//! `fdn version`.

use std::sync::LazyLock;

use fdn_service::version::Build;
use serde::Serialize;

use super::target;
use crate::args::VersionArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, table};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `fdn --version` prints after the program's name.
pub static LONG: LazyLock<String> = LazyLock::new(|| build().text());

fn build() -> Build {
    Build::of(fdn_controller::built_in())
}

/// The versions of client and controller.
#[derive(Clone, Debug, Serialize)]
pub struct Versions {
    /// The version of this program.
    pub client: &'static str,
    /// How this program was built.
    pub build: Build,
    /// The controller's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The controller's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Why the controller's version is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_error: Option<String>,
}

/// Runs the command. A controller that does not answer is reported, but is not a failure.
///
/// # Errors
/// When the configuration is not valid.
pub async fn run(
    args: &VersionArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let mut versions = Versions {
        client: VERSION,
        build: build(),
        controller: None,
        server: None,
        server_error: None,
    };
    if !args.client {
        let client = Client::new(&target(&args.connect, env)?)?;
        versions.controller = Some(client.place());
        match client.network_and_clock().await {
            Ok((network, _)) => versions.server = Some(network.version),
            Err(error) => versions.server_error = Some(error.to_string()),
        }
    }
    console.report(args.output.output, &versions)?;
    if let Some(server) = &versions.server
        && minor(server) != minor(VERSION)
    {
        console.note(&format!(
            "warning: client {VERSION} and controller {server} differ; use the same minor version"
        ));
    }
    Ok(())
}

/// `0.1` of `0.1.7`: the part that client and controller must agree on.
pub(super) fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

impl Report for Versions {
    fn text(&self, _: bool) -> String {
        let mut rows = vec![vec!["client".to_owned(), self.client.to_owned()]];
        let built = self.build.rows();
        rows.extend(built.map(|(name, value)| vec![format!("  {name}"), value]));
        if let Some(controller) = &self.controller {
            let server = self
                .server
                .clone()
                .or_else(|| self.server_error.clone())
                .unwrap_or_default();
            rows.push(vec![
                "controller".to_owned(),
                format!("{server} ({controller})"),
            ]);
        }
        table(&[], rows)
    }

    fn names(&self) -> Vec<String> {
        std::iter::once(self.client.to_owned())
            .chain(self.server.clone())
            .collect()
    }
}
