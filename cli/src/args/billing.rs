//! `fdn bill`, `fdn price` and `fdn budget`: what things cost, what they have cost, and from when on somebody wants to know.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use fdn_core::account::TenantRef;
use fdn_core::billing::{BudgetName, Month, PriceListName, View};

use super::{ConnectArgs, OutputArgs, ShowArgs};

/// How a bill is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BillOutput {
    /// A table with the columns that matter most.
    #[default]
    Table,
    /// A table with all columns.
    Wide,
    /// JSON, as the API answers.
    Json,
    /// The same as YAML.
    Yaml,
    /// Comma-separated values, one line for each line of the statement.
    Csv,
}

/// Arguments of `fdn bill`.
#[derive(Debug, Args)]
pub struct BillArgs {
    /// The month, such as 2026-11; the running one if not given
    #[arg(long, value_name = "MONTH")]
    pub month: Option<Month>,
    /// Show usage by app, function, region, cluster or day instead of the statement
    #[arg(long, value_name = "VIEW")]
    pub by: Option<View>,
    /// The tenant (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: BillOutput,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn price`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct PriceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PriceCommand,
}

/// What to do with price lists.
#[derive(Debug, Subcommand)]
pub enum PriceCommand {
    /// List the price lists, the earliest first
    List(ShowArgs),
    /// Add a price list, or replace one that has not begun
    Apply(ApplyPriceArgs),
    /// Remove price lists that have not begun
    Remove(RemovePriceArgs),
}

/// Arguments of `fdn price apply`.
#[derive(Debug, Args)]
pub struct ApplyPriceArgs {
    /// The price list, as TOML (.toml), YAML or JSON
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn price remove`.
#[derive(Debug, Args)]
pub struct RemovePriceArgs {
    /// The price lists
    #[arg(required = true)]
    pub names: Vec<PriceListName>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn budget`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct BudgetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BudgetCommand,
}

/// What to do with budgets.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Set what a month may cost, and at which shares of it to give an alert
    Set(SetBudgetArgs),
    /// List the budgets
    List(ListBudgetArgs),
    /// Remove budgets; the alerts they gave stay
    Remove(RemoveBudgetArgs),
    /// List the alerts that budgets gave, the newest first
    Alerts(ListBudgetArgs),
}

/// Arguments of `fdn budget set`.
#[derive(Debug, Args)]
pub struct SetBudgetArgs {
    /// The budget's name
    pub name: BudgetName,
    /// What a month may cost, such as 100 or 99.50
    #[arg(long, value_name = "AMOUNT")]
    pub limit: String,
    /// Percent of the limit at which to give an alert; may be given several times; 50, 80 and 100 if not given
    #[arg(long = "threshold", value_name = "PERCENT")]
    pub thresholds: Vec<u16>,
    /// Who is told of alerts by a signed request
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub webhook: Option<String>,
    /// The tenant (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn budget list` and `fdn budget alerts`.
#[derive(Debug, Args)]
pub struct ListBudgetArgs {
    /// The tenant (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn budget remove`.
#[derive(Debug, Args)]
pub struct RemoveBudgetArgs {
    /// The budgets
    #[arg(required = true)]
    pub names: Vec<BudgetName>,
    /// The tenant (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
