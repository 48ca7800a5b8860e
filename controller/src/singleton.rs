//! Leases between several controllers on one database: all serve requests; work that must be done once is done by the one that has its lease.
//!
//! A lease is a row with an end, renewed three times per lifetime. It keeps two planners from doing the same work, and two publishers from
//! sending messages out of order. Nothing breaks when both run for a moment because clocks differ or one of them was paused: plans are written
//! only over the rows they were computed from, and receivers ignore what is not newer than what they have. So a controller that cannot reach the
//! database continues until its lease has expired by its own clock, and no longer.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_service::CancellationToken;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::error::chain;
use crate::state::State;
use crate::store::StoreError;
use crate::store::singleton::{singleton_acquire, singleton_release};

/// Work that one controller does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computing plans and bindings.
    Planner,
    /// Publishing messages of the outbox.
    Publisher,
    /// Deleting unused artifacts.
    Collector,
}

impl Work {
    const ALL: [Self; 3] = [Self::Planner, Self::Publisher, Self::Collector];

    /// The name in the store and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Publisher => "publisher",
            Self::Collector => "collector",
        }
    }
}

/// The number of kinds of work.
const WORKS: usize = Work::ALL.len();

/// The leases that this controller has.
#[derive(Debug)]
pub struct Singletons {
    holder: String,
    held: [watch::Sender<bool>; WORKS],
}

impl Default for Singletons {
    fn default() -> Self {
        Self {
            holder: uuid::Uuid::now_v7().simple().to_string(),
            held: Work::ALL.map(|_| watch::Sender::new(false)),
        }
    }
}

impl Singletons {
    /// The id of this run of the controller.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether this controller has the lease.
    #[must_use]
    pub fn has(&self, work: Work) -> bool {
        *self.held[work as usize].borrow()
    }

    /// Notifies of every change of [`Self::has`].
    #[must_use]
    pub fn watch(&self, work: Work) -> watch::Receiver<bool> {
        self.held[work as usize].subscribe()
    }

    fn set(&self, work: Work, mine: bool) {
        self.held[work as usize].send_if_modified(|before| {
            let changed = *before != mine;
            if changed {
                info!(
                    work = work.as_str(),
                    mine, "work that one controller does for all"
                );
            }
            *before = mine;
            changed
        });
    }
}

/// Acquires and renews all leases until shutdown, then releases them, so that another controller takes over at once.
pub(crate) async fn keep(state: Arc<State>, shutdown: CancellationToken) {
    let lease = state.settings.singletons.lease.as_duration();
    let mut good_until = [Instant::now(); WORKS];
    let mut failing = false;
    loop {
        let asked = Instant::now();
        // The time limit keeps a database that does not answer from prolonging a lease.
        let patience = wait(lease / 3, first_end(&state.singletons, &good_until), asked);
        let answered = tokio::time::timeout(patience, acquire(&state, lease)).await;
        let answered =
            answered.unwrap_or_else(|_| Err(StoreError::from(sqlx::Error::PoolTimedOut)));
        match answered {
            Ok(mine) => {
                failing = false;
                for (work, mine) in Work::ALL.into_iter().zip(mine) {
                    good_until[work as usize] = asked + lease;
                    state.singletons.set(work, mine);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!(error = chain(&error), "leases cannot be extended");
                }
                for work in Work::ALL {
                    if Instant::now() >= good_until[work as usize] {
                        state.singletons.set(work, false);
                    }
                }
            }
        }
        for work in Work::ALL {
            let mine = i64::from(state.singletons.has(work));
            let gauge = state.metrics.singletons.with_label_values(&[work.as_str()]);
            gauge.set(mine);
        }
        let ends = first_end(&state.singletons, &good_until);
        let wait = wait(pause(lease), ends, Instant::now());
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(wait) => {}
        }
    }
    for work in Work::ALL {
        state.singletons.set(work, false);
    }
    if let Err(error) = release(&state).await {
        warn!(error = chain(&error), "leases end by themselves");
    }
}

/// The earliest end of the leases that are held.
fn first_end(singletons: &Singletons, good_until: &[Instant; WORKS]) -> Option<Instant> {
    let held = Work::ALL.into_iter().filter(|work| singletons.has(*work));
    held.map(|work| good_until[work as usize]).min()
}

/// The time until the next renewal: at most until the first held lease ends.
fn wait(pause: Duration, ends: Option<Instant>, now: Instant) -> Duration {
    ends.map_or(pause, |ends| pause.min(ends.saturating_duration_since(now)))
}

/// A third of the lease's lifetime, with jitter so that controllers do not ask at the same time.
fn pause(lease: Duration) -> Duration {
    (lease / 3).mul_f64(rand::random_range(0.8..1.0))
}

async fn acquire(state: &State, lease: Duration) -> Result<[bool; WORKS], StoreError> {
    let mut connection = state.store.read().await?;
    let mut mine = [false; WORKS];
    for work in Work::ALL {
        let now = fdn_service::now();
        let until = Timestamp(now.get().saturating_add(lease.as_millis() as u64));
        let holder = state.singletons.holder();
        mine[work as usize] =
            singleton_acquire(&mut connection, work.as_str(), holder, until, now).await?;
    }
    Ok(mine)
}

async fn release(state: &State) -> Result<(), StoreError> {
    let mut connection = state.store.read().await?;
    singleton_release(&mut connection, state.singletons.holder()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_given_up_when_it_ends_and_not_at_the_next_look() {
        let (now, pause) = (Instant::now(), Duration::from_secs(3));
        let after = |seconds| Some(now + Duration::from_secs(seconds));
        assert_eq!(wait(pause, None, now), pause, "nothing is held");
        assert_eq!(wait(pause, after(9), now), pause);
        assert_eq!(wait(pause, after(1), now), Duration::from_secs(1));
        let late = now + Duration::from_secs(5);
        assert_eq!(wait(pause, after(1), late), Duration::ZERO, "it has ended");
        let singletons = Singletons::default();
        let ends = [now, now + pause, now];
        assert_eq!(first_end(&singletons, &ends), None);
        singletons.set(Work::Publisher, true);
        assert_eq!(first_end(&singletons, &ends), Some(now + pause));
        singletons.set(Work::Planner, true);
        assert_eq!(first_end(&singletons, &ends), Some(now));
    }
}
