//! The section `[usage]` of the agent's settings.

use std::time::{SystemTime, UNIX_EPOCH};

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use crate::frame;

/// What a response waits for before its last byte is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerAfter {
    /// The operating system has the record: it survives the agent, however that ends, but not a power loss within the next `batch_window` and
    /// sync.
    #[default]
    Written,
    /// The record is synced to the disk.
    Synced,
}

/// The usage spool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpoolSettings {
    /// The largest total size of the records that are not handed over yet, or were set aside. Without room for another one, new calls are
    /// refused.
    pub size: ByteSize,
    /// The largest size of a segment, whose records are handed over together.
    pub segment: ByteSize,
    /// What a response waits for.
    pub answer_after: AnswerAfter,
    /// How long the first record of a batch waits for others before the disk is synced.
    pub batch_window: DurationMs,
    /// The longest time that a record waits before its segment is handed over.
    pub seal_after: DurationMs,
    /// The largest size of records that are kept for searches after they were handed over, in addition to `size`; 0 keeps none.
    pub log_size: ByteSize,
    /// The longest time that they are kept.
    pub log_keep: DurationMs,
    /// The pause after a batch could not be handed over; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
}

impl Default for SpoolSettings {
    fn default() -> Self {
        Self {
            size: ByteSize::from_mib(1024),
            segment: ByteSize::from_mib(8),
            answer_after: AnswerAfter::default(),
            batch_window: DurationMs::from_millis(2),
            seal_after: DurationMs::from_secs(5),
            log_size: ByteSize::from_mib(256),
            log_keep: DurationMs::from_secs(24 * 3600),
            retry_first: DurationMs::from_millis(500),
            retry_max: DurationMs::from_secs(60),
        }
    }
}

impl SpoolSettings {
    /// The time from which calls are kept, in milliseconds since 1970.
    pub(crate) fn kept_since(&self) -> u64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            });
        now.saturating_sub(self.log_keep.as_millis())
    }

    /// Refuses values that cannot work; returns the violated rule.
    ///
    /// # Errors
    /// With the first violated rule.
    pub fn check(&self) -> Result<(), &'static str> {
        let segment = self.segment.as_bytes();
        let rules = [
            (
                (4096..=16 << 20).contains(&segment),
                "usage.segment must be from 4KiB to 16MiB",
            ),
            (
                self.size.as_bytes() >= 4 * segment + 64 * frame::MAX as u64,
                "usage.size must be at least four segments and 88KiB",
            ),
            (
                self.batch_window.as_millis() <= 1000,
                "usage.batch_window must be at most 1s",
            ),
            (
                self.seal_after.as_millis() >= 10,
                "usage.seal_after must be at least 10ms",
            ),
            (
                self.retry_first.as_millis() >= 1 && self.retry_max >= self.retry_first,
                "usage.retry_first must be at least 1ms and at most usage.retry_max",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        SpoolSettings::default().check().expect("the defaults work");
        let small = SpoolSettings {
            size: ByteSize::from_bytes(1),
            ..SpoolSettings::default()
        };
        assert!(small.check().expect_err("too small").contains("usage.size"));
        let large = SpoolSettings {
            segment: ByteSize::from_mib(64),
            ..SpoolSettings::default()
        };
        assert!(
            large
                .check()
                .expect_err("too large")
                .contains("usage.segment")
        );
    }
}
