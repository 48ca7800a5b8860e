//! Hears what nodes and DNS servers report. Reports go into memory and are acknowledged at once: the next one says it again.

use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Delivery, Recent, Subscription};
use fdn_core::message::{Channel, SCHEMA};
use fdn_service::CancellationToken;
use tracing::warn;

use crate::edge::reports;
use crate::error::chain;
use crate::state::State;

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
    reports::take_in(state, &envelope.message);
    delivery.ack();
}
