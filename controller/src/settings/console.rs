//! Settings of what the console shows beside the network's state: figures, calls to try an app with, runs of workflows.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

/// What the console shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleSettings {
    /// Series of figures that are kept in memory, one for each app and cluster with calls; about 50 kB each at most.
    pub series: usize,
    /// Lines of client traffic on the map, the busiest first.
    pub flows: usize,
    /// Calls to try an app with, made at the same time by this controller.
    pub tries: usize,
    /// The largest body of such a call.
    pub try_body: ByteSize,
    /// How much of its answer is kept.
    pub try_answer: ByteSize,
    /// How long it may take.
    pub try_timeout: DurationMs,
    /// Runs of workflows that are kept for each app, the newest.
    pub runs_per_app: u32,
    /// Runs that wait until they are written; those that wait for longest go first.
    pub runs_pending: usize,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            series: 500,
            flows: 500,
            tries: 16,
            try_body: ByteSize::from_mib(1),
            try_answer: ByteSize::from_mib(1),
            try_timeout: DurationMs::from_secs(60),
            runs_per_app: 200,
            runs_pending: 1000,
        }
    }
}

impl ConsoleSettings {
    /// The first setting that makes no sense, by its key.
    pub(super) fn nonsense(&self) -> Option<&'static str> {
        if [self.series, self.flows, self.tries, self.runs_pending].contains(&0)
            || self.runs_per_app == 0
        {
            return Some(
                "console.series, flows, tries, runs_per_app and runs_pending must be at least 1",
            );
        }
        (self.try_timeout.as_millis() < 10 || self.try_answer.as_bytes() == 0).then_some(
            "console.try_timeout must be at least 10ms and console.try_answer at least 1B",
        )
    }
}
