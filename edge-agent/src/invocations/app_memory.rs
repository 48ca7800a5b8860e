//! What the instances of each app hold of this node's memory, whoever ordered them: a node's word on an app's share.
//!
//! The [`Pool`](super::pool) of a gateway keeps to the share of what it orders, here and elsewhere; a node may have orders of several
//! gateways. One that would pass the share is refused, and another node is asked.
//!
//! **Invariant.** Beyond its share an app has at most one instance here, or those that were found running.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdn_core::device::Percent;
use fdn_core::{AppName, MebiBytes};
use tokio::sync::Notify;

/// The memory that apps hold.
#[derive(Debug)]
pub(super) struct AppMemory {
    share: MebiBytes,
    held: Mutex<BTreeMap<AppName, MebiBytes>>,
    freed: Notify,
}

/// What one instance holds of its app's share, until this is dropped.
#[derive(Debug)]
pub(super) struct AppPart {
    all: Arc<AppMemory>,
    app: AppName,
    memory: MebiBytes,
}

impl AppMemory {
    /// On a node with so much memory; nothing where one app may hold all of it.
    pub(super) fn new(memory: MebiBytes, share: Percent) -> Option<Arc<Self>> {
        let part = u128::from(memory.get()) * u128::from(share.get()) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        (share != Percent::WHOLE).then(|| {
            Arc::new(Self {
                share: MebiBytes(part),
                held: Mutex::default(),
                freed: Notify::new(),
            })
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AppName, MebiBytes>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, held: Option<&MebiBytes>, memory: MebiBytes) -> bool {
        held.is_none_or(|held| held.saturating_add(memory) <= self.share)
    }

    /// Whether one more instance of an app stays within its share.
    ///
    /// # Errors
    /// With what is short, in words.
    pub(super) fn has_room(&self, app: &AppName, memory: MebiBytes) -> Result<(), String> {
        let all = self.lock();
        let held = all.get(app);
        if self.fits(held, memory) {
            return Ok(());
        }
        let held = held.copied().unwrap_or_default();
        let share = self.share;
        Err(format!(
            "instances of {app} hold {held} here, and one app may hold {share}"
        ))
    }

    /// Counts an instance that is there, whatever its app holds.
    pub(super) fn found(self: &Arc<Self>, app: &AppName, memory: MebiBytes) -> AppPart {
        self.add(&mut self.lock(), app, memory)
    }

    fn hold(self: &Arc<Self>, app: &AppName, memory: MebiBytes) -> Option<AppPart> {
        let mut all = self.lock();
        let fits = self.fits(all.get(app), memory);
        fits.then(|| self.add(&mut all, app, memory))
    }

    fn add(
        self: &Arc<Self>,
        all: &mut BTreeMap<AppName, MebiBytes>,
        app: &AppName,
        memory: MebiBytes,
    ) -> AppPart {
        let held = all.entry(app.clone()).or_default();
        *held = held.saturating_add(memory);
        AppPart {
            all: Arc::clone(self),
            app: app.clone(),
            memory,
        }
    }

    /// Counts one more, and waits for those of its app that are on their way out. To be bounded by the caller.
    pub(super) async fn hold_when_free(
        self: &Arc<Self>,
        app: &AppName,
        memory: MebiBytes,
    ) -> AppPart {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the look, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(part) = self.hold(app, memory) {
                return part;
            }
            freed.await;
        }
    }
}

impl Drop for AppPart {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(held) = all.get_mut(&self.app) {
            *held = held.saturating_sub(self.memory);
            if *held == MebiBytes(0) {
                all.remove(&self.app);
            }
        }
        drop(all);
        self.all.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn app(name: &str) -> AppName {
        name.parse().expect("it parses")
    }

    #[tokio::test]
    async fn an_app_holds_its_share_or_one_instance_and_the_next_waits_for_it() {
        let share = Percent::try_from(75).expect("a share");
        let all = AppMemory::new(MebiBytes(100), share).expect("counted");
        let (one, other) = (app("one"), app("other"));
        let large = all.hold(&one, MebiBytes(90)).expect("its first");
        let refused = all.has_room(&one, MebiBytes(1)).expect_err("all of it");
        assert!(refused.contains("one app may hold 75"), "{refused}");
        let _other = all.hold(&other, MebiBytes(40)).expect("not its matter");
        all.has_room(&other, MebiBytes(35)).expect("75 together");
        assert!(all.hold(&other, MebiBytes(36)).is_none());
        let waiting = all.hold_when_free(&one, MebiBytes(50));
        tokio::pin!(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        drop(large);
        let next = waiting.await;
        let found = all.found(&one, MebiBytes(70));
        assert!(all.has_room(&one, MebiBytes(1)).is_err());
        drop((next, found));
        assert!(!all.lock().contains_key(&one), "nothing is kept of it");
    }

    #[test]
    fn where_one_may_hold_everything_nothing_is_counted() {
        assert!(AppMemory::new(MebiBytes(100), Percent::WHOLE).is_none());
    }
}
