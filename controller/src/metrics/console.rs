//! Metrics of the console's features.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::MetricFactory;

/// Metrics of figures, trial calls, and workflow runs.
pub struct ConsoleMetrics {
    /// Series of figures in memory.
    pub series: IntGauge,
    /// Counts dropped because there were too many series.
    pub series_dropped: IntGauge,
    /// Trial calls to apps, by result: `answered`, `refused`, `failed`.
    pub tries: IntCounterVec,
    /// Reports of workflow runs written to the store.
    pub runs_written: IntCounter,
    /// Reports of workflow runs dropped because the queue before writing was full.
    pub runs_dropped: IntCounter,
}

impl ConsoleMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
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
