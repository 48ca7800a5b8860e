//! The newest events in memory, for this controller's readers; older ones are read from the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fdn_core::event::Event;
use fdn_service::CancellationToken;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::Error;
use crate::error::chain;
use crate::settings::EventSettings;
use crate::state::{State, lock};
use crate::store::event::{event_ends, event_list};

/// The number of events kept in memory.
const RING: usize = 1_000;
/// The number of events read from the store at a time.
const BATCH: u32 = 500;

/// This controller's events in memory and the places of its readers.
#[derive(Debug)]
pub struct Hub {
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
    places: Arc<Semaphore>,
    closed: CancellationToken,
}

/// All events after `floor`.
#[derive(Debug, Default)]
struct Ring {
    /// The id before the first of them.
    floor: u64,
    events: VecDeque<Arc<Event>>,
}

/// The events after an id.
#[derive(Debug)]
pub struct Next {
    /// The first of them, in order.
    pub events: Vec<Arc<Event>>,
    /// Whether there may be more.
    pub more: bool,
}

impl Ring {
    /// The events after `cursor`; `None` if some of them are not in memory.
    fn after(&self, cursor: u64, limit: usize) -> Option<Next> {
        if cursor < self.floor {
            return None;
        }
        let first = self.events.partition_point(|event| event.id <= cursor);
        let rest = self.events.len() - first;
        let events = self.events.iter().skip(first).take(limit).cloned();
        Some(Next {
            events: events.collect(),
            more: rest > limit,
        })
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(Arc::new(event));
        if self.events.len() > RING
            && let Some(gone) = self.events.pop_front()
        {
            self.floor = gone.id;
        }
    }
}

impl Hub {
    /// An empty hub.
    #[must_use]
    pub fn new(settings: &EventSettings) -> Self {
        Self {
            // Until the first read, everything must come from the store.
            ring: Mutex::new(Ring {
                floor: u64::MAX,
                events: VecDeque::new(),
            }),
            newest: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(settings.readers)),
            closed: CancellationToken::new(),
        }
    }

    /// Takes a place for a reader.
    ///
    /// # Errors
    /// When all places are taken.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| Error::TooMany {
            what: "too many readers of events",
            after: std::time::Duration::from_secs(5),
        })
    }

    /// A receiver of the newest event's id.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Waits until this controller shuts down.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends all streams: readers reconnect to another controller.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// The ids of the oldest and the newest stored event; 1 and 0 if there has been none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn ends(&self, state: &State) -> Result<(u64, u64), Error> {
        let (oldest, newest) = event_ends(&mut *state.store.read().await?).await?;
        Ok((oldest.max(1), newest))
    }

    /// At most `limit` events after `cursor`.
    ///
    /// # Errors
    /// When they must come from the store, and that fails.
    pub async fn after(&self, state: &State, cursor: u64, limit: u32) -> Result<Next, Error> {
        if let Some(next) = lock(&self.ring).after(cursor, limit as usize) {
            return Ok(next);
        }
        let events = event_list(&mut *state.store.read().await?, cursor, limit).await?;
        Ok(Next {
            more: !events.is_empty(),
            events: events.into_iter().map(Arc::new).collect(),
        })
    }

    /// Reads events that were added since the last time.
    async fn read(&self, state: &State) -> Result<(), Error> {
        loop {
            let after = *self.newest.borrow();
            let events = event_list(&mut *state.store.read().await?, after, BATCH).await?;
            let Some(last) = events.last().map(|event| event.id) else {
                return Ok(());
            };
            {
                let mut ring = lock(&self.ring);
                events.into_iter().for_each(|event| ring.push(event));
            }
            self.newest.send_replace(last);
        }
    }

    /// Starts at the newest event: earlier ones are read from the store.
    async fn begin(&self, state: &State) -> Result<(), Error> {
        let (_, newest) = self.ends(state).await?;
        lock(&self.ring).floor = newest;
        self.newest.send_replace(newest);
        Ok(())
    }
}

/// Reads events as they are added until shutdown, and collects them while this controller has the planner's lease.
pub(crate) async fn run(state: Arc<State>, shutdown: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.events.interval.as_duration());
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut begun, mut failing, mut known) = (false, false, None);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        let looked = async {
            if !begun {
                state.events.begin(&state).await?;
                begun = true;
            }
            if state.singletons.has(crate::singleton::Work::Planner) {
                super::collect::collect(&state, &mut known, fdn_service::now()).await?;
            } else {
                known = None;
            }
            state.events.read(&state).await
        };
        match looked.await {
            Ok(()) => failing = false,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!(error = chain(&error), "events are late; trying again");
                }
                state.metrics.events.failures.inc();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Timestamp;
    use fdn_core::event::EventKind;

    use super::*;

    fn event(id: u64) -> Event {
        Event {
            id,
            at: Timestamp(id),
            kind: EventKind::App,
            action: String::new(),
            subject: String::new(),
            tenant: None,
            app: None,
            detail: None,
        }
    }

    #[test]
    fn a_ring_gives_all_after_a_number_or_says_that_it_cannot() {
        let mut ring = Ring {
            floor: 4,
            events: VecDeque::new(),
        };
        (5..=9).for_each(|id| ring.push(event(id)));
        let ids = |next: Next| -> Vec<u64> { next.events.iter().map(|e| e.id).collect() };
        assert!(ring.after(3, 10).is_none(), "4 is not here");
        assert_eq!(ids(ring.after(4, 10).expect("here")), [5, 6, 7, 8, 9]);
        let some = ring.after(6, 2).expect("here");
        assert!(some.more);
        assert_eq!(ids(some), [7, 8]);
        assert_eq!(ids(ring.after(9, 2).expect("here")), [0u64; 0]);
    }

    #[test]
    fn a_ring_is_bounded() {
        let mut ring = Ring::default();
        let last = RING as u64 + 10;
        (1..=last).for_each(|id| ring.push(event(id)));
        assert_eq!((ring.events.len(), ring.floor), (RING, 10));
        assert!(ring.after(9, 1).is_none() && ring.after(10, 1).is_some());
    }
}
