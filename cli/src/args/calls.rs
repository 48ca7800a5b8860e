//! Arguments of `fdn calls` and `fdn trace`.

use clap::Args;
use fdn_core::usage::{StatusFilter, UsageOutcome};
use fdn_core::{AppName, ClientPrefix, DurationMs, VersionNumber};

use super::parse_version;
use super::shared::{ConnectArgs, OutputArgs};

/// Arguments of `fdn calls`.
#[derive(Debug, Args)]
pub struct CallsArgs {
    /// The app
    pub name: AppName,
    /// Calls of this time until now
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub since: DurationMs,
    /// Calls before this time ago
    #[arg(long, value_name = "DURATION")]
    pub until: Option<DurationMs>,
    /// Answered so: 404, or 5xx for a whole class
    #[arg(long, value_name = "STATUS")]
    pub status: Option<StatusFilter>,
    /// Ended so: ok, function_error, function_ended, client, internal or running
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Option<UsageOutcome>,
    /// Of this version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub version: Option<VersionNumber>,
    /// With this request id
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// Of this trace (W3C Trace Context)
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The call's request id: what its answer has in x-request-id
    #[arg(value_name = "REQUEST-ID")]
    pub request: String,
    /// The app that was called; without it all apps are asked, one after the other
    #[arg(long, value_name = "APP")]
    pub app: Option<AppName>,
    /// Explain it for this client (address or prefix) instead of the caller
    #[arg(long, value_name = "ADDR")]
    pub client: Option<ClientPrefix>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
