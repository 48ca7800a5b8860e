//! `fdn secret` and `fdn env`: what an app's functions find in their environment.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use fdn_core::{AppName, ParseError, SecretName};

use super::policy::OneAppArgs;
use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn secret`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct SecretArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SecretCommand,
}

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set a secret from a file or standard input; running functions get it without a deploy
    Set(SetSecretArgs),
    /// List the secrets of an app, without their values
    List(OneAppArgs),
    /// Remove a secret that no version names
    Remove(OneSecretArgs),
}

/// Arguments of `fdn secret set`.
#[derive(Debug, Args)]
pub struct SetSecretArgs {
    /// The app
    pub app: AppName,
    /// The secret: the variable that functions find it in
    pub name: SecretName,
    /// The file that the value is in; standard input without it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "-")]
    pub file: PathBuf,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn secret remove`.
#[derive(Debug, Args)]
pub struct OneSecretArgs {
    /// The app
    pub app: AppName,
    /// The secret
    pub name: SecretName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn env`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct EnvArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: EnvCommand,
}

/// What to do with variables.
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Set variables of an app: a new version of it, without an upload
    Set(SetEnvArgs),
    /// Take variables of an app away: a new version of it, without an upload
    Unset(UnsetEnvArgs),
    /// Show the variables of an app's current version
    Show(OneAppArgs),
}

/// Arguments of `fdn env set`.
#[derive(Debug, Args)]
pub struct SetEnvArgs {
    /// The app
    pub app: AppName,
    /// A variable and its value; for what nobody may see use `fdn secret`
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<(SecretName, String)>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn env unset`.
#[derive(Debug, Args)]
pub struct UnsetEnvArgs {
    /// The app
    pub app: AppName,
    /// The variables
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<SecretName>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

fn parse_variable(text: &str) -> Result<(SecretName, String), ParseError> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| ParseError::new("variable", text, "NAME=VALUE, such as LEVEL=debug"))?;
    Ok((name.parse()?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_a_name_and_a_value() {
        let (name, value) = parse_variable("URL=http://x/?a=b").expect("a variable");
        assert_eq!((name.as_str(), value.as_str()), ("URL", "http://x/?a=b"));
        assert_eq!(parse_variable("EMPTY=").expect("a variable").1, "");
        for bad in ["A", "1A=x", "=x"] {
            assert!(parse_variable(bad).is_err(), "{bad}");
        }
    }
}
