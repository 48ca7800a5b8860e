//! How plans are made.

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
    /// How often everything is planned anew when nothing asked for it.
    pub interval: DurationMs,
    /// How often it is looked whether a node died or returned.
    pub watch_interval: DurationMs,
    /// The share of the time that a better cluster must save before clients are moved.
    pub margin: f64,
    /// How long the demand for a cluster that is asked for more than it can do is taken to last: what waits there by then counts against it.
    pub horizon: DurationMs,
    /// The share of all work and all client groups that may be moved for a gain within `move_interval`. Clients whose cluster fails move at once.
    pub move_share: f64,
    /// See `move_share`.
    pub move_interval: DurationMs,
    /// How long clients that were moved for a gain stay before they are moved for another one; 0 for as short as the bound on moves lets them.
    pub dwell: DurationMs,
    /// How long a cluster that clients were moved away from keeps the app loaded: longer than their old answers live.
    pub drain_after: DurationMs,
    /// What a prefix asked so long ago counts half, when an app's calls are shared out among its clients.
    pub demand_memory: DurationMs,
    /// The time to live of DNS answers.
    pub ttl: DurationMs,
    /// The most client prefixes of one app that have a binding or are remembered; those that nobody calls from and that ask least lately make room.
    pub bindings_per_app: u32,
    /// Clusters that hold an app at least, those of its plans among them, as far as there are so many; every cluster, also one that joins later, if 0.
    /// No other is told its code and secrets.
    pub spread: usize,
    /// Places (stages of apps in clusters) of which it is remembered by how much plans were off; those unseen longest make room.
    pub learnt: usize,
    /// Reports of demand that wait for the planner, over all apps.
    pub demand_pending: usize,
    /// Megabytes per second between two clusters, as placement assumes.
    pub bandwidth_mb_per_s: f64,
    /// How often what nodes say is written to the metadata store when nothing important changed.
    pub status_write_interval: DurationMs,
    /// How long a silent node is remembered.
    pub forget_after: DurationMs,
    /// The most nodes.
    pub nodes_max: usize,
    /// A folder of this controller's own in which it records its planning passes, to be replayed; none is recorded unless it is set.
    pub record: Option<PathBuf>,
    /// The most room that records take there; the oldest make room.
    pub record_bytes: ByteSize,
}

/// Less room than this holds no records of a large network.
const RECORD_BYTES_MIN: ByteSize = ByteSize::from_mib(1);

impl PlannerSettings {
    /// What placement needs of these, in its own types.
    ///
    /// # Errors
    /// The first setting that makes no sense, by its key.
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
