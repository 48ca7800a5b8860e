//! The loop that deletes expired TXT records. DNS servers stop answering with them by themselves. It runs on the controller with the planner's
//! lease.

use std::sync::Arc;

use fdn_core::Timestamp;
use fdn_service::CancellationToken;
use tracing::{info, warn};

use super::{entry, removal_message};
use crate::Error;
use crate::app::actor::Actor;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::State;
use crate::store::audit::audit_insert;
use crate::store::in_transaction;
use crate::store::outbox::outbox_push;
use crate::store::revision::revision_next;
use crate::store::txt::{txt_delete, txt_list_over};

/// Runs rounds until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.records.interval.as_duration());
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if !state.singletons.has(Work::Planner) {
            continue;
        }
        if let Err(error) = round(&state, fdn_service::now()).await {
            warn!(
                error = chain(&error),
                "text records whose time is over cannot be taken away now"
            );
        }
    }
}

/// Deletes records that have expired at `now`.
///
/// # Errors
/// When the store fails.
pub async fn round(state: &State, now: Timestamp) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let due = txt_list_over(&mut connection, now, 1).await?;
    drop(connection);
    if due.is_empty() {
        return Ok(());
    }
    let (actor, batch) = (Actor::network(), state.settings.records.batch);
    let _alone = state.changes.lock().await;
    let over: u64 = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let mut over = 0;
        for row in txt_list_over(&mut tx, now, batch).await? {
            txt_delete(&mut tx, &row.name).await?;
            outbox_push(&mut tx, revision, removal_message(&row.name, revision), now).await?;
            audit_insert(&mut tx, &entry(&actor, "txt.expire", (Some(&row), None), now)).await?;
            over += 1;
        }
        Ok::<_, Error>(over)
    })?;
    let changes = &state.metrics.apps.txt_changes;
    changes.with_label_values(&["expired"]).inc_by(over);
    state.outbox_wake.notify_one();
    info!(
        names = over,
        "text records were taken away, whose time is over"
    );
    Ok(())
}
