//! Garbage collection of artifacts that no version uses any more, after a grace time. One controller does so at a time, to save work; several at
//! once, or one that stops in the middle, do no harm ([`crate::store::artifact`] explains why).

use std::sync::Arc;

use fdn_core::Timestamp;
use fdn_service::CancellationToken;
use tracing::{info, warn};

use crate::Error;
use crate::artifacts::Object;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::State;
use crate::store::artifact::{
    artifact_count, artifact_find, artifact_list_unused, artifact_mark, trash_delete, trash_list,
};
use crate::store::in_transaction;

/// The number of rows read at a time.
const PAGE: u32 = 100;
/// The most pages of one round; what is left waits for the next one.
const PAGES: u32 = 100;

/// Runs rounds until `stop` is cancelled, while this controller has the collector's lease.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.artifacts.collect_interval.as_duration());
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if !state.singletons.has(Work::Collector) {
            continue;
        }
        if let Err(failure) = round(&state, fdn_service::now()).await {
            state.metrics.artifacts.failures.inc();
            warn!(
                error = chain(&failure),
                "artifacts cannot be collected now; the next round goes on"
            );
        }
    }
}

/// Runs one round: marks, then removes what is marked. Returns the number of objects removed.
///
/// # Errors
/// When the metadata store fails; what was done until then is kept.
pub async fn round(state: &State, now: Timestamp) -> Result<u64, Error> {
    mark(state, now).await?;
    let removed = sweep(state).await?;
    let counts = artifact_count(&mut *state.store.read().await?).await?;
    let metrics = &state.metrics.artifacts;
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    metrics.kept.set(signed(counts.kept));
    metrics.bytes.set(signed(counts.bytes));
    metrics.trash.set(signed(counts.trash));
    Ok(removed)
}

/// Marks artifacts that no version uses and nobody has touched for the grace time. Returns their number.
///
/// # Errors
/// When the metadata store fails.
pub async fn mark(state: &State, now: Timestamp) -> Result<u64, Error> {
    let grace = state.settings.artifacts.grace.as_millis();
    // The clock of the controller that touched it may be ahead: a touch in the future counts as recent.
    let before = Timestamp(now.get().saturating_sub(grace));
    let mut marked = 0;
    for _ in 0..PAGES {
        let found = artifact_list_unused(&mut *state.store.read().await?, before, PAGE).await?;
        let last = found.len() < PAGE as usize;
        for digest in found {
            let done: bool = in_transaction!(state.store, tx => {
                Ok::<_, Error>(artifact_mark(&mut tx, &digest, before, now).await?)
            })?;
            marked += u64::from(done);
        }
        if last {
            break;
        }
    }
    Ok(marked)
}

/// Removes marked objects. Returns their number. One that cannot be removed stays marked and does not keep others from being removed.
///
/// # Errors
/// When the metadata store fails.
pub async fn sweep(state: &State) -> Result<u64, Error> {
    let (mut removed, mut after): (u64, Option<Object>) = (0, None);
    for _ in 0..PAGES {
        let found = trash_list(&mut *state.store.read().await?, after.as_ref(), PAGE).await?;
        let Some(last) = found.last().cloned() else {
            break;
        };
        for object in &found {
            match delete(state, object).await {
                Ok(()) => {
                    trash_delete(&mut *state.store.read().await?, object).await?;
                    state.metrics.artifacts.collected.inc();
                    removed += 1;
                    info!(digest = %object.digest, "an artifact that nobody used was removed");
                }
                Err(error) => {
                    state.metrics.artifacts.failures.inc();
                    warn!(digest = %object.digest, error = chain(&error), "an artifact cannot be removed now");
                }
            }
        }
        after = Some(last);
    }
    Ok(removed)
}

/// Deletes an object, and the machine code compiled from its component unless the component has been uploaded again.
async fn delete(state: &State, object: &Object) -> Result<(), Error> {
    let live = artifact_find(&mut *state.store.read().await?, &object.digest).await?;
    if live.name.is_empty() || live == *object {
        // The machine code goes first: if that fails, the object's row makes the next round try again.
        state.artifacts.compiled_delete(object.digest).await?;
    }
    Ok(state.artifacts.delete(object).await?)
}
