//! Metrics of calls that are handed on between gateways.

use prometheus::IntCounterVec;

use super::Maker;

/// Metrics of calls that are handed on. Their labels have few values.
#[derive(Clone, Debug)]
pub struct ForwardMetrics {
    /// Attempts to hand a call on, by target (node, cluster), result (answered, busy, not_started, not_reached, lost, late) and reason (unready,
    /// busy); target none and result full if too many are in progress.
    pub sent: IntCounterVec,
    /// Calls that other gateways handed on to this one, by outcome: answered, not_started, failed.
    pub served: IntCounterVec,
}

impl ForwardMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        Ok(Self {
            sent: make.counters(
                "forwarded_calls_total",
                "Attempts to hand a call on to another node or cluster, by how they ended.",
                &["to", "outcome", "why"],
            )?,
            served: make.counters(
                "forwarded_calls_served_total",
                "Calls handed on by other gateways: answered, not_started, failed.",
                &["outcome"],
            )?,
        })
    }
}
