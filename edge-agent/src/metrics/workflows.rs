//! What is counted of workflows: runs, and calls of their stages in both directions.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Metrics of workflows. Their labels take a few words each.
#[derive(Clone, Debug)]
pub struct WorkflowMetrics {
    /// Runs that this gateway leads now.
    pub running: IntGauge,
    /// Bytes that these runs keep.
    pub kept: IntGauge,
    /// Runs that ended, by outcome: answered, failed, late, refused.
    pub runs: IntCounterVec,
    /// Attempts at stages, by where they ran (here, away) and how they ended (done, not_started, lost, answered, refused).
    pub stages: IntCounterVec,
    /// Stage calls of other gateways, by outcome: answered, not_started, failed, forbidden.
    pub served: IntCounterVec,
    /// What controllers ask, by what it is about (call, logs, calls, other) and whether it is answered or forbidden.
    pub asked: IntCounterVec,
    /// Later stages that were told of their call, by where they will run (here, away) and what came of it (started, warm, no_room, later, unknown, lost,
    /// dropped).
    pub prewarms: IntCounterVec,
    /// Calls that gateways told of, by what was done (started, warm, no_room, later, unknown).
    pub prewarms_served: IntCounterVec,
    /// Connections to gateways of other clusters.
    pub connections: IntGauge,
    /// Runs of which the controllers were not told how they ended.
    pub untold: IntCounter,
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
            asked: make.counters(
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
            untold: make.counter(
                "workflow_runs_untold_total",
                "Workflow runs that ended and found no room in a report.",
            )?,
        })
    }
}
