//! What one app, and all apps of one tenant together, may hold of the places of a node.
//!
//! Calls that wait for something slow cost little and stay long, so the calls of one app would in time hold every place, and all other apps
//! were refused. Therefore an app has a share of the places: with all of it taken, its next calls wait for their own app alone, in the order
//! in which they came, and what is left is for the others. The stages of a workflow have one share together.
//!
//! A tenant may have many apps, so there is a share of tenants above it ([`most_of`], as for the memory of instances): **a tenant takes another place only while it holds less than its
//! share of the places that other tenants leave to it.** One that is alone has its share of all places; of several that want more than there
//! is, whoever holds most is the first who may take no more, so as calls end all come to hold the same; and each leaves a part to those that come
//! new. Its next calls wait for their own tenant alone, in the order in which they came. A tenant that holds nothing, since others hold every place,
//! has the next one that is given back, in the order in which such tenants came.
//!
//! **Invariants.** What all hold is counted before what a tenant holds, and given back after it: the places that other tenants leave are never
//! taken for more than they are. What was counted in vain, and what is given back, is told to those that wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use fdn_core::TenantTag;
use fdn_core::device::Percent;
use fdn_scheduling::invocation::most_of;
use prometheus::IntGauge;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Refused;
use crate::metrics::Metrics;
use crate::settings::AdmissionSettings;

/// The places of one app.
#[derive(Debug, Default)]
pub struct AppPlaces {
    /// Those that are free; made at the app's first call.
    free: OnceLock<Arc<Semaphore>>,
    waiting: AtomicU32,
    tenant: ArcSwap<TenantPlaces>,
}

impl AppPlaces {
    /// Says whose it is. Until then it is as if it were alone of its tenant.
    pub(crate) fn belong(&self, tenant: Arc<TenantPlaces>) {
        self.tenant.store(tenant);
    }

    /// Whether that was said.
    pub(crate) fn is_of(&self, tenant: TenantTag) -> bool {
        self.tenant.load().tag == Some(tenant)
    }
}

/// The places of all apps of one tenant.
#[derive(Debug, Default)]
pub struct TenantPlaces {
    /// Whose they are; nothing of an app whose tenant is not known.
    tag: Option<TenantTag>,
    held: AtomicU32,
    waiting: AtomicU32,
    /// Held by the first of those that wait.
    turn: Mutex<()>,
}

impl TenantPlaces {
    /// Those of this tenant.
    pub(crate) fn of(tag: TenantTag) -> Self {
        Self {
            tag: Some(tag),
            ..Self::default()
        }
    }
}

/// Places of the shares of an app and its tenant, until this is dropped.
#[derive(Debug)]
pub(super) struct Shared {
    _app: Option<OwnedSemaphorePermit>,
    _tenant: Option<TenantPlace>,
}

/// What each app and each tenant may hold.
#[derive(Debug)]
pub(super) struct Shares {
    app: Option<AppShare>,
    tenant: Option<Arc<TenantShare>>,
}

impl Shares {
    /// The shares of these settings.
    pub(super) fn new(settings: &AdmissionSettings, metrics: &Metrics) -> Self {
        let waiting = |share| metrics.waiting_for_share.with_label_values(&[share]);
        Self {
            app: AppShare::new(settings, waiting("app")),
            tenant: TenantShare::new(settings, waiting("tenant")).map(Arc::new),
        }
    }

    /// Takes one of the app's and one of its tenant's places, at once or after a wait.
    ///
    /// # Errors
    /// When as many calls wait for one as may, or this one did for as long as it may.
    pub(super) async fn enter(&self, places: &AppPlaces) -> Result<Shared, Refused> {
        let app = match &self.app {
            Some(share) => Some(share.enter(places).await?),
            None => None,
        };
        let tenant = match &self.tenant {
            Some(share) => Some(share.enter(&places.tenant).await?),
            None => None,
        };
        Ok(Shared {
            _app: app,
            _tenant: tenant,
        })
    }
}

/// So many hundredths of something, rounded up, at least one.
fn part(all: u32, percent: u8) -> u32 {
    let part = u64::from(all) * u64::from(percent);
    u32::try_from(part.div_ceil(100)).unwrap_or(all).max(1)
}

/// The most of the places that others leave.
fn most_places(left: u32, percent: Percent) -> u32 {
    u32::try_from(most_of(u64::from(left), percent)).unwrap_or(left)
}

/// What each app may hold.
#[derive(Debug)]
struct AppShare {
    places: u32,
    line: Line,
}

impl AppShare {
    /// Nothing where one app may hold every place.
    fn new(settings: &AdmissionSettings, gauge: IntGauge) -> Option<Self> {
        let percent = settings.app_share.get();
        let places = part(settings.slots, percent);
        (places < settings.slots).then(|| Self {
            places,
            line: Line::new(settings, percent, gauge),
        })
    }

    async fn enter(&self, app: &AppPlaces) -> Result<OwnedSemaphorePermit, Refused> {
        let free = app
            .free
            .get_or_init(|| Arc::new(Semaphore::new(self.places as usize)));
        match Arc::clone(free).try_acquire_owned() {
            Ok(permit) => Ok(permit),
            // Boxed, because it is seldom needed and would make every request's future larger.
            Err(_) => Box::pin(self.wait(app, free)).await,
        }
    }

    async fn wait(
        &self,
        app: &AppPlaces,
        free: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let _waits = self.line.join(&app.waiting).ok_or(Refused::AppFull)?;
        match timeout(self.line.wait, Arc::clone(free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // Nobody closes it; that it took too long is the usual case.
            Ok(Err(_)) | Err(_) => Err(Refused::AppFull),
        }
    }
}

/// What each tenant may hold.
#[derive(Debug)]
struct TenantShare {
    slots: u32,
    percent: Percent,
    line: Line,
    /// What all tenants hold, and what is kept for the next that holds nothing.
    held: AtomicU32,
    /// Held by the first of those tenants that hold nothing because others hold every place.
    next: Mutex<()>,
    /// Those that wait and are the first of their tenant.
    watchers: AtomicU32,
    freed: Notify,
}

/// A place of a tenant's share, until this is dropped.
#[derive(Debug)]
struct TenantPlace {
    share: Arc<TenantShare>,
    tenant: Arc<TenantPlaces>,
}

impl Drop for TenantPlace {
    fn drop(&mut self) {
        self.tenant.held.fetch_sub(1, Ordering::SeqCst);
        self.share.give_back();
    }
}

impl TenantShare {
    /// Nothing where one tenant may hold every place.
    fn new(settings: &AdmissionSettings, gauge: IntGauge) -> Option<Self> {
        let (slots, percent) = (settings.slots, settings.tenant_share);
        (most_places(slots, percent) < slots).then(|| Self {
            slots,
            percent,
            line: Line::new(settings, percent.get(), gauge),
            held: AtomicU32::new(0),
            next: Mutex::new(()),
            watchers: AtomicU32::new(0),
            freed: Notify::new(),
        })
    }

    /// The most that a tenant may hold beside others that hold so many.
    fn most(&self, others: u32) -> u32 {
        most_places(self.slots.saturating_sub(others), self.percent)
    }

    async fn enter(
        self: &Arc<Self>,
        tenant: &ArcSwap<TenantPlaces>,
    ) -> Result<TenantPlace, Refused> {
        let tenant = tenant.load_full();
        // Nobody passes those of its tenant that wait.
        if tenant.waiting.load(Ordering::SeqCst) == 0
            && let Some(place) = self.take(&tenant)
        {
            return Ok(place);
        }
        Box::pin(self.wait(&tenant)).await
    }

    fn take(self: &Arc<Self>, tenant: &Arc<TenantPlaces>) -> Option<TenantPlace> {
        // Looked at before it is counted, so that those that wait in vain do not wake each other for ever.
        let own = tenant.held.load(Ordering::SeqCst);
        let others = self.held.load(Ordering::SeqCst).saturating_sub(own);
        if own >= self.most(others) {
            return None;
        }
        let all = self.held.fetch_add(1, Ordering::SeqCst);
        let took = tenant
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |own| {
                (own < self.most(all.saturating_sub(own))).then_some(own + 1)
            });
        if took.is_err() {
            self.give_back();
            return None;
        }
        Some(TenantPlace {
            share: Arc::clone(self),
            tenant: Arc::clone(tenant),
        })
    }

    fn give_back(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    async fn wait(self: &Arc<Self>, tenant: &Arc<TenantPlaces>) -> Result<TenantPlace, Refused> {
        // A tenant that holds nothing is kept out by the others alone.
        let refused = |otherwise| match tenant.held.load(Ordering::SeqCst) {
            0 => otherwise,
            _ => Refused::TenantFull,
        };
        let waits = self.line.join(&tenant.waiting);
        let _waits = waits.ok_or_else(|| refused(Refused::Full))?;
        let turn = async {
            let _turn = tenant.turn.lock().await;
            self.watchers.fetch_add(1, Ordering::SeqCst);
            let _watches = Counted(&self.watchers);
            match self.when(|| self.take_or_starve(tenant)).await {
                Ok(place) => place,
                // The first place that is given back is for the first of those that wait so.
                Err(Starves) => {
                    let _next = self.next.lock().await;
                    let kept = Kept::new(self);
                    self.when(|| kept.claim(tenant)).await
                }
            }
        };
        let place = timeout(self.line.wait, turn).await;
        place.map_err(|_| refused(Refused::Late))
    }

    /// What `look` finds, at once or once something was given back.
    async fn when<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the look, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            freed.await;
        }
    }

    /// A place, or that there is none although the tenant holds none; nothing where it has to wait for its own.
    fn take_or_starve(
        self: &Arc<Self>,
        tenant: &Arc<TenantPlaces>,
    ) -> Option<Result<TenantPlace, Starves>> {
        match self.take(tenant) {
            Some(place) => Some(Ok(place)),
            None if tenant.held.load(Ordering::SeqCst) == 0 => Some(Err(Starves)),
            None => None,
        }
    }
}

/// Others hold every place, and the tenant none.
struct Starves;

/// A place that is kept for one tenant, which others count as held; given back when this is dropped.
struct Kept<'a> {
    share: &'a Arc<TenantShare>,
    kept: AtomicBool,
}

impl<'a> Kept<'a> {
    fn new(share: &'a Arc<TenantShare>) -> Self {
        share.held.fetch_add(1, Ordering::SeqCst);
        Self {
            share,
            kept: AtomicBool::new(true),
        }
    }

    /// Makes it the tenant's, if others leave one.
    fn claim(&self, tenant: &Arc<TenantPlaces>) -> Option<TenantPlace> {
        let share = self.share;
        let others = share.held.load(Ordering::SeqCst).saturating_sub(1);
        let took = tenant
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |own| {
                (own < share.most(others.saturating_sub(own))).then_some(own + 1)
            });
        took.ok()?;
        self.kept.store(false, Ordering::Relaxed);
        Some(TenantPlace {
            share: Arc::clone(share),
            tenant: Arc::clone(tenant),
        })
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if *self.kept.get_mut() {
            self.share.give_back();
        }
    }
}

/// Who may wait for a share.
#[derive(Debug)]
struct Line {
    /// So many of one app, or one tenant.
    most: u32,
    /// Each for so long.
    wait: Duration,
    gauge: IntGauge,
}

impl Line {
    fn new(settings: &AdmissionSettings, percent: u8, gauge: IntGauge) -> Self {
        Self {
            most: part(settings.waiting, percent),
            wait: settings.wait.as_duration(),
            gauge,
        }
    }

    /// One more waits, if it may.
    fn join<'a>(&'a self, waiting: &'a AtomicU32) -> Option<Waits<'a>> {
        let took = waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waiting| {
            (waiting < self.most).then_some(waiting + 1)
        });
        took.ok()?;
        self.gauge.inc();
        Some(Waits {
            gauge: &self.gauge,
            _counted: Counted(waiting),
        })
    }
}

/// One that waits, for as long as it lives.
struct Waits<'a> {
    gauge: &'a IntGauge,
    _counted: Counted<'a>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Counts down when dropped.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
