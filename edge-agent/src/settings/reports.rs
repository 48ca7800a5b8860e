//! Making apps ready, logs, reports, stopping.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use super::registries::RegistrySettings;

/// Making apps ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppsSettings {
    /// Apps that are made ready at the same time.
    pub parallel: usize,
    /// The pause before a failed app is tried again; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// Whether an app of this cluster gets one call (`GET /` with `x-fdn-probe: 1`) when it is loaded, so that the first client
    /// finds it warm.
    pub warm_call: bool,
    /// When that call is ended: what is done once, at the first call, is over then, and a function that waits for others must not keep calls from its app.
    pub warm_call_timeout: DurationMs,
    /// Names of deleted apps remembered until the next snapshot.
    pub tombstones: usize,
    /// Registries that want a name and a password for the images of apps; others are asked without.
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
    /// Lines kept for each app.
    pub lines: usize,
    /// Text kept for each app.
    pub size: ByteSize,
    /// The longest line; the rest is cut.
    pub line: ByteSize,
    /// All lines of one call together.
    pub call: ByteSize,
    /// Lines that a follower may lag behind before it loses some.
    pub follow_buffer: usize,
    /// Followers at the same time.
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
    /// How often the node tells how it is.
    pub status_interval: DurationMs,
    /// How often it tells the round-trip times it measured.
    pub rtt_interval: DurationMs,
    /// Client prefixes kept between two such reports.
    pub rtt_prefixes: usize,
    /// How often it measures the round-trip times to other clusters, where they take calls of workflows' stages.
    pub link_interval: DurationMs,
    /// How many clusters it measures each time, one after another in turns; none at all if 0.
    pub links: usize,
    /// How long such a measurement may take.
    pub link_timeout: DurationMs,
    /// How often it tells how runs of workflows go on.
    pub run_interval: DurationMs,
    /// Runs that one such report tells of; of more nothing is told.
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

/// Stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopSettings {
    /// How long the node goes on accepting after it has told that it drains.
    pub drain: DurationMs,
    /// How long calls that run may take to end, rounded up to whole seconds.
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
