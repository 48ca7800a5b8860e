//! Arguments of `fdn apply`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fdn_core::account::TenantRef;
use fdn_core::applied::SetName;

use super::shared::{ConnectArgs, OutputArgs};

/// Arguments of `fdn apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A file, a folder with .yaml files, or - for standard input; may be given several times
    #[arg(long = "file", short = 'f', value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Take away what was applied under the same set before and is no longer declared
    #[arg(long)]
    pub prune: bool,
    /// The name under which what is applied is remembered; without it, the one in the files, else default
    #[arg(long, value_name = "NAME")]
    pub set: Option<SetName>,
    /// The tenant (its name or id); without it, the one in the files, else the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
