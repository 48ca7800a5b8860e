//! Metrics of instances on other nodes, and of those that run here for other nodes.
//!
//! The cluster itself counts where instances are placed and how long each stage takes (`fdn_cluster_*`).

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of the data path between nodes.
#[derive(Clone, Debug)]
pub(super) struct PeerMetrics {
    /// Instances that the cluster has on this node, from the order until they are gone.
    pub(super) held: IntGauge,
    /// Instances on other nodes that this one follows.
    pub(super) remote: IntGauge,
    /// Starts here for other nodes: `ok`, `refused` (another node may succeed), `failed`.
    pub(super) started: IntCounterVec,
    /// Starts that were tried on another node after a refusal.
    pub(super) retried: IntCounter,
    /// Calls of other nodes to instances here, by outcome.
    pub(super) served: IntCounterVec,
    /// Calls to instances on other nodes, by outcome.
    pub(super) calls: IntCounterVec,
    /// Instances whose requesting node was no longer heard of.
    pub(super) orphans: IntCounter,
    /// Instances of other nodes that were kept because their requesting nodes were gone.
    pub(super) kept: IntCounter,
    /// Kept instances that were handed to another node in place of a start.
    pub(super) lent: IntCounter,
    /// Idle instances of other nodes that were ended to make room.
    pub(super) gave_way: IntCounter,
    /// Connections to other nodes, for calls.
    pub(super) connections: IntGauge,
}

impl PeerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("fdn_peer_{name}");
        let gauge = |id: &str, help: &str| {
            let gauge = IntGauge::new(name(id), help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |id: &str, help: &str| {
            let counter = IntCounter::new(name(id), help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let counters = |id: &str, help: &str| {
            let counters = IntCounterVec::new(Opts::new(name(id), help), &["result"])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        Ok(Self {
            held: gauge("instances_here", "Instances that the cluster has here.")?,
            remote: gauge(
                "instances_elsewhere",
                "Instances elsewhere that this node uses.",
            )?,
            started: counters("starts_total", "Starts here for other nodes.")?,
            retried: counter("starts_retried_total", "Starts tried on one more node.")?,
            served: counters("calls_served_total", "Calls of other nodes.")?,
            calls: counters("calls_total", "Calls to instances on other nodes.")?,
            orphans: counter("orphans_total", "Instances whose nodes are not heard of.")?,
            kept: counter("kept_total", "Instances of nodes that left, kept here.")?,
            lent: counter("lent_total", "Kept instances handed to another node.")?,
            gave_way: counter("gave_way_total", "Idle instances of others ended for room.")?,
            connections: gauge("connections", "Connections to other nodes for calls.")?,
        })
    }
}
