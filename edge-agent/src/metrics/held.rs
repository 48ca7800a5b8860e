//! Metrics of what calls and instances hold of the node, read when the metrics are collected.

use std::sync::Arc;

use fdn_core::NodeId;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::invocations::Ledger;

/// Collects the figures of a ledger.
struct HeldCollector {
    ledger: Arc<Ledger>,
    gauges: IntGaugeVec,
}

/// Registers the metrics of what is held of a node by its ledger.
///
/// # Errors
/// When they are registered already.
pub fn show_held(
    registry: &Registry,
    node: &NodeId,
    ledger: Arc<Ledger>,
) -> Result<(), prometheus::Error> {
    let opts = Opts::new(
        "fdn_agent_held",
        "What is held of the node: memory in MiB by calls and instances, CPU in thousandths of a core by instances.",
    );
    let opts = opts.const_label("node", node.as_str());
    let gauges = IntGaugeVec::new(opts, &["what"])?;
    registry.register(Box::new(HeldCollector { ledger, gauges }))
}

impl Collector for HeldCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let by_instances = self.ledger.held_by_instances();
        let by_calls = self.ledger.held().saturating_sub(by_instances);
        let held = [
            ("memory_of_calls", by_calls.get()),
            ("memory_of_instances", by_instances.get()),
            ("cpu_of_instances", self.ledger.cpu_held().get()),
        ];
        for (what, value) in held {
            let gauge = self.gauges.with_label_values(&[what]);
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self.gauges.collect()
    }
}
