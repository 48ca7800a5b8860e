//! Metrics of instances and of the calls that wait for them.

use prometheus::{Histogram, IntCounterVec, IntGauge, IntGaugeVec};

use super::{LATENCY, Maker};

/// Metrics of instances in containers and pods.
#[derive(Clone, Debug)]
pub struct InstanceMetrics {
    /// Instances by state: `starting`, `open`, `idle`, `paused`, `standby`.
    pub instances: IntGaugeVec,
    /// Calls by state: `running`, `waiting`.
    pub calls: IntGaugeVec,
    /// Apps whose calls wait because instances of the app, or of its tenant, hold their share of the memory.
    pub apps_at_share: IntGauge,
    /// Starts by result.
    pub starts: IntCounterVec,
    /// The time from the order to start an instance until it responded.
    pub cold_start: Histogram,
    /// The time that calls waited for an instance.
    pub wait: Histogram,
    /// Orders to pause and to resume idle instances, by result.
    pub pauses: IntCounterVec,
    /// The time from the order to resume a paused instance until calls could be handed to it.
    pub resume: Histogram,
    /// Instances on standby by what became of them, and starts that found none.
    pub standby: IntCounterVec,
    /// Instances stopped, by reason.
    pub stops: IntCounterVec,
    /// Instances that ended without an order, stopped responding or worked on calls too long, by reason.
    pub lost: IntCounterVec,
    /// Retried calls, by reason.
    pub retries: IntCounterVec,
}

impl InstanceMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        Ok(Self {
            instances: make.gauges("instances", "Instances by state.", &["state"])?,
            calls: make.gauges(
                "instance_calls",
                "Calls in instances, and calls that wait for one.",
                &["state"],
            )?,
            apps_at_share: make.gauge(
                "instance_apps_at_share",
                "Apps whose calls wait because the app's instances, or those of its tenant, hold their share of the memory.",
            )?,
            starts: make.counters(
                "instance_starts_total",
                "Starts of instances.",
                &["result"],
            )?,
            cold_start: make.histogram(
                "instance_cold_start_seconds",
                "From the order to start an instance until it answered.",
                &LATENCY,
            )?,
            wait: make.histogram(
                "instance_wait_seconds",
                "How long calls waited for an instance.",
                &LATENCY,
            )?,
            pauses: make.counters(
                "instance_pauses_total",
                "Orders to pause and to wake idle instances.",
                &["result"],
            )?,
            resume: make.histogram(
                "instance_resume_seconds",
                "From the order to wake a paused instance until calls could be handed to it.",
                &LATENCY,
            )?,
            standby: make.counters(
                "instance_standby_total",
                "Instances on standby by what became of them (used, gave_way, lost, not_started), and starts that found none.",
                &["result"],
            )?,
            stops: make.counters("instance_stops_total", "Instances stopped.", &["why"])?,
            lost: make.counters(
                "instance_lost_total",
                "Instances that ended or stopped answering by themselves, or worked on calls for longer than they may.",
                &["reason"],
            )?,
            retries: make.counters("call_retries_total", "Calls made again.", &["reason"])?,
        })
    }
}
