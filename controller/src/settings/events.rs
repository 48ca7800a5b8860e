//! Settings of the events that readers follow.

use fdn_core::DurationMs;
use serde::{Deserialize, Serialize};

/// What happens in the network, told to readers as it happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventSettings {
    /// How many are kept for readers who were away.
    pub keep: u32,
    /// How often it is looked what happened.
    pub interval: DurationMs,
    /// Readers at the same time, of this controller.
    pub readers: usize,
    /// Events that wait for a slow reader; beyond it the reader is behind, and is given the rest from the store.
    pub buffer: usize,
    /// How long a reader may take nothing at all before it is taken for gone.
    pub patience: DurationMs,
    /// How often a reader hears something even if nothing happens, so that proxies keep the connection.
    pub heartbeat: DurationMs,
    /// How long a reader is served before it must come again, which shows that it still may.
    pub lifetime: DurationMs,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            keep: 10_000,
            interval: DurationMs::from_millis(500),
            readers: 256,
            buffer: 64,
            patience: DurationMs::from_secs(30),
            heartbeat: DurationMs::from_secs(15),
            lifetime: DurationMs::from_secs(300),
        }
    }
}

impl EventSettings {
    /// The first setting that makes no sense, by its key.
    pub(super) fn nonsense(&self) -> Option<&'static str> {
        if self.keep == 0 || self.readers == 0 || self.buffer == 0 {
            return Some("events.keep, events.readers and events.buffer must be at least 1");
        }
        let spans = [self.interval, self.patience, self.heartbeat, self.lifetime];
        spans
            .iter()
            .any(|span| span.as_millis() < 10)
            .then_some("events.interval, patience, heartbeat and lifetime must be at least 10ms")
    }
}
