//! How many calls run at the same time, how many wait for that, and how many are held for an app that is being made ready.
//!
//! The slots are a semaphore that serves in order of arrival. The waiting room and the hold are counters: who finds them full, or waits
//! too long, is told to come again later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::metrics::{AppMetrics, CountGuard, Metrics};
use crate::settings::AdmissionSettings;

/// A bounded counter of places.
#[derive(Debug)]
struct Places {
    taken: AtomicU32,
    max: u32,
    gauge: IntGauge,
}

impl Places {
    fn new(max: u32, gauge: IntGauge) -> Self {
        Self {
            taken: AtomicU32::new(0),
            max,
            gauge,
        }
    }

    fn take(&self) -> Option<Place<'_>> {
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < self.max).then_some(taken + 1)
            });
        taken.ok().map(|_| {
            self.gauge.inc();
            Place(self)
        })
    }
}

/// One taken place.
#[derive(Debug)]
pub struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.dec();
    }
}

/// A slot: the call runs until it is dropped.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    _app: CountGuard,
    gauge: IntGauge,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Why a call was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The waiting room is full.
    Full,
    /// No slot was free in time.
    Late,
}

/// Admission to the node.
#[derive(Debug)]
pub struct Admission {
    slots: Arc<Semaphore>,
    slots_max: u32,
    waiting: Places,
    wait: Duration,
    held: Places,
    hold: Duration,
    busy: IntGauge,
}

impl Admission {
    /// Admission within the settings.
    #[must_use]
    pub fn new(settings: &AdmissionSettings, metrics: &Metrics) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(settings.slots as usize)),
            slots_max: settings.slots,
            waiting: Places::new(settings.waiting, metrics.waiting.clone()),
            wait: settings.wait.as_duration(),
            held: Places::new(settings.held, metrics.held.clone()),
            hold: settings.hold.as_duration(),
            busy: metrics.busy.clone(),
        }
    }

    /// How many calls can run at once.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots_max
    }

    /// How many run now.
    #[must_use]
    pub fn busy(&self) -> u32 {
        let free = u32::try_from(self.slots.available_permits()).unwrap_or(u32::MAX);
        self.slots_max.saturating_sub(free)
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// When too many wait already, or for too long.
    pub async fn enter(&self, app: &Arc<AppMetrics>) -> Result<Slot, Refused> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(self.slot(permit, app));
        }
        let _place = self.waiting.take().ok_or(Refused::Full)?;
        let _waits = app.waiting();
        match timeout(self.wait, Arc::clone(&self.slots).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(self.slot(permit, app)),
            // The semaphore is never closed, so only the time can have run out.
            Ok(Err(_)) | Err(_) => Err(Refused::Late),
        }
    }

    fn slot(&self, permit: OwnedSemaphorePermit, app: &Arc<AppMetrics>) -> Slot {
        self.busy.inc();
        Slot {
            _permit: permit,
            _app: app.running(),
            gauge: self.busy.clone(),
        }
    }

    /// A place among the calls held for an app that is being made ready, if there is one.
    #[must_use]
    pub fn hold(&self) -> Option<Place<'_>> {
        self.held.take()
    }

    /// How long a call is held.
    #[must_use]
    pub const fn hold_time(&self) -> Duration {
        self.hold
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::DurationMs;

    use super::*;

    fn admission(slots: u32, waiting: u32, wait: u64) -> (Admission, Arc<AppMetrics>) {
        let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
        let settings = AdmissionSettings {
            slots,
            waiting,
            wait: DurationMs::from_millis(wait),
            held: 1,
            hold: DurationMs::from_secs(1),
        };
        (
            Admission::new(&settings, &metrics),
            metrics.app(&"hello".parse().expect("app")),
        )
    }

    #[tokio::test]
    async fn who_finds_no_slot_waits_and_who_waits_too_long_is_refused() {
        let (admission, app) = admission(1, 1, 20);
        let slot = admission.enter(&app).await.expect("free");
        assert_eq!((admission.busy(), app.busy_now()), (1, 1));
        let (first, second) = tokio::join!(admission.enter(&app), admission.enter(&app));
        assert_eq!(first.expect_err("waited too long"), Refused::Late);
        assert_eq!(second.expect_err("no place to wait"), Refused::Full);
        drop(slot);
        assert_eq!(
            (admission.busy(), app.busy_now(), app.waiting_now()),
            (0, 0, 0)
        );
        assert!(admission.enter(&app).await.is_ok());
    }

    #[tokio::test]
    async fn a_slot_goes_to_who_waited() {
        let (admission, app) = admission(1, 8, 60_000);
        let slot = admission.enter(&app).await.expect("free");
        let release = async {
            while app.waiting_now() == 0 {
                tokio::task::yield_now().await;
            }
            drop(slot);
        };
        let (waited, ()) = tokio::join!(admission.enter(&app), release);
        assert!(waited.is_ok());
    }

    #[test]
    fn holds_are_counted() {
        let (admission, _) = admission(1, 1, 20);
        let place = admission.hold().expect("first");
        assert!(admission.hold().is_none());
        drop(place);
        assert!(admission.hold().is_some());
    }
}
