//! What is counted of spans that are exported.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Metrics of the export of spans. Their label takes three words.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    /// Calls that wait to be exported.
    pub waiting: IntGauge,
    /// Calls that found the queue full.
    pub dropped: IntCounter,
    /// Spans that left the queue: sent; rejected by the collector; failed, because it was not reached or did not take them.
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
