//! Arguments of `fdn workflow`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use fdn_core::AppName;
use fdn_core::account::TenantRef;

use super::{ConnectArgs, OutputArgs, WaitArgs};

/// Arguments of `fdn workflow`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct WorkflowArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WorkflowCommand,
}

/// What to do with workflows.
#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Judge a workflow without deploying it: all its mistakes, or where its stages would run
    Validate(WorkflowFileArgs),
    /// Make a workflow the current version of an app
    Deploy(WorkflowDeployArgs),
    /// Show an app's workflow, and where its stages run
    Show(WorkflowShowArgs),
}

/// A workflow in a file.
#[derive(Debug, Args)]
pub struct WorkflowFileArgs {
    /// The app's name: it will be called as NAME.ZONE
    pub name: AppName,
    /// The workflow as YAML or JSON; - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The tenant of a new app (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn workflow deploy`.
#[derive(Debug, Args)]
pub struct WorkflowDeployArgs {
    /// The workflow.
    #[command(flatten)]
    pub file: WorkflowFileArgs,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Arguments of `fdn workflow show`.
#[derive(Debug, Args)]
pub struct WorkflowShowArgs {
    /// The app
    pub name: AppName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
