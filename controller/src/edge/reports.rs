//! Handles the reports of machines: keeps them in memory, from where they are stored periodically. What is lost is in the next report again.

use fdn_core::message::Message;
use tracing::warn;

use crate::app::runs;
use crate::geo::Sample;
use crate::reconcile::node_registry::Observation;
use crate::state::{State, lock};

/// Handles a report that was judged, and counts it.
pub fn take_in(state: &State, message: &Message) {
    let result = used(state, message);
    let consumed = &state.metrics.consumed;
    consumed.with_label_values(&[message.kind(), result]).inc();
}

fn used(state: &State, message: &Message) -> &'static str {
    let now = fdn_service::now();
    match message {
        Message::NodeStatus(status) => {
            let observation = lock(&state.live).observe((**status).clone(), now);
            match observation {
                Observation::Important | Observation::Drifted => {
                    if observation == Observation::Important && status.controller_port.is_none() {
                        warn!(node = %status.node, version = status.version, "an agent of an older release cannot be asked for logs and calls, nor run jobs; upgrade it");
                    }
                    state.planner_wake.notify_one();
                    "used"
                }
                Observation::Routine => "used",
                Observation::Stale => "stale",
                Observation::Removed => {
                    warn!(node = %status.node, "a node that was removed still reports; stop its agent");
                    "removed"
                }
                Observation::Refused => {
                    warn!(node = %status.node, "a node beyond planner.nodes_max is ignored");
                    "refused"
                }
            }
        }
        Message::DemandReport(report) => {
            let mut demand = lock(&state.demand);
            if demand.add(report.entries.clone()) {
                state.planner_wake.notify_one();
            }
            state
                .metrics
                .demand_dropped
                .set(i64::try_from(demand.dropped()).unwrap_or(i64::MAX));
            "used"
        }
        Message::RttReport(report) => {
            let mut rtt = lock(&state.rtt);
            for sample in &report.samples {
                rtt.observe_client(*sample, &report.cluster, now);
            }
            drop(rtt);
            let mut links = lock(&state.links);
            for (other, rtt) in report.links.iter().filter(|(to, _)| *to != report.cluster) {
                let sample = Sample {
                    key: (report.cluster.clone(), other.clone()),
                    rtt: *rtt,
                    connections: 1,
                };
                links.observe(sample, now);
            }
            "used"
        }
        Message::RunReport(report) => {
            runs::receive(state, &report.runs);
            "used"
        }
        Message::AppDesired(_)
        | Message::FleetDesired(_)
        | Message::BindingsDesired(_)
        | Message::BindingsChanged(_)
        | Message::NetworkDesired(_)
        | Message::TxtDesired(_)
        | Message::JobTicket(_) => "refused",
    }
}
