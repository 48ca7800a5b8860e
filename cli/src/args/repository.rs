//! `fdn label`, `fdn signing-key`, `fdn catalogue`, `fdn tenant limit|delete`, `fdn user delete`: the code repository, and what ends.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use fdn_core::account::TenantRef;
use fdn_core::label::Label;
use fdn_core::repository::SignaturePolicy;
use fdn_core::{
    AppName, ByteSize, FunctionName, ParseError, SigningKeyName, UserName, VersionNumber,
};

use super::{ConnectArgs, OneTenantArgs, OutputArgs, ShowArgs, WaitArgs};

/// Arguments of `fdn label`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fdn label shop team=payments tier=gold
  fdn label shop tier-
  fdn label shop --version 3 commit=4c1f2aa
  fdn list --label team=payments")]
pub struct LabelArgs {
    /// The app
    pub app: AppName,
    /// KEY=VALUE sets a label, KEY- takes it away; without any, the labels are shown
    #[arg(value_name = "KEY=VALUE|KEY-", value_parser = parse_change)]
    pub changes: Vec<LabelChange>,
    /// The labels of this version instead of the function's own
    #[arg(long, value_name = "VERSION", value_parser = super::parse_version)]
    pub version: Option<VersionNumber>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What becomes of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelChange {
    /// It gets this value.
    Set(Label),
    /// It goes.
    Remove(String),
}

fn parse_change(text: &str) -> Result<LabelChange, ParseError> {
    match text.strip_suffix('-').filter(|key| !key.contains('=')) {
        Some(key) => Ok(LabelChange::Remove(key.to_owned())),
        None => text.parse().map(LabelChange::Set),
    }
}

/// Arguments of `fdn signing-key`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct SigningKeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SigningKeyCommand,
}

/// What to do with the keys whose signatures count in a tenant.
#[derive(Debug, Subcommand)]
pub enum SigningKeyCommand {
    /// Add a public key, or replace the one of its name
    Add(AddSigningKeyArgs),
    /// List the keys of a tenant
    List(OneTenantArgs),
    /// Remove a key: new uploads that it signed are refused
    Remove(RemoveSigningKeyArgs),
    /// Say whether uploads must be signed
    Policy(SignaturePolicyArgs),
}

/// Arguments of `fdn signing-key add`.
#[derive(Debug, Args)]
pub struct AddSigningKeyArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The key's name in the tenant
    pub name: SigningKeyName,
    /// The public key as PEM, such as cosign.pub: ECDSA on P-256, or Ed25519
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn signing-key remove`.
#[derive(Debug, Args)]
pub struct RemoveSigningKeyArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The key's name
    pub name: SigningKeyName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Whether uploads must be signed, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// They need not be.
    Optional,
    /// They must be.
    Required,
}

impl From<PolicyArg> for SignaturePolicy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Optional => Self::Optional,
            PolicyArg::Required => Self::Required,
        }
    }
}

/// Arguments of `fdn signing-key policy`.
#[derive(Debug, Args)]
pub struct SignaturePolicyArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// Whether uploads must be signed
    #[arg(value_enum)]
    pub policy: PolicyArg,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn catalogue`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct CatalogueArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CatalogueCommand,
}

/// What to do with the catalogue.
#[derive(Debug, Subcommand)]
pub enum CatalogueCommand {
    /// List the ready functions
    List(ShowArgs),
    /// Deploy a ready function as an app
    Deploy(DeployCatalogueArgs),
}

/// Arguments of `fdn catalogue deploy`.
#[derive(Debug, Args)]
pub struct DeployCatalogueArgs {
    /// The function's name in the catalogue
    pub name: FunctionName,
    /// The app; without it, one of the function's name
    pub app: Option<AppName>,
    /// A label of the new version; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<Label>,
    /// File holding a signature over the component, where the tenant asks for one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub signature: Option<PathBuf>,
    /// The tenant of a new app (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn tenant limit`.
#[derive(Debug, Args)]
pub struct TenantLimitArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The most bytes of all its versions, such as 20GiB; without it, the network's limit
    #[arg(long, alias = "octets", value_name = "SIZE")]
    pub bytes: Option<ByteSize>,
    /// The most versions; without it, the network's limit
    #[arg(long, value_name = "N")]
    pub versions: Option<u64>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn tenant delete`.
#[derive(Debug, Args)]
pub struct DeleteTenantArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// Delete its apps with it
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn user delete`.
#[derive(Debug, Args)]
pub struct DeleteUserArgs {
    /// The user
    pub name: UserName,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_or_taken() {
        let set = parse_change("team=a-").expect("a label");
        assert_eq!(set, LabelChange::Set("team=a-".parse().expect("a label")));
        let taken = parse_change("team-").expect("a key");
        assert_eq!(taken, LabelChange::Remove("team".to_owned()));
        assert!(parse_change("team").is_err());
    }

    #[test]
    fn the_flag_of_the_release_before_is_taken() {
        #[derive(Debug, clap::Parser)]
        struct Limit {
            #[command(flatten)]
            args: TenantLimitArgs,
        }
        let words = ["limit", "acme", "--octets", "20GiB"];
        let limit = <Limit as clap::Parser>::try_parse_from(words).expect("arguments");
        assert_eq!(limit.args.bytes.map(ByteSize::as_bytes), Some(20 << 30));
    }
}
