//! Hears what nodes and DNS servers report. Reports go into memory and are acknowledged at once: the next one says it again.

use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Delivery, Recent, Subscription};
use fdn_core::message::{Channel, Envelope, Message, SCHEMA};
use fdn_service::CancellationToken;
use tracing::warn;

use crate::app::runs;
use crate::error::chain;
use crate::geo::Sample;
use crate::reconcile::live::Observation;
use crate::state::{State, lock};

/// The pause before subscribing again.
const PAUSE: Duration = Duration::from_secs(1);

/// Consumes until shutdown.
pub async fn run(state: Arc<State>, shutdown: CancellationToken) {
    let mut recent = Recent::new(state.settings.dispatch.remembered);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = consume(&state, &mut recent) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Consumes one subscription to its end.
async fn consume(state: &State, recent: &mut Recent) {
    let subscription = Subscription {
        channel: Channel::Controller,
        consumer: format!("controller-{}", uuid::Uuid::now_v7().simple()),
        prefetch: state.settings.dispatch.prefetch,
    };
    match state.broker.subscribe(subscription).await {
        Ok(mut deliveries) => {
            while let Some(delivery) = deliveries.next().await {
                handle(state, recent, delivery);
            }
        }
        Err(error) => warn!(error = chain(&error), "cannot hear reports; trying again"),
    }
}

fn handle(state: &State, recent: &mut Recent, delivery: Delivery) {
    let envelope = delivery.envelope();
    let kind = envelope.message.kind();
    let count = |result: &str| {
        state
            .metrics
            .consumed
            .with_label_values(&[kind, result])
            .inc()
    };
    if envelope.schema > SCHEMA {
        warn!(
            kind,
            schema = envelope.schema,
            "a report of a newer schema goes to the dead letters; upgrade this controller"
        );
        count("refused");
        return delivery.reject();
    }
    if !recent.insert(envelope.id) {
        count("duplicate");
        return delivery.ack();
    }
    let age = fdn_service::now().since(envelope.sent_at).as_millis();
    state
        .metrics
        .consumer_lag
        .set(i64::try_from(age).unwrap_or(i64::MAX));
    match take_in(state, envelope) {
        Ok(result) => {
            count(result);
            delivery.ack();
        }
        Err(()) => {
            warn!(kind, "a message that is no report goes to the dead letters");
            count("refused");
            delivery.reject();
        }
    }
}

/// Takes a report in; an error if it is none.
fn take_in(state: &State, envelope: &Envelope) -> Result<&'static str, ()> {
    let now = fdn_service::now();
    match &envelope.message {
        Message::NodeStatus(status) => {
            let observation = lock(&state.live).observe((**status).clone(), now);
            Ok(match observation {
                Observation::Important | Observation::Drifted => {
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
            })
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
            Ok("used")
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
            Ok("used")
        }
        Message::RunReport(report) => {
            runs::heard(state, &report.runs);
            Ok("used")
        }
        Message::AppDesired(_)
        | Message::FleetDesired(_)
        | Message::BindingsDesired(_)
        | Message::BindingsChanged(_)
        | Message::NetworkDesired(_)
        | Message::TxtDesired(_)
        | Message::JobTicket(_) => Err(()),
    }
}
