//! Events: what happens in the network, streamed to readers as it happens.
//!
//! Code that changes state need not emit events. Twice a second, the controller with the planner's lease looks at what the database says happened
//! (entries of the audit log, plans with a new revision) and at what nodes report (their states, apps that all of them serve), and appends what
//! is new to the table of events ([`collect`]). Every controller reads that table and serves its own readers ([`hub`]), so it does not matter
//! which one a reader is connected to, and a reader that reconnects to another one continues where it was.
//!
//! Rights change while a stream lasts. A reader is judged again before events that it asked for are sent, and with each heartbeat: what a person may
//! not see any more is not sent, and the stream of a session or token that has ended, or of a user who is disabled, ends.

pub mod collect;
pub mod hub;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fdn_core::event::{Event, EventKind, MISSED, Missed};
use fdn_core::figures::Window;
use fdn_core::{AppName, Right, TenantId};
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tracing::debug;

use super::access::{Caller, Verdict, present};
use crate::Error;
use crate::error::chain;
use crate::state::State;
use hub::Next;

/// The name of the event that a step of the figures has ended. It is not stored, and has no id.
const FIGURES: &str = "figures";
/// The number of events read from the store at a time.
const BATCH: u32 = 200;
/// After this time a reader that could not be judged is judged once more.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The filters and options of a reader.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    /// Only events of this tenant.
    pub tenant: Option<TenantId>,
    /// Only events of this app.
    pub app: Option<AppName>,
    /// Only events of these kinds; of all, if empty.
    pub kinds: BTreeSet<EventKind>,
    /// Only events after this id. If absent: from now on with `follow`, otherwise all stored events.
    pub after: Option<u64>,
    /// Whether to wait for further events.
    pub follow: bool,
    /// Whether to send an event each time that a step of the figures has ended.
    pub figures: bool,
}

impl Subscription {
    /// Whether the reader asked for an event.
    fn asks_for(&self, event: &Event) -> bool {
        (self.tenant.is_none() || self.tenant == event.tenant)
            && (self.app.is_none() || self.app == event.app)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

/// Whether a caller may see an event.
fn may_see(caller: &Caller, event: &Event) -> bool {
    match event.tenant {
        Some(tenant) => caller.allowed(Right::Look, Some(tenant)) == Verdict::Allowed,
        // Events of machines and prices, which belong to no tenant, are for the network's operators.
        None => caller.allowed(Right::LookMachines, None) == Verdict::Allowed,
    }
}

/// Streams events to `caller`, as server-sent events.
///
/// # Errors
/// When there are too many readers, or the store fails.
pub async fn stream(
    state: Arc<State>,
    caller: Caller,
    subscription: Subscription,
) -> Result<impl Stream<Item = Bytes> + 'static, Error> {
    let place = state.events.admit()?;
    let cursor = match (subscription.after, subscription.follow) {
        (Some(after), _) => after,
        (None, false) => 0,
        (None, true) => state.events.ends(&state).await?.1,
    };
    let (sender, receiver) = mpsc::channel(state.settings.events.buffer);
    let figures = subscription.figures;
    let beat = Instant::now() + state.settings.events.heartbeat.as_duration();
    let reader = Reader {
        state,
        caller,
        subscription,
        cursor,
        step: next_step(figures),
        beat,
        out: sender,
        _place: place,
    };
    tokio::spawn(reader.run());
    Ok(ReceiverStream::new(receiver))
}

/// Why a reader's stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The reader has everything it asked for.
    Done,
    /// The reader disconnected.
    Gone,
    /// The reader accepted nothing for too long.
    Slow,
    /// The reader's session or token has ended, or the user is disabled.
    Revoked,
    /// The stream reached its longest duration.
    Lifetime,
    /// This controller is shutting down.
    Stopping,
    /// The store fails.
    Store,
}

impl End {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Gone => "gone",
            Self::Slow => "slow",
            Self::Revoked => "revoked",
            Self::Lifetime => "lifetime",
            Self::Stopping => "stopping",
            Self::Store => "store",
        }
    }
}

/// A connected reader.
struct Reader {
    state: Arc<State>,
    /// The caller as judged last.
    caller: Caller,
    subscription: Subscription,
    /// The id of the last event that was considered for it.
    cursor: u64,
    out: mpsc::Sender<Bytes>,
    /// When the present step of the figures ends, for a reader that asked for it.
    step: Option<Instant>,
    /// When the next heartbeat is due, whatever else is sent.
    beat: Instant,
    _place: OwnedSemaphorePermit,
}

/// When the present step of the figures ends; `None` if not wanted.
fn next_step(wanted: bool) -> Option<Instant> {
    let step = Window::Quarter.step_ms();
    let left = step - fdn_service::now().get() % step;
    wanted.then(|| Instant::now() + Duration::from_millis(left))
}

/// Waits until a moment; forever if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Reader {
    async fn run(mut self) {
        let metrics = self.state.metrics.events.clone();
        metrics.readers.inc();
        let end = self.serve().await;
        metrics.readers.dec();
        metrics.ended.with_label_values(&[end.as_str()]).inc();
    }

    async fn serve(&mut self) -> End {
        let ends = Instant::now() + self.state.settings.events.lifetime.as_duration();
        // The delay before a browser reconnects, in ms. It also gets through buffers that hold back an empty response.
        if let Err(end) = self.send(Bytes::from_static(b"retry: 2000\n\n")).await {
            return end;
        }
        if let Err(end) = self.send_missed().await {
            return end;
        }
        let mut news = self.state.events.watch();
        loop {
            match self.catch_up().await {
                Ok(()) => {}
                Err(end) => return end,
            }
            if !self.subscription.follow {
                return End::Done;
            }
            if let Err(end) = self.wait(&mut news, ends).await {
                return end;
            }
        }
    }

    /// Waits until there are new events, sending heartbeats meanwhile.
    async fn wait(
        &mut self,
        news: &mut tokio::sync::watch::Receiver<u64>,
        ends: Instant,
    ) -> Result<(), End> {
        let state = Arc::clone(&self.state);
        while *news.borrow_and_update() <= self.cursor {
            tokio::select! {
                // The sender is part of the hub, which lives as long as the state.
                _ = news.changed() => {}
                () = self.out.closed() => return Err(End::Gone),
                () = state.events.closed() => return Err(End::Stopping),
                () = tokio::time::sleep_until(ends) => return Err(End::Lifetime),
                () = until(self.step) => self.send_step().await?,
                () = tokio::time::sleep_until(self.beat) => self.heartbeat().await?,
            }
        }
        Ok(())
    }

    /// Judges the caller again, and sends a comment, which readers ignore.
    async fn heartbeat(&mut self) -> Result<(), End> {
        self.beat = Instant::now() + self.state.settings.events.heartbeat.as_duration();
        match self.renew().await {
            // No event goes without a judgement; a database that is away for a moment must not disconnect every reader.
            Ok(()) | Err(End::Store) => {}
            Err(end) => return Err(end),
        }
        self.send(Bytes::from_static(b":\n\n")).await
    }

    /// Judges the caller again: roles and memberships change, sessions and tokens end, and users are disabled.
    async fn renew(&mut self) -> Result<(), End> {
        match self.caller_now().await {
            Ok(Some(caller)) => {
                self.caller = caller;
                Ok(())
            }
            Ok(None) => Err(End::Revoked),
            Err(error) => Err(self.store_failed(&error)),
        }
    }

    async fn caller_now(&self) -> Result<Option<Caller>, Error> {
        let mut connection = self.state.store.read().await?;
        present(&mut connection, &self.caller, fdn_service::now()).await
    }

    /// Sends the event that a step of the figures has ended, so that there is new data to be read.
    async fn send_step(&mut self) -> Result<(), End> {
        self.step = next_step(true);
        let step = Window::Quarter.step_ms();
        // A timer may fire a little early: take the step that ended at the nearest boundary.
        let ended = (fdn_service::now().get() + step / 2) / step;
        let at = ended.saturating_sub(1).saturating_mul(step);
        let text = format!("event: {FIGURES}\ndata: {{\"at\":{at}}}\n\n");
        self.send(Bytes::from(text)).await
    }

    /// Tells a reconnecting reader if some of the events it missed are no longer stored.
    async fn send_missed(&mut self) -> Result<(), End> {
        let Some(after) = self.subscription.after else {
            return Ok(());
        };
        let ends = self.state.events.ends(&self.state).await;
        let (oldest, newest) = ends.map_err(|error| self.store_failed(&error))?;
        if (oldest..=newest.saturating_add(1)).contains(&after.saturating_add(1)) {
            return Ok(());
        }
        // An id that is not assigned yet comes from a database that no longer exists: everything is new to this reader.
        if after > newest {
            self.cursor = 0;
        }
        let missed = Missed { after, oldest };
        let data = serde_json::to_string(&missed).unwrap_or_default();
        let text = format!("event: {MISSED}\ndata: {data}\n\n");
        self.send(Bytes::from(text)).await
    }

    /// Sends all events up to now.
    async fn catch_up(&mut self) -> Result<(), End> {
        loop {
            let next = self.state.events.after(&self.state, self.cursor, BATCH);
            let next = next.await.map_err(|error| self.store_failed(&error))?;
            let Next { events, more } = next;
            // However many events come that the reader did not ask for, it is judged in time.
            if Instant::now() >= self.beat {
                self.heartbeat().await?;
            }
            if events.iter().any(|event| self.subscription.asks_for(event)) {
                // One event wakes all readers at once, so the database may be late for some: they must not all end and come again.
                match self.renew().await {
                    Err(End::Store) => {
                        tokio::time::sleep(AGAIN).await;
                        self.renew().await?;
                    }
                    judged => judged?,
                }
            }
            for event in events {
                self.cursor = event.id;
                if self.subscription.asks_for(&event) && may_see(&self.caller, &event) {
                    self.send(frame(&event)).await?;
                    self.state.metrics.events.sent.inc();
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn store_failed(&self, error: &Error) -> End {
        debug!(error = chain(error), "events cannot be read");
        End::Store
    }

    async fn send(&self, bytes: Bytes) -> Result<(), End> {
        let patience: Duration = self.state.settings.events.patience.as_duration();
        let state = &self.state;
        tokio::select! {
            sent = timeout(patience, self.out.send(bytes)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => Err(End::Slow),
            },
            () = state.events.closed() => Err(End::Stopping),
        }
    }
}

/// An event in its wire format (WHATWG HTML, section 9.2). JSON has no line breaks outside of strings, where they are escaped.
fn frame(event: &Event) -> Bytes {
    let data = serde_json::to_string(event).unwrap_or_default();
    Bytes::from(format!(
        "id: {}\nevent: {}\ndata: {data}\n\n",
        event.id, event.kind
    ))
}

#[cfg(test)]
mod tests {
    use fdn_core::Timestamp;

    use super::*;

    fn event(tenant: Option<TenantId>, app: Option<&str>, kind: EventKind) -> Event {
        Event {
            id: 7,
            at: Timestamp(1),
            kind,
            action: "deploy".to_owned(),
            subject: "app/a\nb".to_owned(),
            tenant,
            app: app.map(|app| app.parse().expect("app")),
            detail: None,
        }
    }

    #[test]
    fn a_frame_has_one_line_of_data() {
        let text = frame(&event(None, None, EventKind::Node));
        let text = std::str::from_utf8(&text).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!((lines[0], lines[1], lines[3]), ("id: 7", "event: node", ""));
        assert!(lines[2].starts_with("data: {") && lines[2].contains("a\\nb"));
    }
}
