//! Metrics of workflows: runs, and calls of their stages in both directions.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Metrics of workflows. Their labels have few values.
#[derive(Clone, Debug)]
pub struct WorkflowMetrics {
    /// Runs that this gateway coordinates now.
    pub running: IntGauge,
    /// Bytes that these runs hold.
    pub kept: IntGauge,
    /// Runs that ended, by outcome: answered, failed, late, refused.
    pub runs: IntCounterVec,
    /// Attempts at stages, by place (here, away) and result (done, not_started, lost, answered, refused).
    pub stages: IntCounterVec,
    /// Stage calls of other gateways, by outcome: answered, not_started, failed, forbidden.
    pub served: IntCounterVec,
    /// Requests of controllers, by subject (call, logs, calls, other) and whether they are answered or forbidden.
    pub controller_requests: IntCounterVec,
    /// Announcements of calls to later stages, by where these will run (here, away) and result (started, warm, no_room, later, unknown, lost,
    /// dropped).
    pub prewarms: IntCounterVec,
    /// Calls that other gateways announced, by what was done (started, warm, no_room, later, unknown).
    pub prewarms_served: IntCounterVec,
    /// Connections to gateways of other clusters.
    pub connections: IntGauge,
    /// Runs whose end was not reported to the controllers.
    pub unreported: IntCounter,
}

impl WorkflowMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        Ok(Self {
            running: make.gauge("workflow_running", "Workflow runs that this gateway leads.")?,
            kept: make.gauge("workflow_kept_bytes", "Bytes that runs of workflows keep.")?,
            runs: make.counters(
                "workflow_runs_total",
                "Workflow runs that ended: answered, failed, late, refused.",
                &["outcome"],
            )?,
            stages: make.counters(
                "workflow_stages_total",
                "Attempts at stages, here or away, by how they ended.",
                &["where", "outcome"],
            )?,
            served: make.counters(
                "stage_calls_served_total",
                "Stage calls of other gateways: answered, not_started, failed, forbidden.",
                &["outcome"],
            )?,
            controller_requests: make.counters(
                "controller_requests_total",
                "What only controllers may ask, by what it is about, answered or forbidden.",
                &["about", "outcome"],
            )?,
            prewarms: make.counters(
                "stage_prewarms_total",
                "Later stages that were told of their call, here or away, by what came of it.",
                &["where", "outcome"],
            )?,
            prewarms_served: make.counters(
                "stage_prewarms_served_total",
                "Calls that other gateways told of, by what was done.",
                &["outcome"],
            )?,
            connections: make.gauge(
                "stage_connections",
                "Connections to gateways of other clusters.",
            )?,
            unreported: make.counter(
                "workflow_runs_untold_total",
                "Workflow runs that ended and found no room in a report.",
            )?,
        })
    }
}
