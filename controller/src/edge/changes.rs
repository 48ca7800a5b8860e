//! Keeps the change log current, from the messages that controllers send each other, and from the database for changes without a message.
//!
//! The database is authoritative. It is read as a whole at the start. Later, only what is newer than the last reading is read: when its revision has
//! moved and no message told so within `edge.refresh` (the broker is away, or a message was lost or could not be read), and when the broker's
//! connection was lost. A loss that no message reveals, such as half of a revision dropped by a full queue, is found with the next reading.

use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Delivery, Subscription};
use fdn_core::message::{Channel, SCHEMA};
use fdn_core::{NodeId, Revision, Timestamp};
use fdn_service::CancellationToken;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::change::Change;
use super::load;
use crate::Error;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::enrolment::certificate_list_revoked;

/// The pause before subscribing again.
const PAUSE: Duration = Duration::from_secs(1);
/// After a reading, the pause before the next one: this many times the time it took, and at most `READ_PAUSE_MAX`.
const READ_PAUSE_FACTOR: u32 = 4;
const READ_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Receives the changes of all controllers until shutdown. `name` is this controller's: its queue stays while it is away.
pub(super) async fn receive(state: Arc<State>, name: NodeId, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = receive_once(&state, &name) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Receives the messages of one subscription until it ends.
async fn receive_once(state: &State, name: &NodeId) {
    let subscription = Subscription {
        channel: Channel::Changes,
        consumer: name.to_string(),
        prefetch: state.settings.dispatch.prefetch,
    };
    match state.broker.subscribe(subscription).await {
        Ok(mut deliveries) => {
            // Messages sent before this queue existed are only in the database.
            lock(&state.edge.change_log).suspect_gap();
            while let Some(delivery) = deliveries.next().await {
                handle(state, delivery);
            }
        }
        Err(error) => warn!(
            error = chain(&error),
            "changes cannot be heard; the database is looked at instead"
        ),
    }
}

fn handle(state: &State, delivery: Delivery) {
    let envelope = delivery.envelope();
    let kind = envelope.message.kind();
    let count = |result: &str| {
        let consumed = &state.metrics.consumed;
        consumed.with_label_values(&[kind, result]).inc();
    };
    if envelope.schema > SCHEMA {
        warn!(
            kind,
            schema = envelope.schema,
            "a message of a newer schema goes to the dead letters; upgrade this controller"
        );
        count("refused");
        // The database has the change in a form that this release reads.
        lock(&state.edge.change_log).suspect_gap();
        return delivery.reject();
    }
    let at = load::revision_of(&envelope.message);
    if at.is_some_and(|at| at <= lock(&state.edge.change_log).read_revision()) {
        count("stale");
        return delivery.ack();
    }
    let age = fdn_service::now().since(envelope.sent_at).as_millis();
    let lag = &state.metrics.consumer_lag;
    lag.set(i64::try_from(age).unwrap_or(i64::MAX));
    let change = match load::change(state, envelope.message.clone()) {
        Ok(Some(change)) => change,
        Ok(None) => {
            warn!(kind, "a message that is no change goes to the dead letters");
            count("refused");
            lock(&state.edge.change_log).suspect_gap();
            return delivery.reject();
        }
        Err(error) => {
            // The database has the change too.
            warn!(
                kind,
                error = chain(&error),
                "a change cannot be read; the database is asked"
            );
            count("refused");
            lock(&state.edge.change_log).suspect_gap();
            return delivery.ack();
        }
    };
    if let Change::Fleet(fleet) = &change {
        let now = fdn_service::now();
        state.edge.machines.revoke(&fleet.fleet.revoked, now);
    }
    let new = lock(&state.edge.change_log).accept(change);
    count(if new { "used" } else { "stale" });
    delivery.ack();
    if new {
        wake_feeds(state);
    }
}

/// What the refresh loop last saw of the database.
#[derive(Debug, Default)]
struct RefreshState {
    /// The revision of the database when it was found ahead of the change log.
    ahead: Option<Revision>,
    /// The number of the last change at that time.
    last: u64,
    /// Whether reading the database fails.
    failing: bool,
    /// The broker's count of reconnects, replaced queues and bound queues at the last look.
    losses: u64,
    /// When quota counts were last sent.
    usage_sent_at: Option<Instant>,
    /// When the database may be read again.
    next_read_at: Option<Instant>,
}

/// Checks the database for missed changes until shutdown.
pub(super) async fn refresh(state: Arc<State>, shutdown: CancellationToken) {
    let every = state.settings.edge.refresh.as_duration();
    let mut timer = interval(every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refresh = RefreshState::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        match refresh_once(&state, &mut refresh).await {
            Ok(()) if std::mem::take(&mut refresh.failing) => {
                info!("what machines are told is current again");
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut refresh.failing, true) => warn!(
                error = chain(&error),
                "the database cannot be read for the feeds; machines are told what is known"
            ),
            Err(_) => {}
        }
    }
}

async fn refresh_once(state: &Arc<State>, refresh: &mut RefreshState) -> Result<(), Error> {
    let complete = lock(&state.edge.change_log).complete_revision();
    let (present, waits) = load::present(state, complete).await?;
    let counters = state.broker.counters();
    // A queue that was just bound may have missed a part of a revision.
    let losses = counters.reconnects + counters.replaced + counters.bound;
    let (held, loaded, may_have_gap) = {
        let mut change_log = lock(&state.edge.change_log);
        let quiet = std::mem::replace(&mut refresh.last, change_log.last()) == change_log.last();
        if quiet && !waits && change_log.is_loaded() && change_log.revision() == present {
            // Machines are told with their next heartbeat.
            change_log.mark_complete();
        }
        (
            change_log.revision(),
            change_log.is_loaded(),
            change_log.may_have_gap(),
        )
    };
    let lost = std::mem::replace(&mut refresh.losses, losses) != losses;
    // A message may be on its way: only a change without one by the next look is missing.
    let missing = held < present && refresh.ahead.is_some_and(|ahead| held < ahead);
    refresh.ahead = (held < present).then_some(present);
    if lost {
        lock(&state.edge.change_log).suspect_gap();
    }
    let may_read = refresh.next_read_at.is_none_or(|at| Instant::now() >= at);
    if !loaded || (may_read && (missing || lost || may_have_gap)) {
        let (suspected_gaps, read) = {
            let change_log = lock(&state.edge.change_log);
            (change_log.suspected_gaps(), change_log.read_revision())
        };
        let began = Instant::now();
        // Only what is newer than the last reading: older changes cannot have been missed, and what is not newer than the state changes nothing.
        let newer = load::newer(state, read).await?;
        refresh.next_read_at = Some(Instant::now() + pause_after(began.elapsed()));
        let new = lock(&state.edge.change_log).load(newer, suspected_gaps);
        if loaded && new {
            state.metrics.edge.refreshed.inc();
        }
        refresh.ahead = None;
        wake_feeds(state);
    }
    let quotas = state.settings.edge.quotas.as_duration();
    let due = |at: Instant| at.elapsed() >= quotas;
    if refresh.usage_sent_at.is_none_or(due) {
        let used = load::used(state).await?;
        refresh.usage_sent_at = Some(Instant::now());
        if lock(&state.edge.change_log).accept_usage(used) {
            wake_feeds(state);
        }
    }
    Ok(())
}

/// The pause after a reading that took so long: the more there is to read, the less often.
fn pause_after(took: Duration) -> Duration {
    (took * READ_PAUSE_FACTOR).min(READ_PAUSE_MAX)
}

/// Reads revoked certificates until shutdown, independently of messages and of the other readings: a removed machine must be cut off within two
/// seconds.
pub(super) async fn poll_revocations(state: Arc<State>, shutdown: CancellationToken) {
    let every = state.settings.edge.refresh.as_duration();
    let mut timer = interval(every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        match revoke(&state, fdn_service::now()).await {
            Ok(()) => failing = false,
            Err(error) if !std::mem::replace(&mut failing, true) => warn!(
                error = chain(&error),
                "removed machines cannot be read from the database; messages tell of them"
            ),
            Err(_) => {}
        }
    }
}

/// Reads the revoked certificates.
///
/// # Errors
/// When the store fails.
pub(super) async fn revoke(state: &State, now: Timestamp) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let revoked = certificate_list_revoked(&mut connection, now).await?;
    drop(connection);
    state.edge.machines.revoke(&revoked, now);
    Ok(())
}

/// Wakes the feeds, and updates the metrics of the change log.
pub(super) fn wake_feeds(state: &State) {
    let (revision, bytes) = {
        let change_log = lock(&state.edge.change_log);
        state.edge.feed_waker.wake(&change_log);
        (change_log.revision(), change_log.bytes())
    };
    let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    state.metrics.edge.revision.set(gauge(revision.get()));
    state.metrics.edge.history_bytes.set(gauge(bytes as u64));
}

/// How often this controller renews its certificate; that also picks up new authorities of the network, at no extra cost.
const RENEW_INTERVAL: Duration = Duration::from_secs(60);

/// Renews this controller's certificate, and follows the network's authorities.
pub(super) async fn renew_certificates(shared: Arc<super::server::Shared>, name: NodeId) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(RENEW_INTERVAL) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_reading_took_the_later_is_the_next() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(ms(5)), ms(20));
        assert_eq!(pause_after(ms(5000)), ms(20_000));
        assert_eq!(pause_after(ms(500_000)), READ_PAUSE_MAX);
    }
}
