//! `fdn objective` and `fdn domain`: what new versions must keep to, and host names beside an app's own.

use clap::{Args, Subcommand};
use fdn_core::rollout::Objective;
use fdn_core::{AppName, DurationMs, HostName};

use super::policy::OneAppArgs;
use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn objective`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ObjectiveArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ObjectiveCommand,
}

/// What to do with the objective of an app.
#[derive(Debug, Subcommand)]
pub enum ObjectiveCommand {
    /// Show the objective of an app and how its newest version keeps to it
    Show(OneAppArgs),
    /// Set what new versions must keep to: one that does not is taken back
    Set(SetObjectiveArgs),
    /// Take the objective of an app away
    Clear(OneAppArgs),
}

/// Arguments of `fdn objective set`.
#[derive(Debug, Args)]
pub struct SetObjectiveArgs {
    /// The app
    pub app: AppName,
    /// The most calls that may fail, in percent
    #[arg(long, value_name = "PERCENT", required_unless_present = "p99")]
    pub errors: Option<f64>,
    /// What 99 of 100 calls may take to the head of their answer, in milliseconds
    #[arg(long, value_name = "MS")]
    pub p99: Option<u64>,
    /// How long it must hold
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub window: DurationMs,
    /// Calls that there must have been before anything is decided
    #[arg(long, value_name = "CALLS", default_value_t = 100)]
    pub minimum_calls: u64,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl SetObjectiveArgs {
    /// The objective that is meant.
    #[must_use]
    pub const fn objective(&self) -> Objective {
        Objective {
            error_percent: self.errors,
            p99_ms: self.p99,
            window: self.window,
            minimum_calls: self.minimum_calls,
        }
    }
}

/// Arguments of `fdn domain`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct DomainArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DomainCommand,
}

/// What to do with domains.
#[derive(Debug, Subcommand)]
pub enum DomainCommand {
    /// Ask for a domain and print the records that its owner has to set
    Add(OneDomainArgs),
    /// Look for the proof of a domain now
    Verify(OneDomainArgs),
    /// List the domains of an app
    List(OneAppArgs),
    /// Let a domain go: the app does not answer to it any more
    Remove(RemoveDomainArgs),
}

/// Arguments of the commands about one domain.
#[derive(Debug, Args)]
pub struct OneDomainArgs {
    /// The app
    pub app: AppName,
    /// The domain, such as shop.example.org
    pub host: HostName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn domain remove`.
#[derive(Debug, Args)]
pub struct RemoveDomainArgs {
    /// The app
    pub app: AppName,
    /// The domain
    pub host: HostName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
