//! Limits the places of a node that one app, and all apps of one tenant together, may hold.
//!
//! Calls that wait for something slow cost little and stay long, so the calls of one app could in time hold every place, and calls of all other
//! apps would be refused. Therefore an app has a share of the places: once it is used up, the app's next calls wait for their own app only, in
//! order of arrival, and the other places are left to others. The stages of a workflow have one share together.
//!
//! A tenant may have many apps, so tenants have a share too ([`most_of`], as for the memory of instances): **a tenant takes another place only
//! while it holds less than its share of the places that other tenants leave to it.** A tenant that is alone has its share of all places; if
//! several want more than there is, the one that holds most is the first that may take no more, so that as calls end all approach the same
//! number; and each leaves a part to new tenants. A tenant's next calls wait for their own tenant only, in order of arrival. A tenant that holds
//! nothing, because others hold every place, gets the next place that is released, in the order in which such tenants arrived.
//!
//! **Invariants.** The total is incremented before the tenant's count, and decremented after it: the places that other tenants leave are never
//! overestimated. Both an increment that is undone and a release are signalled to waiting calls.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fdn_core::TenantTag;
use fdn_core::device::Percent;
use fdn_scheduling::invocation::most_of;
use prometheus::IntGauge;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Refused;
use super::admission::left;
use crate::metrics::Metrics;
use crate::settings::AdmissionSettings;

/// The places of one app.
#[derive(Debug, Default)]
pub struct AppPlaces {
    /// The app's free places; created at its first call.
    free: OnceLock<Arc<Semaphore>>,
    waiting: AtomicU32,
    tenant: ArcSwap<TenantPlaces>,
}

impl AppPlaces {
    /// Sets the app's tenant. Until then the app counts as its tenant's only one.
    pub(crate) fn set_tenant(&self, tenant: Arc<TenantPlaces>) {
        self.tenant.store(tenant);
    }

    /// Whether the app's tenant is set to this one.
    pub(crate) fn is_of(&self, tenant: TenantTag) -> bool {
        self.tenant.load().tag == Some(tenant)
    }
}

/// The places of all apps of one tenant.
#[derive(Debug, Default)]
pub struct TenantPlaces {
    /// The tenant; `None` for an app whose tenant is not known.
    tag: Option<TenantTag>,
    held: AtomicU32,
    waiting: AtomicU32,
    /// Locked by the tenant's first waiting call.
    turn: Mutex<()>,
}

impl TenantPlaces {
    /// The places of this tenant.
    pub(crate) fn of(tag: TenantTag) -> Self {
        Self {
            tag: Some(tag),
            ..Self::default()
        }
    }
}

/// The places taken from the shares of an app and its tenant, until this is dropped.
#[derive(Debug)]
pub(super) struct SharePermit {
    _app: Option<OwnedSemaphorePermit>,
    _tenant: Option<TenantPlace>,
}

/// The limits of each app and each tenant.
#[derive(Debug)]
pub(super) struct Shares {
    app: Option<AppShare>,
    tenant: Option<Arc<TenantShare>>,
}

impl Shares {
    /// The limits by these settings.
    pub(super) fn new(settings: &AdmissionSettings, metrics: &Metrics) -> Self {
        let waiting = |share| metrics.waiting_for_share.with_label_values(&[share]);
        Self {
            app: AppShare::new(settings, waiting("app")),
            tenant: TenantShare::new(settings, waiting("tenant")).map(Arc::new),
        }
    }

    /// Takes one of the app's and one of its tenant's places, at once or after a wait that ends `until` then at the latest.
    ///
    /// # Errors
    /// When the limit of waiting calls is reached, or this one has waited for the longest permitted time.
    pub(super) async fn enter(
        &self,
        places: &AppPlaces,
        until: Instant,
    ) -> Result<SharePermit, Refused> {
        let app = match &self.app {
            Some(share) => Some(share.enter(places, until).await?),
            None => None,
        };
        let tenant = match &self.tenant {
            Some(share) => Some(share.enter(&places.tenant, until).await?),
            None => None,
        };
        Ok(SharePermit {
            _app: app,
            _tenant: tenant,
        })
    }
}

/// `percent` of `all`, rounded up, at least 1.
fn part(all: u32, percent: u8) -> u32 {
    let part = u64::from(all) * u64::from(percent);
    u32::try_from(part.div_ceil(100)).unwrap_or(all).max(1)
}

/// A tenant's limit: `percent` of the places that others leave.
fn tenant_limit(left: u32, percent: Percent) -> u32 {
    u32::try_from(most_of(u64::from(left), percent)).unwrap_or(left)
}

/// The limit of each app.
#[derive(Debug)]
struct AppShare {
    places: u32,
    limits: WaitLimits,
}

impl AppShare {
    /// `None` if one app may hold every place.
    fn new(settings: &AdmissionSettings, gauge: IntGauge) -> Option<Self> {
        let percent = settings.app_share.get();
        let places = part(settings.slots, percent);
        (places < settings.slots).then(|| Self {
            places,
            limits: WaitLimits::new(settings, percent, gauge),
        })
    }

    async fn enter(
        &self,
        app: &AppPlaces,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let free = app
            .free
            .get_or_init(|| Arc::new(Semaphore::new(self.places as usize)));
        match Arc::clone(free).try_acquire_owned() {
            Ok(permit) => Ok(permit),
            // Boxed, because it is seldom needed and would make every request's future larger.
            Err(_) => Box::pin(self.wait(app, free, until)).await,
        }
    }

    async fn wait(
        &self,
        app: &AppPlaces,
        free: &Arc<Semaphore>,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let _waits = self.limits.join(&app.waiting).ok_or(Refused::AppFull)?;
        let longest = self.limits.wait.min(left(until));
        match timeout(longest, Arc::clone(free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed, so this is nearly always a timeout.
            Ok(Err(_)) | Err(_) => Err(Refused::AppFull),
        }
    }
}

/// The limit of each tenant.
#[derive(Debug)]
struct TenantShare {
    slots: u32,
    percent: Percent,
    limits: WaitLimits,
    /// The places that all tenants hold, plus those reserved for starving tenants.
    held: AtomicU32,
    /// Locked by the first of the tenants that hold nothing because others hold every place.
    next: Mutex<()>,
    /// The number of waiting calls that are the first of their tenant.
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
    /// `None` if one tenant may hold every place.
    fn new(settings: &AdmissionSettings, gauge: IntGauge) -> Option<Self> {
        let (slots, percent) = (settings.slots, settings.tenant_share);
        (tenant_limit(slots, percent) < slots).then(|| Self {
            slots,
            percent,
            limits: WaitLimits::new(settings, percent.get(), gauge),
            held: AtomicU32::new(0),
            next: Mutex::new(()),
            watchers: AtomicU32::new(0),
            freed: Notify::new(),
        })
    }

    /// The most places that a tenant may hold while other tenants hold `others`.
    fn limit(&self, others: u32) -> u32 {
        tenant_limit(self.slots.saturating_sub(others), self.percent)
    }

    async fn enter(
        self: &Arc<Self>,
        tenant: &ArcSwap<TenantPlaces>,
        until: Instant,
    ) -> Result<TenantPlace, Refused> {
        let tenant = tenant.load_full();
        // A call must not overtake waiting calls of its tenant.
        if tenant.waiting.load(Ordering::SeqCst) == 0
            && let Some(place) = self.take(&tenant)
        {
            return Ok(place);
        }
        Box::pin(self.wait(&tenant, until)).await
    }

    fn take(self: &Arc<Self>, tenant: &Arc<TenantPlaces>) -> Option<TenantPlace> {
        // Checked before counting, so that calls waiting in vain do not keep waking each other.
        let own = tenant.held.load(Ordering::SeqCst);
        let others = self.held.load(Ordering::SeqCst).saturating_sub(own);
        if own >= self.limit(others) {
            return None;
        }
        let all = self.held.fetch_add(1, Ordering::SeqCst);
        let took = tenant
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |own| {
                (own < self.limit(all.saturating_sub(own))).then_some(own + 1)
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

    async fn wait(
        self: &Arc<Self>,
        tenant: &Arc<TenantPlaces>,
        until: Instant,
    ) -> Result<TenantPlace, Refused> {
        // A tenant that holds nothing is kept out only by the others.
        let refused = |otherwise| match tenant.held.load(Ordering::SeqCst) {
            0 => otherwise,
            _ => Refused::TenantFull,
        };
        let waits = self.limits.join(&tenant.waiting);
        let _waits = waits.ok_or_else(|| refused(Refused::Full))?;
        let turn = async {
            let _turn = tenant.turn.lock().await;
            self.watchers.fetch_add(1, Ordering::SeqCst);
            let _watches = DecrementGuard(&self.watchers);
            match self.retry_on_release(|| self.take_or_starve(tenant)).await {
                Ok(place) => place,
                // The first place that is released goes to the first tenant that waits like this.
                Err(Starving) => {
                    let _next = self.next.lock().await;
                    let reserved = ReservedPlace::new(self);
                    self.retry_on_release(|| reserved.claim(tenant)).await
                }
            }
        };
        let place = timeout(self.limits.wait.min(left(until)), turn).await;
        place.map_err(|_| refused(Refused::Late))
    }

    /// Returns the result of `attempt`, at once or after a release.
    async fn retry_on_release<T>(&self, attempt: impl Fn() -> Option<T>) -> T {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(found) = attempt() {
                return found;
            }
            freed.await;
        }
    }

    /// A place, or that the tenant starves: others hold every place and it has none. `None` if it has to wait for one of its own.
    fn take_or_starve(
        self: &Arc<Self>,
        tenant: &Arc<TenantPlaces>,
    ) -> Option<Result<TenantPlace, Starving>> {
        match self.take(tenant) {
            Some(place) => Some(Ok(place)),
            None if tenant.held.load(Ordering::SeqCst) == 0 => Some(Err(Starving)),
            None => None,
        }
    }
}

/// Others hold every place, and the tenant has none.
struct Starving;

/// A place reserved for one tenant, which others count as taken; released when this is dropped.
struct ReservedPlace<'a> {
    share: &'a Arc<TenantShare>,
    unclaimed: AtomicBool,
}

impl<'a> ReservedPlace<'a> {
    fn new(share: &'a Arc<TenantShare>) -> Self {
        share.held.fetch_add(1, Ordering::SeqCst);
        Self {
            share,
            unclaimed: AtomicBool::new(true),
        }
    }

    /// Turns the reservation into a place of the tenant, if others leave one.
    fn claim(&self, tenant: &Arc<TenantPlaces>) -> Option<TenantPlace> {
        let share = self.share;
        let others = share.held.load(Ordering::SeqCst).saturating_sub(1);
        let took = tenant
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |own| {
                (own < share.limit(others.saturating_sub(own))).then_some(own + 1)
            });
        took.ok()?;
        self.unclaimed.store(false, Ordering::Relaxed);
        Some(TenantPlace {
            share: Arc::clone(share),
            tenant: Arc::clone(tenant),
        })
    }
}

impl Drop for ReservedPlace<'_> {
    fn drop(&mut self) {
        if *self.unclaimed.get_mut() {
            self.share.give_back();
        }
    }
}

/// The limits of waiting for a share.
#[derive(Debug)]
struct WaitLimits {
    /// The most waiting calls of one app, or of one tenant.
    max: u32,
    /// The longest time that each waits.
    wait: Duration,
    gauge: IntGauge,
}

impl WaitLimits {
    fn new(settings: &AdmissionSettings, percent: u8, gauge: IntGauge) -> Self {
        Self {
            max: part(settings.waiting, percent),
            wait: settings.wait.as_duration(),
            gauge,
        }
    }

    /// Counts one more waiting call, if the limit permits.
    fn join<'a>(&'a self, waiting: &'a AtomicU32) -> Option<WaitingGuard<'a>> {
        let took = waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waiting| {
            (waiting < self.max).then_some(waiting + 1)
        });
        took.ok()?;
        self.gauge.inc();
        Some(WaitingGuard {
            gauge: &self.gauge,
            _counted: DecrementGuard(waiting),
        })
    }
}

/// One waiting call, while this lives.
struct WaitingGuard<'a> {
    gauge: &'a IntGauge,
    _counted: DecrementGuard<'a>,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Decrements the counter when dropped.
struct DecrementGuard<'a>(&'a AtomicU32);

impl Drop for DecrementGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
