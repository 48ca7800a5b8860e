//! Empties the outbox: publishes messages in the order of the state changes, each one after the previous one was confirmed, and deletes a row
//! only after its confirmation. A crash between confirmation and deletion sends a message twice; receivers recognize it by its id and revision.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::message::Message;
use fdn_service::CancellationToken;
use tracing::{info, warn};

use crate::Error;
use crate::app::secrets;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::outbox::{OutboxRow, outbox_delete, outbox_list, outbox_stats};

/// The first back-off after a failure; it doubles up to the limit in the settings.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Publishes until shutdown.
pub async fn run(state: Arc<State>, shutdown: CancellationToken) {
    let settings = state.settings.dispatch.clone();
    let mut pause = FIRST_PAUSE;
    let mut failing = false;
    let mut turn = state.singletons.watch(Work::Publisher);
    loop {
        let published = if *turn.borrow_and_update() {
            publish_all(&state).await
        } else {
            // Another controller publishes, over the same broker and store.
            Ok(())
        };
        let wait = match published {
            Ok(()) => {
                if std::mem::take(&mut failing) {
                    info!("messages leave again");
                }
                pause = FIRST_PAUSE;
                settings.interval.as_duration()
            }
            Err(error) => {
                state.metrics.publish_failures.inc();
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        error = chain(&error),
                        "messages stay in the outbox until the broker takes them"
                    );
                }
                pause = (pause * 2).min(settings.backoff.as_duration().max(FIRST_PAUSE));
                pause.mul_f64(rand::random_range(0.5..1.0))
            }
        };
        note_state(&state, failing).await;
        tokio::select! {
            () = shutdown.cancelled() => return,
            // A new message does not shorten the back-off after a failure.
            () = state.outbox_wake.notified(), if !failing => {}
            // The sender is part of the state, so it outlives this task.
            _ = turn.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Publishes until the outbox is empty.
async fn publish_all(state: &State) -> Result<(), Error> {
    loop {
        let mut connection = state.store.read().await?;
        let rows = outbox_list(&mut connection, state.settings.dispatch.batch).await?;
        drop(connection);
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            if !state.singletons.has(Work::Publisher) {
                return Ok(());
            }
            publish(state, row).await?;
        }
    }
}

async fn publish(state: &State, mut row: OutboxRow) -> Result<(), Error> {
    let limit = state.settings.dispatch.confirm_timeout.as_duration();
    if let Message::AppDesired(desired) = &mut row.envelope.message {
        let mut connection = state.store.read().await?;
        secrets::fill(state, &mut connection, desired).await?;
    }
    match tokio::time::timeout(limit, state.broker.publish(&row.envelope)).await {
        Ok(confirmed) => confirmed?,
        Err(_) => {
            return Err(fdn_bus::BusError::NotConfirmed {
                id: row.envelope.id,
            }
            .into());
        }
    }
    state
        .metrics
        .published
        .with_label_values(&[row.envelope.message.kind()])
        .inc();
    in_transaction!(state.store, tx => outbox_delete(&mut tx, row.position).await)
        .map_err(Error::from)
}

/// Updates metrics and readiness.
async fn note_state(state: &State, failing: bool) {
    let trouble = match state.broker.check().await {
        Ok(()) => failing.then(|| "messages cannot be published".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    // A controller that never reached the broker has wrong settings, and no balancer should send it anything. Later it serves all but new jobs without
    // one, as its peers do: if all of them were not ready then, nobody would reach the API.
    let (ok, detail) = (trouble.is_none(), trouble.unwrap_or_default());
    state.readiness.set_initial("broker", ok, detail);
    let stats = async {
        let mut connection = state.store.read().await?;
        outbox_stats(&mut connection).await
    };
    match stats.await {
        Ok(stats) => {
            let age = stats
                .oldest
                .map_or(0, |at| fdn_service::now().since(at).as_millis());
            state
                .metrics
                .outbox_depth
                .set(i64::try_from(stats.depth).unwrap_or(i64::MAX));
            state
                .metrics
                .outbox_age
                .set(i64::try_from(age).unwrap_or(i64::MAX));
            state.readiness.set("store", true, "");
        }
        Err(error) => state.readiness.set("store", false, error.to_string()),
    }
}
