//! Arguments of the commands for who writes a function: `fdn new`, `fdn dev`, `fdn test`, `fdn open`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use fdn_core::AppName;
use fdn_core::account::TenantRef;

use super::{ConnectArgs, OutputArgs, SecretArg, parse_secret};

/// A language with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Language {
    /// Rust.
    Rust,
    /// JavaScript.
    Js,
    /// Python.
    Python,
    /// C.
    C,
}

/// Arguments of `fdn new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The function's name
    pub name: fdn_core::FunctionName,
    /// The language
    #[arg(long, short, value_enum)]
    pub lang: Language,
    /// The folder to make; without it, NAME here
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// Arguments of `fdn test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The function's folder, with fdn.toml, cases.json and the component
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Call this app, where it is deployed, instead of the component in the folder
    #[arg(long, value_name = "APP")]
    pub app: Option<AppName>,
    /// The component; without it, the .wasm file in the folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "app")]
    pub component: Option<PathBuf>,
    /// A secret of the manifest and the file its value is in (- for standard input); may be given several times
    #[arg(long = "secret", value_name = "NAME=FILE", value_parser = parse_secret, conflicts_with = "app")]
    pub secrets: Vec<SecretArg>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// The function's folder, with fdn.toml
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The app to deploy it as; without it, the name in fdn.toml
    #[arg(long, value_name = "APP")]
    pub app: Option<AppName>,
    /// What builds it, run by sh in the folder; without it ./build.sh, `npm run build` or `make`, whichever the folder has
    #[arg(long, value_name = "COMMAND")]
    pub build: Option<String>,
    /// The component that the build makes; without it, the .wasm file in the folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub component: Option<PathBuf>,
    /// A secret of the manifest and the file its value is in; may be given several times
    #[arg(long = "secret", value_name = "NAME=FILE", value_parser = parse_secret)]
    pub secrets: Vec<SecretArg>,
    /// The tenant of a new app (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn open`.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// The app, or `console`
    #[arg(value_name = "APP|console")]
    pub what: AppName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
