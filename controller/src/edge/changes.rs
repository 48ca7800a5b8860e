//! Keeps the book current: from the messages that controllers send each other, and from the database for what no message told.
//!
//! The database has the last word. It is read at the start, when its revision has moved and no message said so within `edge.refresh` (the broker is
//! away, or a message was lost), and when the broker's connection was lost: so what is told to machines depends on no message.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::{Revision, Timestamp};
use fdn_service::CancellationToken;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::load;
use crate::Error;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::enrolment::certificate_list_revoked;

/// What was seen of the database, and what of it is done.
#[derive(Debug, Default)]
struct Seen {
    /// The revision at which the database was found ahead of the book.
    ahead: Option<Revision>,
    /// Whether reading it fails.
    failing: bool,
    /// The broker's losses and replaced queues when it was read last.
    losses: u64,
    /// When quotas were told last.
    told_used: Option<Instant>,
}

/// Looks at the database until shutdown.
pub(super) async fn refresh(state: Arc<State>, shutdown: CancellationToken) {
    let every = state.settings.edge.refresh.as_duration();
    let mut timer = interval(every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        match look(&state, &mut seen).await {
            Ok(()) if std::mem::take(&mut seen.failing) => {
                info!("what machines are told is current again");
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut seen.failing, true) => warn!(
                error = chain(&error),
                "the database cannot be read for the feeds; machines are told what is known"
            ),
            Err(_) => {}
        }
    }
}

async fn look(state: &State, seen: &mut Seen) -> Result<(), Error> {
    let now = fdn_service::now();
    revoke(state, now).await?;
    let present = load::revision(state).await?;
    let counters = state.broker.counters();
    let losses = counters.reconnects + counters.replaced;
    let (held, loaded) = {
        let book = lock(&state.edge.book);
        (book.revision(), book.is_loaded())
    };
    let lost = std::mem::replace(&mut seen.losses, losses) != losses;
    // A message may be on its way: only what was not told by the next look is missing.
    let missing = held < present && seen.ahead.is_some_and(|ahead| held < ahead);
    seen.ahead = (held < present).then_some(present);
    if !loaded || missing || lost {
        let everything = load::everything(state).await?;
        let new = lock(&state.edge.book).load(everything);
        if loaded && new {
            state.metrics.edge.refreshed.inc();
        }
        seen.ahead = None;
        show(state);
    }
    let quotas = state.settings.edge.quotas.as_duration();
    let due = |at: Instant| at.elapsed() >= quotas;
    if seen.told_used.is_none_or(due) {
        let used = load::used(state).await?;
        seen.told_used = Some(Instant::now());
        if lock(&state.edge.book).take(super::book::Change::Used(Arc::new(used))) {
            show(state);
        }
    }
    Ok(())
}

/// Hears of certificates that no longer count, also while no message comes: a removed machine is to be gone within two seconds.
async fn revoke(state: &State, now: Timestamp) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let revoked = certificate_list_revoked(&mut connection, now).await?;
    drop(connection);
    state.edge.machines.revoke(&revoked);
    Ok(())
}

/// Wakes the feeds, and shows how far they can be.
pub(super) fn show(state: &State) {
    let (last, revision, octets) = {
        let book = lock(&state.edge.book);
        (book.last(), book.revision(), book.octets())
    };
    let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    state.metrics.edge.revision.set(gauge(revision.get()));
    state.metrics.edge.history_bytes.set(gauge(octets as u64));
    state.edge.changed.send_replace(last);
}

/// Longer than this no certificate of this controller is left unlooked at.
const LOOK: Duration = Duration::from_secs(60);

/// Replaces this controller's certificate in time, and follows the network's authorities.
pub(super) async fn certify(shared: Arc<super::server::Shared>, name: fdn_core::NodeId) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        match super::certificate(&shared.state, &name).await {
            Ok(config) => {
                failing = false;
                let mut tls = shared
                    .tls
                    .write()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                *tls = config;
            }
            Err(error) if !std::mem::replace(&mut failing, true) => warn!(
                error = chain(&error),
                "the certificate for machines cannot be renewed; trying again until it works"
            ),
            Err(_) => {}
        }
    }
}
