//! `fdn dns`: what DNS answers, and why; text records.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use fdn_core::account::TenantRef;
use fdn_core::observe::AddressKind;
use fdn_core::{AppName, ClientPrefix, DurationMs, HostName, NodeId, ParseError, RecordName};

use super::{ConnectArgs, OutputArgs, TokenArgs};

/// Arguments of `fdn dns`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct DnsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DnsCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum DnsCommand {
    /// Show what a client is answered for a name, and why: prefix, binding, gateways that live, distances
    Lookup(DnsLookupArgs),
    /// List where an app's clients are sent, prefix by prefix
    Dump(DnsDumpArgs),
    /// Print the DS records that the parent zone is to hold, where the network's zone is signed
    Ds(DnsDsArgs),
    /// Show or set for how long resolvers may keep the answers for an app
    Ttl(DnsTtlArgs),
    /// Make, list or take back tokens by which machines join as DNS servers
    Token(TokenArgs),
    /// List the DNS servers that were let in
    Servers(DnsServersArgs),
    /// Remove a DNS server: its certificate no longer counts, its name is free
    Remove(DnsRemoveArgs),
    /// Set text records, such as those by which a certificate authority sees who a name belongs to
    Txt(TxtArgs),
}

/// Arguments of `fdn dns servers`.
#[derive(Debug, Args)]
pub struct DnsServersArgs {
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns remove`.
#[derive(Debug, Args)]
pub struct DnsRemoveArgs {
    /// The server
    pub name: NodeId,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns txt`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct TxtArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TxtCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum TxtCommand {
    /// Set the text records of a name, whole
    Set(SetTxtArgs),
    /// Add a value to the text records of a name
    Add(AddTxtArgs),
    /// Take a value away, or all of a name
    Remove(RemoveTxtArgs),
    /// List the text records that are set
    List(ListTxtArgs),
}

/// Arguments of `fdn dns txt set`.
#[derive(Debug, Args)]
pub struct SetTxtArgs {
    /// The name, in the zone, such as _acme-challenge.APP.ZONE
    #[arg(value_parser = RecordName::parse_lenient)]
    pub name: RecordName,
    /// The values; write -- before one that begins with a hyphen
    #[arg(required = true, value_name = "VALUE")]
    pub values: Vec<String>,
    /// For how long resolvers may keep them, 10s to 1h; 60s if not given
    #[arg(long)]
    pub ttl: Option<DurationMs>,
    /// After what time they go by themselves, 10s to 720h; never if not given
    #[arg(long, value_name = "DURATION")]
    pub expires_in: Option<DurationMs>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns txt add`.
#[derive(Debug, Args)]
pub struct AddTxtArgs {
    /// The name, in the zone, such as _acme-challenge.APP.ZONE
    #[arg(value_parser = RecordName::parse_lenient)]
    pub name: RecordName,
    /// The value; write -- before one that begins with a hyphen
    pub value: String,
    /// For how long resolvers may keep all values of the name, 10s to 1h; as it is if not given
    #[arg(long)]
    pub ttl: Option<DurationMs>,
    /// After what time all values of the name go by themselves, 10s to 720h; the later of two ends counts
    #[arg(long, value_name = "DURATION")]
    pub expires_in: Option<DurationMs>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns txt remove`.
#[derive(Debug, Args)]
pub struct RemoveTxtArgs {
    /// The name
    #[arg(value_parser = RecordName::parse_lenient)]
    pub name: RecordName,
    /// The value that is to go; all if not given
    pub value: Option<String>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns txt list`.
#[derive(Debug, Args)]
pub struct ListTxtArgs {
    /// Of the apps of this tenant only
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns lookup`.
#[derive(Debug, Args)]
pub struct DnsLookupArgs {
    /// The name
    pub name: HostName,
    /// The client's address or prefix, as a resolver passes it on
    #[arg(long, value_name = "ADDR")]
    pub client: ClientPrefix,
    /// The kind of addresses
    #[arg(long = "type", value_enum, default_value_t, value_name = "TYPE")]
    pub kind: KindArg,
    /// Ask this DNS server, at its admin address, what it answers now, and not the controller
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["controller", "context"])]
    pub server: Option<SocketAddr>,
    /// Ask this DNS server as resolvers do, and for the revision that it answers from
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["controller", "context", "server"])]
    pub dns: Option<SocketAddr>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns ttl`.
#[derive(Debug, Args)]
pub struct DnsTtlArgs {
    /// The app
    pub app: AppName,
    /// The time, 5s to 5m, or `default` for the network's; shown if not given
    pub ttl: Option<TtlArg>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// A time to live, or the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlArg(pub Option<DurationMs>);

impl FromStr for TtlArg {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "default" => Ok(Self(None)),
            text => text.parse().map(|ttl| Self(Some(ttl))),
        }
    }
}

/// Arguments of `fdn dns dump`.
#[derive(Debug, Args)]
pub struct DnsDumpArgs {
    /// The app
    pub app: AppName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn dns ds`.
#[derive(Debug, Args)]
pub struct DnsDsArgs {
    /// The DNS server to ask, instead of the one that the controller names
    #[arg(long, value_name = "ADDR:PORT")]
    pub dns: Option<SocketAddr>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// A kind of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// IPv4
    #[default]
    #[value(name = "A", alias = "a")]
    A,
    /// IPv6
    #[value(name = "AAAA", alias = "aaaa")]
    Aaaa,
}

impl From<KindArg> for AddressKind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::A => Self::A,
            KindArg::Aaaa => Self::Aaaa,
        }
    }
}
