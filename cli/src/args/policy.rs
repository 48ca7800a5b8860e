//! `fdn policy` and `fdn key`: who may call an app.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use fdn_core::policy::key::KeyName;
use fdn_core::{AppName, DurationMs, KeyId};

use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn policy`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// What to do with the policy of an app.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the policy of an app
    Show(OneAppArgs),
    /// Set the policy of an app, whole, from a file
    Set(SetPolicyArgs),
    /// Take the policy of an app away: everybody may call it
    Clear(OneAppArgs),
}

/// Arguments of the commands about one app.
#[derive(Debug, Args)]
pub struct OneAppArgs {
    /// The app
    pub app: AppName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn policy set`.
#[derive(Debug, Args)]
pub struct SetPolicyArgs {
    /// The app
    pub app: AppName,
    /// The policy: a file named .toml, .json, .yaml or .yml
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn key`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key for a caller of an app and print it, once
    Create(CreateKeyArgs),
    /// List the keys of an app
    List(OneAppArgs),
    /// Take a key back: calls with it are refused from now on
    Revoke(RevokeKeyArgs),
}

/// Arguments of `fdn key create`.
#[derive(Debug, Args)]
pub struct CreateKeyArgs {
    /// The app
    pub app: AppName,
    /// Who will call with it
    #[arg(long, value_name = "NAME")]
    pub name: KeyName,
    /// How long it counts; without end if not given
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<DurationMs>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn key revoke`.
#[derive(Debug, Args)]
pub struct RevokeKeyArgs {
    /// The app
    pub app: AppName,
    /// The key's id, as `fdn key list` shows it
    pub key: KeyId,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
