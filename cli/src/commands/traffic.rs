//! `fdn traffic`.

use fdn_core::policy::Traffic;
use fdn_core::policy::api::TrafficInfo;
use fdn_core::policy::traffic::Sticky;
use serde::Serialize;

use super::client;
use super::objective::rollout_summary;
use crate::args::{OneAppArgs, SetTrafficArgs, TrafficCommand};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, table};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &TrafficCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        TrafficCommand::Show(args) => show(args, env, console).await,
        TrafficCommand::Set(args) => set(args, env, console).await,
        TrafficCommand::Clear(args) => clear(args, env, console).await,
    }
}

async fn show(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let info = client(&args.connect, env)?.traffic(&args.app).await?;
    console.report(args.output.output, &TrafficReport { info: &info })
}

async fn set(
    args: &SetTrafficArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let wanted = Traffic {
        split: args.shares.clone(),
        sticky: args.sticky.into(),
        pin: args.pin,
    };
    let client = client(&args.connect, env)?;
    let info = client.set_traffic(&args.app, &wanted).await?;
    console.report(args.output.output, &TrafficReport { info: &info })
}

async fn clear(
    args: &OneAppArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let info = client.set_traffic(&args.app, &Traffic::default()).await?;
    console.report(args.output.output, &TrafficReport { info: &info })
}

/// A traffic split as a table.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
struct TrafficReport<'a> {
    info: &'a TrafficInfo,
}

impl Report for TrafficReport<'_> {
    fn text(&self, _: bool) -> String {
        let traffic = &self.info.traffic;
        let watched = self
            .info
            .rollout
            .as_ref()
            .map(rollout_summary)
            .unwrap_or_default();
        if traffic.is_empty() {
            return format!(
                "all calls of {} go to {}\n{watched}",
                self.info.app, self.info.current
            );
        }
        let total: u64 = traffic.split.iter().map(|s| u64::from(s.weight)).sum();
        let rows = traffic.split.iter().map(|share| {
            // In tenths of a percent, rounded down; the sum was checked to be above 0.
            let tenths = u64::from(share.weight) * 1000 / total.max(1);
            vec![
                share.version.to_string(),
                share.weight.to_string(),
                format!("{}.{} %", tenths / 10, tenths % 10),
            ]
        });
        let mut text = table(&["VERSION", "WEIGHT", "CALLS"], rows);
        match traffic.sticky {
            Sticky::None => {}
            Sticky::Cookie => text.push_str("clients stay with their version by a cookie\n"),
            Sticky::Address => text.push_str("clients stay with their version by address\n"),
        }
        if traffic.pin {
            text.push_str("calls may name their version in x-fdn-pin\n");
        }
        text.push_str(&watched);
        text
    }

    fn names(&self) -> Vec<String> {
        let split = &self.info.traffic.split;
        if split.is_empty() {
            return vec![self.info.current.to_string()];
        }
        split
            .iter()
            .map(|share| share.version.to_string())
            .collect()
    }
}
