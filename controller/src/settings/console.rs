//! Settings of the console beyond the network's state: figures, trial calls, workflow runs.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

/// The console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleSettings {
    /// The most series of figures in memory, one per app and cluster with calls; each takes about 50 kB at most.
    pub series: usize,
    /// The most lines of client traffic on the map; the busiest are shown.
    pub flows: usize,
    /// The most concurrent trial calls of this controller.
    pub tries: usize,
    /// The largest body of a trial call.
    pub try_body: ByteSize,
    /// The most bytes kept of its answer.
    pub try_answer: ByteSize,
    /// How long it may take.
    pub try_timeout: DurationMs,
    /// The most workflow runs kept per app; the newest stay.
    pub runs_per_app: u32,
    /// The most runs waiting to be written; the oldest are dropped first.
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
    /// The first setting that is not valid, named by its key.
    pub(super) fn problem(&self) -> Option<&'static str> {
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
