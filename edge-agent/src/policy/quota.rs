//! Counts calls towards quotas on this node: the controller's count, plus the calls admitted here since it was received.
//!
//! Stored on disk every few seconds, so that a restart while the controller is unreachable does not begin at zero; calls admitted since the last
//! write are then forgotten here, but still counted by the controller.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::policy::quota::{AppQuotaUsage, QuotaUsage, Window};
use fdn_core::{AppName, Timestamp};
use fdn_service::CancellationToken;
use tracing::warn;

use crate::disk;
use crate::error::Error;

/// The counted calls of one app.
#[derive(Default)]
pub(super) struct Quota {
    used: Mutex<QuotaUsage>,
    changed: AtomicBool,
}

impl Quota {
    fn lock(&self) -> MutexGuard<'_, QuotaUsage> {
        // Assigning three numbers cannot leave them in an inconsistent state.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls counted in the windows that contain `now`.
    pub(super) fn used(&self, now: Timestamp) -> QuotaUsage {
        self.lock().at(Window::at(now))
    }

    /// Counts one call.
    pub(super) fn count(&self, now: Timestamp) {
        let mut used = self.lock();
        *used = used.at(Window::at(now));
        used.day += 1;
        used.month += 1;
        drop(used);
        self.changed.store(true, Ordering::Relaxed);
    }

    fn apply(&self, usage: QuotaUsage, now: Timestamp) {
        *self.lock() = usage.at(Window::at(now));
        self.changed.store(true, Ordering::Relaxed);
    }
}

/// The counted calls of all apps with a quota.
pub(super) struct Quotas {
    path: PathBuf,
    apps: Mutex<BTreeMap<AppName, Arc<Quota>>>,
    gone: AtomicBool,
}

impl Quotas {
    /// Loads the counts stored in `path`. An unreadable file is ignored: the controller sends the sums again.
    pub(super) fn open(path: PathBuf) -> Self {
        let kept = std::fs::read(&path).ok();
        let kept = kept.and_then(|bytes| serde_json::from_slice::<Vec<AppQuotaUsage>>(&bytes).ok());
        let apps = kept.unwrap_or_default().into_iter().map(|kept| {
            let quota = Quota {
                used: Mutex::new(kept.used),
                changed: AtomicBool::new(false),
            };
            (kept.app, Arc::new(quota))
        });
        Self {
            apps: Mutex::new(apps.collect()),
            path,
            gone: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AppName, Arc<Quota>>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counted calls of an app.
    pub(super) fn of(&self, app: &AppName) -> Arc<Quota> {
        Arc::clone(self.lock().entry(app.clone()).or_default())
    }

    pub(super) fn forget(&self, app: &AppName) {
        if self.lock().remove(app).is_some() {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Applies the counts of the controller.
    pub(super) fn apply(&self, usages: &[AppQuotaUsage], now: Timestamp) {
        let apps = self.lock();
        for usage in usages {
            if let Some(quota) = apps.get(&usage.app) {
                quota.apply(usage.used, now);
            }
        }
    }

    /// Writes changed counts every `interval`, and once more at the end.
    pub(super) async fn keep(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let mut warned = false;
        loop {
            let last = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(interval) => false,
            };
            let this = Arc::clone(&self);
            let saved = tokio::task::spawn_blocking(move || this.save()).await;
            match saved {
                Ok(Ok(())) => warned = false,
                Ok(Err(failure)) if !warned => {
                    warned = true;
                    warn!(%failure, "calls counted towards quotas cannot be kept on disk");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            if last {
                return;
            }
        }
    }

    fn save(&self) -> Result<(), Error> {
        let mut changed = self.gone.swap(false, Ordering::Relaxed);
        let all: Vec<AppQuotaUsage> = self
            .lock()
            .iter()
            .map(|(app, quota)| {
                changed |= quota.changed.swap(false, Ordering::Relaxed);
                AppQuotaUsage {
                    app: app.clone(),
                    used: *quota.lock(),
                }
            })
            .collect();
        if !changed {
            return Ok(());
        }
        // Names and numbers can always be serialized.
        let bytes = serde_json::to_vec(&all).unwrap_or_default();
        let written = disk::replace(&self.path, &bytes);
        if written.is_err() {
            // Retried at the next interval.
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(written?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn app() -> AppName {
        "hello".parse().expect("app")
    }

    fn reported(calls: u64) -> Vec<AppQuotaUsage> {
        let used = QuotaUsage {
            window: Window::at(NOW),
            day: calls,
            month: calls,
        };
        vec![AppQuotaUsage { app: app(), used }]
    }

    #[test]
    fn own_calls_come_on_top_of_what_was_told() {
        let folder = tempfile::tempdir().expect("folder");
        let quotas = Quotas::open(folder.path().join("q.json"));
        let quota = quotas.of(&app());
        quota.count(NOW);
        quota.count(NOW);
        assert_eq!(quota.used(NOW).day, 2);
        quotas.apply(&reported(10), NOW);
        quota.count(NOW);
        assert_eq!((quota.used(NOW).day, quota.used(NOW).month), (11, 11));
        let tomorrow = Timestamp(NOW.0 + 86_400_000);
        assert_eq!(
            (quota.used(tomorrow).day, quota.used(tomorrow).month),
            (0, 11)
        );
    }

    #[test]
    fn counts_survive_a_restart_and_rubbish_does_not_matter() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("q.json");
        let quotas = Quotas::open(path.clone());
        quotas.of(&app()).count(NOW);
        quotas.save().expect("saved");
        let again = Quotas::open(path.clone());
        assert_eq!(again.of(&app()).used(NOW).day, 1);
        again.forget(&app());
        again.save().expect("saved");
        assert_eq!(Quotas::open(path.clone()).of(&app()).used(NOW).day, 0);
        std::fs::write(&path, "rubbish").expect("written");
        assert_eq!(Quotas::open(path).of(&app()).used(NOW).day, 0);
    }
}
