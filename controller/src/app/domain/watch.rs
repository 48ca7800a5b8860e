//! The loop that checks proofs again: those that were found at a long interval, the others at a short one. A claim that is not proven in time is
//! deleted; a name that was lost is a claim from then on. It runs on the controller that has the planner's lease.

use std::sync::Arc;

use fdn_core::Timestamp;
use fdn_service::CancellationToken;
use futures::StreamExt;
use tracing::warn;

use super::apply_lookup;
use crate::Error;
use crate::app::actor::Actor;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::State;
use crate::store::domain::{DomainRow, domain_forget, domain_list_due};

/// The number of names that are looked up at the same time.
const PARALLEL: usize = 8;

/// Checks proofs until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.domains.interval.as_duration());
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
            warn!(error = chain(&error), "domains cannot be looked at now");
        }
    }
}

/// Checks every name that is due.
///
/// # Errors
/// When the store fails; the results up to then are kept.
pub async fn round(state: &State, now: Timestamp) -> Result<(), Error> {
    let settings = &state.settings.domains;
    let ago = |span: fdn_core::DurationMs| Timestamp(now.get().saturating_sub(span.as_millis()));
    let cuts = (ago(settings.recheck), ago(settings.retry));
    let mut connection = state.store.read().await?;
    let due = domain_list_due(&mut connection, cuts, settings.batch).await?;
    drop(connection);
    let stale = ago(settings.pending_for);
    let looks = due
        .into_iter()
        .map(|row| check_domain(state, row, stale, now));
    let mut looks = futures::stream::iter(looks).buffer_unordered(PARALLEL);
    while let Some(done) = looks.next().await {
        done?;
    }
    Ok(())
}

async fn check_domain(
    state: &State,
    row: DomainRow,
    stale: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    if !row.proven && row.failing_since.unwrap_or(row.created_at) < stale {
        let mut connection = state.store.read().await?;
        // Somebody may have had it verified meanwhile.
        domain_forget(&mut connection, &row.app, &row.host, stale).await?;
        return Ok(());
    }
    let seen = state.proofs.look_up(&row.host, &row.token).await;
    state
        .metrics
        .apps
        .domain_checks
        .with_label_values(&[seen.as_str()])
        .inc();
    match apply_lookup(state, &Actor::network(), &row, &seen, now).await {
        // It was removed meanwhile.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
