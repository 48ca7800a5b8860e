//! Arguments that several commands have: which network, which format, whether to wait.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fdn_core::DurationMs;

use crate::output::Format;
use crate::target::Choice;

/// Which network.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Network")]
pub struct ConnectArgs {
    /// The controller's URL [env: FDN_CONTROLLER]
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub controller: Option<String>,
    /// The context to use instead of the current one [env: FDN_CONTEXT]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Check an https controller against the authorities in this file (PEM), in place of the web's [env: FDN_CA_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
}

impl From<&ConnectArgs> for Choice {
    fn from(args: &ConnectArgs) -> Self {
        Self {
            controller: args.controller.clone(),
            context: args.context.clone(),
            ca_file: args.ca_file.clone(),
        }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArgs {
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// Whether to wait, and how long.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Wait until every living node is there (the default)
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return as soon as the controller has accepted it
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub timeout: DurationMs,
}

impl WaitArgs {
    /// Whether to wait.
    #[must_use]
    pub const fn waits(&self) -> bool {
        !self.no_wait
    }
}
