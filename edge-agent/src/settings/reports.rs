//! Settings for making apps ready, logs, reports and stopping.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use super::registries::RegistrySettings;

/// Settings for making apps ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppsSettings {
    /// The most apps that are made ready at the same time.
    pub parallel: usize,
    /// The pause before a failed app is retried; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// Whether an app that is placed on this cluster gets one call (`GET /` with `x-fdn-probe: 1`) when it is loaded, so that the first client
    /// finds it warm.
    pub warm_call: bool,
    /// The timeout of that call: initialization at the first call is over by then, and a function that waits for others must not keep its app
    /// from becoming ready.
    pub warm_call_timeout: DurationMs,
    /// The most names of deleted apps that are remembered until the next snapshot.
    pub tombstones: usize,
    /// Registries that require credentials for the images of apps; others are accessed anonymously.
    pub registries: Vec<RegistrySettings>,
}

impl Default for AppsSettings {
    fn default() -> Self {
        Self {
            parallel: 4,
            retry_first: DurationMs::from_secs(1),
            retry_max: DurationMs::from_secs(60),
            warm_call: true,
            warm_call_timeout: DurationMs::from_secs(5),
            tombstones: 10_000,
            registries: Vec::new(),
        }
    }
}

/// Logs of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogsSettings {
    /// The most lines kept for each app.
    pub lines: usize,
    /// The most text kept for each app.
    pub size: ByteSize,
    /// The longest line; the rest is cut off.
    pub line: ByteSize,
    /// The most text of one call.
    pub call: ByteSize,
    /// How many lines a follower may lag behind before it loses some.
    pub follow_buffer: usize,
    /// The most followers at the same time.
    pub followers: usize,
}

impl Default for LogsSettings {
    fn default() -> Self {
        Self {
            lines: 2000,
            size: ByteSize::from_mib(1),
            line: ByteSize::from_bytes(4096),
            call: ByteSize::from_bytes(64 << 10),
            follow_buffer: 1024,
            followers: 64,
        }
    }
}

/// Reports to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSettings {
    /// The interval of status reports.
    pub status_interval: DurationMs,
    /// The interval of reports of measured round-trip times.
    pub rtt_interval: DurationMs,
    /// The most client prefixes kept between two such reports.
    pub rtt_prefixes: usize,
    /// The interval at which round-trip times to other clusters are measured, at the addresses where those take stage calls.
    pub link_interval: DurationMs,
    /// How many clusters are measured each time, in rotation; 0 disables these measurements.
    pub links: usize,
    /// The timeout of such a measurement.
    pub link_timeout: DurationMs,
    /// The interval of reports on workflow runs.
    pub run_interval: DurationMs,
    /// The most runs in one such report; changes of further ones are dropped.
    pub runs: usize,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self {
            status_interval: DurationMs::from_secs(2),
            rtt_interval: DurationMs::from_secs(5),
            rtt_prefixes: 4096,
            link_interval: DurationMs::from_secs(30),
            links: 16,
            link_timeout: DurationMs::from_secs(2),
            run_interval: DurationMs::from_secs(1),
            runs: 64,
        }
    }
}

/// Settings for stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopSettings {
    /// How long the node keeps accepting calls after it has reported that it is draining.
    pub drain: DurationMs,
    /// How long running calls may take to end, rounded up to whole seconds.
    pub grace: DurationMs,
}

impl Default for StopSettings {
    fn default() -> Self {
        Self {
            drain: DurationMs::from_secs(3),
            grace: DurationMs::from_secs(30),
        }
    }
}
