//! Structured logs on standard error: text for people, JSON for machines, filtered by `FDN_LOG`.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Json, JsonFields};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// The format of the lines.
    pub format: LogFormat,
    /// What is logged, in the syntax of `tracing` filters: `info`, `warn,fdn_dns=debug`. The variable `FDN_LOG` overrides it.
    pub filter: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            filter: "info".to_owned(),
        }
    }
}

/// The log target of the AMQP client for channels that the broker closes. The client logs every such event as an error, including the negative
/// answer
/// to whether a queue exists, which is normal at the first start of a network. Real errors are returned to the caller, who reports them.
const CHANNELS: &str = "lapin::channel";

/// The log filter, which silences that target unless the filter mentions the client.
fn directives(filter: &str) -> String {
    match filter.contains("lapin") {
        true => filter.to_owned(),
        false => format!("{filter},{CHANNELS}=off"),
    }
}

/// Each event as one object, with its own fields beside those of every line (both are in docs/operations/monitoring.md).
fn json<W>(
    builder: SubscriberBuilder<DefaultFields, Format, EnvFilter, W>,
) -> SubscriberBuilder<JsonFields, Format<Json>, EnvFilter, W> {
    builder.json().flatten_event(true)
}

/// Starts logging. A second call in a process has no effect (tests start several services in one process).
pub fn init(settings: &LogSettings) {
    let filter = std::env::var("FDN_LOG").unwrap_or_else(|_| settings.filter.clone());
    let filter = EnvFilter::try_new(directives(&filter))
        .unwrap_or_else(|_| EnvFilter::new(directives("info")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => json(builder).try_init(),
    };
    // It only fails if a subscriber is set already, which then stays.
    drop(started);
}

#[cfg(test)]
mod tests;
