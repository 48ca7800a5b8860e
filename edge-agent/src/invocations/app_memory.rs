//! The memory of this node that the instances of each app and each tenant hold, whichever gateway ordered them; enforces their shares.
//!
//! The [`Pool`](super::pool) of a gateway keeps its own orders within the shares, on all nodes; but a node may get orders from several gateways.
//! An order that would exceed a share is refused, and another node is asked.
//!
//! The rule is the pool's ([`most_of`]), except that a node does not know which instances are idle: what is left by other tenants is everything
//! that their instances do not hold. A tenant has no limit while no function of another tenant is deployed here. An app whose tenant is unknown
//! counts as the only app of its tenant.
//!
//! An order that the node gives itself without a cluster only waits for its app's share here, until instances that are being stopped release it:
//! the pool has already decided on the tenant's share, in an order that starts need not follow.
//!
//! **Invariant.** Beyond its share an app has at most one instance here, or instances that were found running.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdn_core::device::Percent;
use fdn_core::{AppName, MebiBytes, TenantTag};
use fdn_scheduling::invocation::{most_of, part_of};
use tokio::sync::Notify;

/// The memory held by each app.
#[derive(Debug)]
pub(super) struct AppMemory {
    memory: MebiBytes,
    /// The limit of one app; `None` if it may hold all of the memory.
    share: Option<MebiBytes>,
    /// The share that one tenant may hold of what others leave; `None` if it may hold all of it.
    tenant_share: Option<Percent>,
    apps: Mutex<BTreeMap<AppName, App>>,
    freed: Notify,
}

/// What is known of an app: kept while it holds memory, or a function of it is registered.
#[derive(Debug, Default)]
struct App {
    held: MebiBytes,
    /// The number of registered functions.
    functions: usize,
    tenant: Option<TenantTag>,
}

/// The part of its app's and its tenant's share that one instance holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct ShareReservation {
    all: Arc<AppMemory>,
    app: AppName,
    memory: MebiBytes,
}

/// Keeps a function of an app registered until this is dropped.
#[derive(Debug)]
pub(super) struct RegistrationGuard {
    all: Arc<AppMemory>,
    app: AppName,
}

/// The memory held by the apps of one tenant, and by all other apps.
#[derive(Debug, Default)]
struct HeldMemory {
    own: MebiBytes,
    others: MebiBytes,
    /// Whether a function of another tenant is registered.
    is_beside_others: bool,
}

impl AppMemory {
    /// The accounts of a node with this much memory; `None` if one app, and one tenant, may hold all of it.
    pub(super) fn new(memory: MebiBytes, app: Percent, tenant: Percent) -> Option<Arc<Self>> {
        let share = MebiBytes(part_of(memory.get(), app));
        ((app, tenant) != (Percent::WHOLE, Percent::WHOLE)).then(|| {
            Arc::new(Self {
                memory,
                share: (app != Percent::WHOLE).then_some(share),
                tenant_share: (tenant != Percent::WHOLE).then_some(tenant),
                apps: Mutex::default(),
                freed: Notify::new(),
            })
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AppName, App>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a function of an app.
    pub(super) fn register(self: &Arc<Self>, app: &AppName) -> RegistrationGuard {
        self.lock().entry(app.clone()).or_default().functions += 1;
        RegistrationGuard {
            all: Arc::clone(self),
            app: app.clone(),
        }
    }

    /// Sets the tenant of an app.
    pub(super) fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        if let Some(app) = self.lock().get_mut(app) {
            app.tenant = Some(tenant);
        }
    }

    /// Checks that one more instance of an app stays within the app's share.
    fn fits_app(
        &self,
        all: &BTreeMap<AppName, App>,
        app: &AppName,
        memory: MebiBytes,
    ) -> Result<(), String> {
        let held = all.get(app).map_or(MebiBytes(0), |app| app.held);
        let Some(share) = self.share.filter(|_| held > MebiBytes(0)) else {
            return Ok(());
        };
        if held.saturating_add(memory) <= share {
            return Ok(());
        }
        Err(format!(
            "instances of {app} hold {held} here, and one app may hold {share}"
        ))
    }

    /// Checks that one more instance of an app stays within its tenant's share.
    fn fits_tenant(
        &self,
        all: &BTreeMap<AppName, App>,
        app: &AppName,
        memory: MebiBytes,
    ) -> Result<(), String> {
        let Some(share) = self.tenant_share else {
            return Ok(());
        };
        let held = held(all, app);
        let own = held.own;
        let left = self.memory.saturating_sub(held.others);
        let limit = MebiBytes(most_of(left.get(), share));
        let is_bound = held.is_beside_others && own > MebiBytes(0);
        if !is_bound || own.saturating_add(memory) <= limit {
            return Ok(());
        }
        Err(format!(
            "instances of all apps of the tenant of {app} hold {own} here, and of the {left} that other tenants leave it may hold {limit}"
        ))
    }

    /// Counts an instance that runs already, whatever its app and its tenant hold.
    pub(super) fn found(self: &Arc<Self>, app: &AppName, memory: MebiBytes) -> ShareReservation {
        self.add(&mut self.lock(), app, memory)
    }

    /// Counts one more instance, if it stays within the shares of its app and its tenant.
    ///
    /// # Errors
    /// With a text that says what is short.
    pub(super) fn reserve(
        self: &Arc<Self>,
        app: &AppName,
        memory: MebiBytes,
    ) -> Result<ShareReservation, String> {
        let mut all = self.lock();
        self.fits_app(&all, app, memory)?;
        self.fits_tenant(&all, app, memory)?;
        Ok(self.add(&mut all, app, memory))
    }

    fn add(
        self: &Arc<Self>,
        all: &mut BTreeMap<AppName, App>,
        app: &AppName,
        memory: MebiBytes,
    ) -> ShareReservation {
        let held = &mut all.entry(app.clone()).or_default().held;
        *held = held.saturating_add(memory);
        ShareReservation {
            all: Arc::clone(self),
            app: app.clone(),
            memory,
        }
    }

    /// Counts one more instance, on which the pool has decided, after waiting until stopping instances of its app have released their memory. The
    /// caller must bound the wait.
    pub(super) async fn reserve_when_free(
        self: &Arc<Self>,
        app: &AppName,
        memory: MebiBytes,
    ) -> ShareReservation {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(part) = self.reserve_of_app(app, memory) {
                return part;
            }
            freed.await;
        }
    }

    fn reserve_of_app(
        self: &Arc<Self>,
        app: &AppName,
        memory: MebiBytes,
    ) -> Option<ShareReservation> {
        let mut all = self.lock();
        let fits = self.fits_app(&all, app, memory).is_ok();
        fits.then(|| self.add(&mut all, app, memory))
    }

    /// Changes the record of an app, and removes it once nothing is left in it.
    fn change(&self, app: &AppName, change: impl FnOnce(&mut App)) {
        let mut all = self.lock();
        if let Some(known) = all.get_mut(app) {
            change(known);
            if known.held == MebiBytes(0) && known.functions == 0 {
                all.remove(app);
            }
        }
    }
}

/// The memory held by the apps of this app's tenant, and by the apps of others.
fn held(all: &BTreeMap<AppName, App>, app: &AppName) -> HeldMemory {
    let tenant = all.get(app).and_then(|app| app.tenant);
    let mut held = HeldMemory::default();
    for (name, other) in all {
        if name == app || (tenant.is_some() && other.tenant == tenant) {
            held.own = held.own.saturating_add(other.held);
        } else {
            held.others = held.others.saturating_add(other.held);
            held.is_beside_others |= other.functions > 0;
        }
    }
    held
}

impl Drop for ShareReservation {
    fn drop(&mut self) {
        let memory = self.memory;
        self.all.change(&self.app, |app| {
            app.held = app.held.saturating_sub(memory);
        });
        self.all.freed.notify_waiters();
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        self.all.change(&self.app, |app| app.functions -= 1);
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::TenantId;
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn app(name: &str) -> AppName {
        name.parse().expect("it parses")
    }

    fn percent(share: u8) -> Percent {
        Percent::try_from(share).expect("a share")
    }

    fn tenant(number: u128) -> TenantTag {
        TenantId::from_uuid(Uuid::from_u128(number)).tag()
    }

    /// A node of 100 MiB on which these apps are deployed, each with the number of its tenant.
    fn node(
        (app_share, tenant_share): (u8, u8),
        apps: &[(&AppName, u128)],
    ) -> (Arc<AppMemory>, Vec<RegistrationGuard>) {
        let (share, of_tenant) = (percent(app_share), percent(tenant_share));
        let all = AppMemory::new(MebiBytes(100), share, of_tenant).expect("counted");
        let register = |(app, number): &(&AppName, u128)| {
            let registered = all.register(app);
            all.set_tenant(app, tenant(*number));
            registered
        };
        let registered = apps.iter().map(register).collect();
        (all, registered)
    }

    #[tokio::test]
    async fn an_app_holds_its_share_or_one_instance_and_the_next_waits_for_it() {
        let all = AppMemory::new(MebiBytes(100), percent(75), Percent::WHOLE).expect("counted");
        let (one, other) = (app("one"), app("other"));
        let large = all.reserve(&one, MebiBytes(90)).expect("its first");
        let refused = all.reserve(&one, MebiBytes(1)).expect_err("all of it");
        assert!(refused.contains("one app may hold 75"), "{refused}");
        let _other = all.reserve(&other, MebiBytes(40)).expect("not its matter");
        assert!(all.reserve(&other, MebiBytes(36)).is_err());
        drop(all.reserve(&other, MebiBytes(35)).expect("75 together"));
        let waiting = all.reserve_when_free(&one, MebiBytes(50));
        tokio::pin!(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        drop(large);
        let next = waiting.await;
        let found = all.found(&one, MebiBytes(70));
        assert!(all.reserve(&one, MebiBytes(1)).is_err());
        drop((next, found));
        assert!(!all.lock().contains_key(&one), "nothing is kept of it");
    }

    #[test]
    fn the_apps_of_a_tenant_hold_its_share_of_what_others_leave_together() {
        let (one, two, other) = (app("one"), app("two"), app("other"));
        let (all, mut registered) = node((75, 90), &[(&one, 1), (&two, 1), (&other, 2)]);
        let reserve = |app, memory| all.reserve(app, MebiBytes(memory));
        let first = reserve(&one, 70).expect("its app's share");
        let second = reserve(&two, 20).expect("90 of 100");
        let refused = reserve(&two, 1).map(drop).expect_err("no more of it");
        assert!(
            refused.contains("hold 90") && refused.contains("it may hold 90"),
            "{refused}"
        );
        let others = reserve(&other, 10).expect("beside a tenant that holds all it may");
        assert!(reserve(&other, 1).is_err(), "9 of the 10 that are left");
        drop(first);
        let again = reserve(&one, 61).expect("81 of the 90 that are left");
        assert!(reserve(&two, 1).is_err());
        // An app that holds nothing may have one instance, however large.
        drop((second, again));
        let large = reserve(&one, 100).expect("its first");
        drop((large, others));
        // The last function of the other tenant is gone, so nothing has to be left for anyone.
        drop(registered.pop());
        let whole = (
            reserve(&one, 70).expect("alone"),
            reserve(&two, 30).expect("alone"),
        );
        drop((whole, registered));
        assert!(all.lock().is_empty(), "nothing is kept of anybody");
    }

    #[test]
    fn an_app_that_is_nobodys_is_its_tenants_only_one() {
        let (one, two) = (app("one"), app("two"));
        let all = AppMemory::new(MebiBytes(100), Percent::WHOLE, percent(50)).expect("counted");
        let registered = (all.register(&one), all.register(&two));
        let held = (
            all.reserve(&one, MebiBytes(50)).expect("half of 100"),
            all.reserve(&two, MebiBytes(25)).expect("half of 50"),
        );
        assert!(all.reserve(&one, MebiBytes(1)).is_err());
        // The tenant of an unknown app is not stored.
        all.set_tenant(&app("three"), tenant(1));
        assert_eq!(all.lock().len(), 2);
        all.set_tenant(&one, tenant(1));
        all.set_tenant(&two, tenant(1));
        drop(all.reserve(&one, MebiBytes(25)).expect("alone since then"));
        drop((held, registered));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn where_one_may_hold_everything_nothing_is_counted() {
        let new = |app, tenant| AppMemory::new(MebiBytes(100), app, tenant);
        assert!(new(Percent::WHOLE, Percent::WHOLE).is_none());
        let of_tenants = new(Percent::WHOLE, percent(90)).expect("counted");
        let held = of_tenants
            .reserve(&app("one"), MebiBytes(90))
            .expect("alone");
        let rest = of_tenants
            .reserve(&app("one"), MebiBytes(10))
            .expect("alone");
        drop((held, rest));
    }

    proptest! {
        /// Instances of six apps of three tenants start and end in any order: one is admitted exactly if its app and its tenant stay within their
        /// shares, or hold nothing yet.
        #[test]
        fn a_tenant_holds_its_share_of_what_others_leave(
            shares in (1_u8..=100, 1_u8..100),
            steps in prop::collection::vec((0_usize..6, 1_u64..40, any::<bool>()), 1..200),
        ) {
            let names: Vec<AppName> = (0..6).map(|at| app(&format!("app-{at}"))).collect();
            let of: Vec<_> = names.iter().zip([0, 1, 2, 0, 1, 2]).collect();
            let (all, registered) = node(shares, &of);
            let mut parts: [Vec<(u64, ShareReservation)>; 6] = Default::default();
            for (who, memory, comes) in steps {
                if !comes {
                    drop(parts[who].pop());
                    continue;
                }
                let held = |of: &dyn Fn(usize) -> bool| -> u64 {
                    let parts = parts.iter().enumerate().filter(|(at, _)| of(*at));
                    parts.flat_map(|(_, parts)| parts).map(|(memory, _)| memory).sum()
                };
                let (own, of_tenant) = (held(&|at| at == who), held(&|at| at % 3 == who % 3));
                let left = 100_u64.saturating_sub(held(&|at| at % 3 != who % 3));
                let may = |held: u64, limit: u64| held == 0 || held + memory <= limit;
                // Instances admitted as the first may add up to more than there is: the ledger bounds that.
                let fits = (shares.0 == 100 || may(own, u64::from(shares.0)))
                    && may(of_tenant, (left * u64::from(shares.1) / 100).max(left.min(1)));
                let took = all.reserve(&names[who], MebiBytes(memory));
                prop_assert_eq!(took.is_ok(), fits, "{} and {} of {}", own, of_tenant, left);
                parts[who].extend(took.ok().map(|part| (memory, part)));
            }
            drop((parts, registered));
            prop_assert!(all.lock().is_empty());
        }
    }
}
