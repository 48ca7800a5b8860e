//! Metrics of machines at the edge.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::MetricFactory;

/// Metrics of the listener for nodes and DNS servers.
pub struct EdgeMetrics {
    /// Open connections, by role.
    pub connections: IntGaugeVec,
    /// Connections, by the outcome of accepting them: `open`, `full`, `busy`, `handshake`, `machine`.
    pub accepted: IntCounterVec,
    /// Connections of machines that were admitted while the database did not answer and could not be checked yet, by role.
    pub unjudged: IntGaugeVec,
    /// Connections cut because the machine was removed, its certificate expired, or it turned out to be unknown.
    pub cut: IntCounter,
    /// Connections cut because the machine did not read an artifact that it asked for.
    pub stalled: IntCounter,
    /// Requests, by kind and result: `ok`, `refused`, `failed`.
    pub requests: IntCounterVec,
    /// Refusals of things that machines may not do, by kind.
    pub refused: IntCounterVec,
    /// Open feeds, by role.
    pub feeds: IntGaugeVec,
    /// Snapshots sent to feeds, by reason: `first`, `gap`, `slow`, `ahead`.
    pub snapshots: IntCounterVec,
    /// Frames handed to connections.
    pub frames: IntCounter,
    /// Bytes of machines' request bodies in memory.
    pub body_bytes: IntGauge,
    /// Bytes of changes that are kept for machines that were away.
    pub history_bytes: IntGauge,
    /// The newest revision in the change log.
    pub revision: IntGauge,
    /// Readings of the database that found changes without a message.
    pub refreshed: IntCounter,
}

impl EdgeMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        let by_role =
            |name: &str, help: &str| make.add(IntGaugeVec::new(Opts::new(name, help), &["role"]));
        Ok(Self {
            connections: by_role(
                "fdn_controller_edge_connections",
                "Open connections of machines at the edge",
            )?,
            accepted: make.counters(
                "fdn_controller_edge_accepted_total",
                "Connections of machines by how they began",
                &["result"],
            )?,
            unjudged: by_role(
                "fdn_controller_edge_unjudged",
                "Connections of machines that the database could not be asked about yet",
            )?,
            cut: make.counter(
                "fdn_controller_edge_cut_total",
                "Connections that were cut because the machine was removed, its certificate ended, or it turned out to be unknown",
            )?,
            stalled: make.counter(
                "fdn_controller_edge_stalled_total",
                "Connections that were cut because the machine did not take an artifact that it asked for",
            )?,
            requests: make.counters(
                "fdn_controller_edge_requests_total",
                "Requests of machines by what they are and result",
                &["what", "result"],
            )?,
            refused: make.counters(
                "fdn_controller_edge_refused_total",
                "What machines tried that is not theirs to do",
                &["what"],
            )?,
            feeds: by_role("fdn_controller_edge_feeds", "Open feeds")?,
            snapshots: make.counters(
                "fdn_controller_edge_snapshots_total",
                "Snapshots given to feeds, by why",
                &["why"],
            )?,
            frames: make.counter(
                "fdn_controller_edge_frames_total",
                "Frames handed to connections of machines",
            )?,
            body_bytes: make.gauge(
                "fdn_controller_edge_body_bytes",
                "Bytes of machines' bodies in memory",
            )?,
            history_bytes: make.gauge(
                "fdn_controller_edge_history_bytes",
                "Bytes of changes that are kept for machines that were away",
            )?,
            revision: make.gauge(
                "fdn_controller_edge_revision",
                "The revision that machines are told of",
            )?,
            refreshed: make.counter(
                "fdn_controller_edge_refreshed_total",
                "Times the database held what no message had told",
            )?,
        })
    }
}
