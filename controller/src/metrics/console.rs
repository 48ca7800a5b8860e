//! What is counted of what the console shows.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Of figures, calls to try an app with, and runs of workflows.
pub struct ConsoleMetrics {
    /// Series of figures in memory.
    pub series: IntGauge,
    /// Counts that belong to no series because there were too many.
    pub series_dropped: IntGauge,
    /// Calls to try an app with, by result: `answered`, `refused`, `failed`.
    pub tries: IntCounterVec,
    /// Reports of runs that were written.
    pub runs_written: IntCounter,
    /// Reports of runs that found no room before they were written.
    pub runs_dropped: IntCounter,
}

impl ConsoleMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, ServiceError> {
        Ok(Self {
            series: make.gauge(
                "fdn_controller_figure_series",
                "Series of figures in memory",
            )?,
            series_dropped: make.gauge(
                "fdn_controller_figure_series_dropped",
                "Counts of figures for which there was no series left",
            )?,
            tries: make.counters(
                "fdn_controller_tries_total",
                "Calls to try an app with, by result",
                &["result"],
            )?,
            runs_written: make.counter(
                "fdn_controller_runs_written_total",
                "Reports of runs of workflows that were written",
            )?,
            runs_dropped: make.counter(
                "fdn_controller_runs_dropped_total",
                "Reports of runs of workflows for which there was no room",
            )?,
        })
    }
}
