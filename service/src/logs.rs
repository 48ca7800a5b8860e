//! Structured logs on standard error: text for people, JSON for machines, filtered by `FDN_LOG`.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Json, JsonFields};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line of text an event.
    #[default]
    Text,
    /// One JSON object an event.
    Json,
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Form of the lines.
    pub format: LogFormat,
    /// What is logged, as `tracing` filters are written: `info`, `warn,fdn_dns=debug`. The variable `FDN_LOG` wins.
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

/// The AMQP client's log of channels that the broker closes. It calls every one an error, also the answer no to whether a queue is there, which
/// is what the first start of a network hears of each; what is an error of it comes back to the caller, who tells it.
const CHANNELS: &str = "lapin::channel";

/// The filter, which says nothing of what is no error unless it is asked for.
fn directives(filter: &str) -> String {
    match filter.contains("lapin") {
        true => filter.to_owned(),
        false => format!("{filter},{CHANNELS}=off"),
    }
}

/// Each event as one object, its own fields beside those of every line (docs/operations/monitoring.md has both).
fn json<W>(
    builder: SubscriberBuilder<DefaultFields, Format, EnvFilter, W>,
) -> SubscriberBuilder<JsonFields, Format<Json>, EnvFilter, W> {
    builder.json().flatten_event(true)
}

/// Starts logging. A second call in one process changes nothing (tests start several services in one).
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
    // The only failure is that a subscriber is set already: then that one stays.
    drop(started);
}

#[cfg(test)]
mod tests;
