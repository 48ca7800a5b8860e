//! Arguments of the commands about this program and this machine: `fdn doctor`, `fdn version`, `fdn completions`, `fdn sim`.

use clap::{Args, ValueEnum};

use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn sim`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct SimArgs {
    /// What to simulate.
    #[command(subcommand)]
    pub command: fdn_sim::command::Command,
}

/// Arguments of `fdn doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Do not ask the controller
    #[arg(long)]
    pub client: bool,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// A shell with a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Zsh.
    Zsh,
    /// fish.
    Fish,
}

/// Arguments of `fdn completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fdn completions bash > ~/.local/share/bash-completion/completions/fdn
  fdn completions zsh > \"${fpath[1]}/_fdn\"
  fdn completions fish > ~/.config/fish/completions/fdn.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
