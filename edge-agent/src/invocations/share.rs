//! What one app may hold of the places of a node.
//!
//! Calls that wait for something slow cost little and stay long, so the calls of one app would in time hold every place, and all other apps
//! were refused. Therefore an app has a share of the places: with all of it taken, its next calls wait for their own app alone, in the order
//! in which they came, and what is left is for the others. The stages of a workflow have one share together.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Refused;
use crate::settings::AdmissionSettings;

/// The places of one app.
#[derive(Debug, Default)]
pub struct AppPlaces {
    /// Those that are free; made at the app's first call.
    free: OnceLock<Arc<Semaphore>>,
    waiting: AtomicU32,
}

/// A place of an app's share, until this is dropped.
#[derive(Debug)]
pub(super) struct Shared {
    _permit: OwnedSemaphorePermit,
}

/// What each app may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    places: u32,
    waiting: u32,
    wait: Duration,
}

impl Share {
    /// The share of these settings; nothing where one app may hold every place.
    pub(super) fn new(settings: &AdmissionSettings) -> Option<Self> {
        let of = |all: u32| {
            let part = u64::from(all) * u64::from(settings.app_share.get());
            u32::try_from(part.div_ceil(100)).unwrap_or(all).max(1)
        };
        let places = of(settings.slots);
        (places < settings.slots).then(|| Self {
            places,
            waiting: of(settings.waiting),
            wait: settings.wait.as_duration(),
        })
    }

    /// Takes one of the app's places, at once or after a wait.
    ///
    /// # Errors
    /// When as many of its calls wait for one as may, or it waited for as long as it may.
    pub(super) async fn enter(self, app: &AppPlaces) -> Result<Shared, Refused> {
        let free = app
            .free
            .get_or_init(|| Arc::new(Semaphore::new(self.places as usize)));
        let permit = match Arc::clone(free).try_acquire_owned() {
            Ok(permit) => permit,
            // Boxed, because it is seldom needed and would make every request's future larger.
            Err(_) => Box::pin(self.wait(app, free)).await?,
        };
        Ok(Shared { _permit: permit })
    }

    async fn wait(
        self,
        app: &AppPlaces,
        free: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let took = app
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.waiting).then_some(waiting + 1)
            });
        took.map_err(|_| Refused::AppFull)?;
        let _waits = Waits(&app.waiting);
        match timeout(self.wait, Arc::clone(free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // Nobody closes it; that it took too long is the usual case.
            Ok(Err(_)) | Err(_) => Err(Refused::AppFull),
        }
    }
}

/// Counts one that waits, for as long as it lives.
struct Waits<'a>(&'a AtomicU32);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
