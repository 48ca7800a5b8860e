//! Arguments of `fdn top`.

use clap::{Args, ValueEnum};
use fdn_core::DurationMs;

use super::{ConnectArgs, OutputArgs};

/// A column that rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Names, from a to z.
    Name,
    /// Calls a second.
    #[default]
    Calls,
    /// Answers 5xx a second.
    Errors,
    /// What half of the calls take at most.
    P50,
    /// What 99 of 100 calls take at most.
    P99,
    /// Calls that run.
    Busy,
    /// Calls that wait.
    Queue,
    /// Instances.
    Instances,
    /// Processor time that is taken.
    Cpu,
    /// Memory that is taken.
    Memory,
}

/// Arguments of `fdn top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print the tables once and end
    #[arg(long)]
    pub once: bool,
    /// What to sort by, the most first: name, calls, errors, p50, p99, busy, queue, instances, cpu or memory
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "COLUMN",
        hide_possible_values = true
    )]
    pub sort: SortBy,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub interval: DurationMs,
    /// How to print the result; anything but table prints once
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
