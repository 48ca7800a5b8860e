//! Settings of the event stream.

use fdn_core::DurationMs;
use serde::{Deserialize, Serialize};

/// Events of the network, streamed to readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventSettings {
    /// How many events are kept for readers that were away.
    pub keep: u32,
    /// How often new events are looked for.
    pub interval: DurationMs,
    /// The most concurrent readers of this controller.
    pub readers: usize,
    /// The most events that wait for a slow reader; beyond it the reader is behind, and gets the rest from the store.
    pub buffer: usize,
    /// How long a reader may take nothing before it is disconnected.
    pub patience: DurationMs,
    /// How often a reader gets something even without events, so that proxies keep the connection open.
    pub heartbeat: DurationMs,
    /// How long a reader is served before it must connect again, which checks its rights anew. It counts for those who follow a log, too.
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
    /// The first setting that is not valid, named by its key.
    pub(super) fn problem(&self) -> Option<&'static str> {
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
