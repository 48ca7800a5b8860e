//! Arguments of `fdn plan`.

use clap::{Args, ValueHint};
use fdn_core::account::TenantRef;
use fdn_core::what_if::WhatIf;
use fdn_core::{AppName, ByteSize, ClientPrefix, DurationMs};

use super::shared::{ConnectArgs, OutputArgs};

/// Arguments of `fdn plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// An app that is deployed, the manifest of a function (.toml), or a workflow (.yaml, .json)
    #[arg(value_name = "APP|FILE", value_hint = ValueHint::AnyPath)]
    pub what: String,
    /// The app that FILE is for, whose clients are asked about then
    #[arg(long, value_name = "APP")]
    pub app: Option<AppName>,
    /// Clients, such as 203.0.113.0/24; without them, those that asked lately, or whose places are known; may be given several times
    #[arg(long = "client", value_name = "PREFIX")]
    pub clients: Vec<ClientPrefix>,
    /// Calls per second of all clients together
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// The time of one call of each stage on a node of speed 1, such as 20ms
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<DurationMs>,
    /// The memory that a call holds, such as 128MiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// The length of an answer, for the price, such as 20KiB
    #[arg(long, value_name = "SIZE")]
    pub answer: Option<ByteSize>,
    /// A change of the network that has not happened: "cluster NAME down", "rtt NAME +50ms" or "nodes NAME 4"; may be given several times
    #[arg(long, value_name = "CHANGE")]
    pub what_if: Vec<WhatIf>,
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
