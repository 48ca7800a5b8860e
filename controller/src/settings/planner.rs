//! Settings of placement.

use std::path::PathBuf;

use fdn_core::{ByteSize, DurationMs, Millis};
use fdn_scheduling::place::Bandwidth;
use fdn_scheduling::steer::Margin;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::reconcile::world::Terms;

/// Placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlannerSettings {
    /// How often everything is planned again without a trigger.
    pub interval: DurationMs,
    /// How often nodes are checked for having died or returned.
    pub watch_interval: DurationMs,
    /// The share of the time that a better cluster must save before clients are moved.
    pub margin: f64,
    /// How long the demand on an overloaded cluster is assumed to last: the queue that builds up by then counts against it.
    pub horizon: DurationMs,
    /// The share of all work and of all client groups that may be moved for a gain within `move_interval`. Clients of a failed cluster move at once.
    pub move_share: f64,
    /// The interval for `move_share`.
    pub move_interval: DurationMs,
    /// How long clients that were moved for a gain stay before they are moved for another one; with 0 only `move_share` limits it.
    pub dwell: DurationMs,
    /// How long a cluster keeps an app loaded after clients were moved away: longer than their cached DNS answers live.
    pub drain_after: DurationMs,
    /// The age at which a prefix's queries count half, when an app's calls are shared out among its clients.
    pub demand_memory: DurationMs,
    /// The TTL of DNS answers.
    pub ttl: DurationMs,
    /// The most client prefixes per app that have a binding or are remembered; those without calls and with the fewest recent queries make room.
    pub bindings_per_app: u32,
    /// The least number of clusters that hold an app, including those of its plans, as far as there are so many; 0 for every cluster, also those that
    /// join later. No other cluster gets its code and secrets.
    pub spread: usize,
    /// The most places (stages of apps in clusters) for which the errors of the plans are remembered; those not observed for the longest make room.
    pub learnt: usize,
    /// The most reports of demand waiting for the planner, over all apps.
    pub demand_pending: usize,
    /// The bandwidth between two clusters that placement assumes, in megabytes per second.
    pub bandwidth_mb_per_s: f64,
    /// How often node statuses are written to the metadata store if nothing important changed.
    pub status_write_interval: DurationMs,
    /// How long a silent node is remembered.
    pub forget_after: DurationMs,
    /// The most nodes.
    pub nodes_max: usize,
    /// The folder in which this controller alone records its planning passes for replay; none are recorded if absent.
    pub record: Option<PathBuf>,
    /// The most bytes of these records; the oldest make room.
    pub record_bytes: ByteSize,
}

/// With less, no record of a large network would fit.
const RECORD_BYTES_MIN: ByteSize = ByteSize::from_mib(1);

impl PlannerSettings {
    /// These settings in the types of the placement crate.
    ///
    /// # Errors
    /// When a setting is not valid: the first one, named by its key.
    pub fn terms(&self) -> Result<Terms, Error> {
        let wrong = |text: &str| Error::config(text.to_owned());
        if self.record_bytes.as_bytes() < RECORD_BYTES_MIN.as_bytes() {
            return Err(wrong("planner.record_bytes must be at least 1MiB"));
        }
        Ok(Terms {
            margin: Margin::new(self.margin)
                .ok_or_else(|| wrong("planner.margin must be from 0 up to, not including, 1"))?,
            bandwidth: Bandwidth::from_mb_per_s(self.bandwidth_mb_per_s)
                .ok_or_else(|| wrong("planner.bandwidth_mb_per_s must be positive"))?,
            horizon: Millis::from(self.horizon.as_duration()),
        })
    }
}

impl Default for PlannerSettings {
    fn default() -> Self {
        Self {
            interval: DurationMs::from_secs(5),
            watch_interval: DurationMs::from_millis(500),
            margin: 0.1,
            horizon: DurationMs::from_secs(10),
            move_share: 0.25,
            move_interval: DurationMs::from_secs(30),
            dwell: DurationMs::from_secs(30),
            drain_after: DurationMs::from_secs(60),
            demand_memory: DurationMs::from_secs(600),
            ttl: DurationMs::from_secs(20),
            bindings_per_app: 10_000,
            spread: 3,
            learnt: 100_000,
            demand_pending: 20_000,
            bandwidth_mb_per_s: 100.0,
            status_write_interval: DurationMs::from_secs(4),
            forget_after: DurationMs::from_secs(24 * 3600),
            nodes_max: 10_000,
            record: None,
            record_bytes: ByteSize::from_mib(256),
        }
    }
}
