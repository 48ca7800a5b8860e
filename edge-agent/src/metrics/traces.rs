//! Metrics of the export of spans.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Metrics of the export of spans. Their label has three values.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    /// Calls waiting to be exported.
    pub waiting: IntGauge,
    /// Calls dropped because the queue was full.
    pub dropped: IntCounter,
    /// Spans that left the queue: sent; rejected by the collector; failed, because the collector was not reached or did not accept them.
    pub spans: IntCounterVec,
}

impl TraceMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        Ok(Self {
            waiting: make.gauge(
                "trace_calls_waiting",
                "Calls whose spans wait to be exported.",
            )?,
            dropped: make.counter(
                "trace_calls_dropped_total",
                "Calls whose spans found the queue full.",
            )?,
            spans: make.counters(
                "trace_spans_total",
                "Spans that were sent, rejected or failed.",
                &["result"],
            )?,
        })
    }
}
