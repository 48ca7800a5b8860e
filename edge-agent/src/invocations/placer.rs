//! Starts instances on this node, or on another one of the cluster.
//!
//! A [`Placer`] is asked for one more instance of a function and returns a handle on it, or the reason why there is none. [`LocalPlacer`] starts
//! it on this node: the [`Ledger`] reserves its resources, or refuses.

mod adopt;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::device::{GpuRequest, Percent};
use fdn_core::{AppName, InstanceId, MebiBytes, Millis, Resources, TenantTag};
use fdn_devices::Devices;
use fdn_instances::{Description, Image, Instance, Kind, Runtime, StartError, StartSpec};
use fdn_scheduling::invocation::Weight;
use futures::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::info;
use uuid::Uuid;

pub use super::place_error::PlaceError;

use super::app_memory::{AppMemory, ShareReservation};
use super::ledger::{InstanceReservation, Ledger};
use super::slices::{IdleInstances, Sharing, Slices};
use super::standby::Standby;
use super::stop::stopped;
use super::unclaimed::Unclaimed;
use crate::metrics::InstanceMetrics;
use crate::peers::Placement;

/// Keeps a function version registered with a placer while it lives; `None` if the placer does not need that.
pub type Registration = Option<Box<dyn Any + Send + Sync>>;

/// A started instance, with the resources that it holds until it is gone.
#[derive(Debug)]
pub struct Placed {
    /// The handle.
    pub instance: Arc<dyn Instance>,
    /// The resources it holds on this node; `None` if it runs on another.
    pub reservation: Option<InstanceReservation>,
}

/// Why an instance is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A call waits for it.
    Call,
    /// Calls are expected: idle instances are not evicted for it.
    Ahead,
}

/// Starts instances on request.
#[async_trait]
pub trait Placer: Send + Sync {
    /// Starts one more instance; returns when it responds. `spec` is complete except for the instance's id, which is newly generated.
    ///
    /// # Errors
    /// When there is no room, or the instance does not start.
    async fn place(&self, spec: StartSpec, need: Need) -> Result<Placed, PlaceError>;

    /// Fetches an image ahead of time, so that the first start need not fetch it.
    ///
    /// # Errors
    /// When the image cannot be fetched or used.
    async fn prepare(&self, image: &Image) -> Result<(), StartError>;

    /// Whether containers can run on this node or on another one of its cluster.
    async fn runs_containers(&self) -> bool {
        true
    }

    /// Why the devices of this node and of all others of its cluster can never satisfy the request; `None` if some could. Returns once that is
    /// known.
    async fn lacks_devices(&self, request: &GpuRequest) -> Option<String> {
        let _ = request;
        None
    }

    /// Running instances that match this description except for the id; each is returned once.
    fn found(&self, description: &Description) -> Vec<Placed>;

    /// Whether idle instances can be paused.
    fn pauses(&self) -> bool {
        false
    }

    /// The weight of an instance for the scheduler, in KiB ([`of_memory`]): its memory, or, if larger, the same fraction of all memory as its CPU
    /// is of all CPU. So instances that fit by this figure fit by both, as long as the node has no more instances than KiB for each thousandth of
    /// a core; beyond that the ledger refuses what does not fit.
    fn weight(&self, resources: Resources) -> Weight;

    /// The weight that all instances together may have now: a limit for requests, not a promise.
    fn room(&self) -> Weight;

    /// The greatest weight that a single instance can have on any node.
    fn max_weight(&self) -> Weight;

    /// Registers a function version whose instances will be requested, with the expected execution time of a call.
    fn register(&self, spec: &StartSpec, expected: Millis) -> Registration {
        let _ = (spec, expected);
        None
    }

    /// Sets the tenant of an app of which a function is registered.
    fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        let _ = (app, tenant);
    }

    /// Releases instances that are kept ahead of need, as far as calls in sandboxes wait for their memory.
    fn evict_standby(&self) {}

    /// How the cluster placed an instance; returned once, and only for instances that the cluster placed.
    fn placement(&self, instance: InstanceId) -> Option<Arc<Placement>> {
        let _ = instance;
        None
    }
}

/// Starts instances on this node.
pub struct LocalPlacer {
    runtime: Arc<dyn Runtime>,
    ledger: Arc<Ledger>,
    apps: Option<Arc<AppMemory>>,
    start_timeout: Duration,
    sharing: Option<Arc<Sharing>>,
    standby: Option<Standby>,
    /// Instances that hold slices of devices, in case those devices fail.
    on_devices: Mutex<BTreeMap<InstanceId, Weak<dyn Instance>>>,
    found: Mutex<BTreeMap<InstanceId, Placed>>,
}

impl LocalPlacer {
    /// A placer that starts instances in this runtime, within this ledger.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>, ledger: Arc<Ledger>, start_timeout: Duration) -> Self {
        Self {
            runtime,
            ledger,
            apps: None,
            start_timeout,
            sharing: None,
            standby: None,
            on_devices: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// Limits the memory of one app's instances to the share `app`, and of one tenant's instances to the share `tenant` of what other tenants
    /// leave.
    #[must_use]
    pub fn with_shares(mut self, app: Percent, tenant: Percent) -> Self {
        self.apps = AppMemory::new(self.ledger.capacity().memory_mib, app, tenant);
        self
    }

    /// Adds GPU devices, slices of which are bound to instances that ask for them.
    #[must_use]
    pub fn with_devices(mut self, devices: Devices) -> Self {
        self.sharing = Some(Sharing::new(devices));
        self
    }

    /// Adds a source of idle instances that may be ended when their slices of devices are needed; sources are asked in the order in which they
    /// were added.
    pub fn add_idle_instances(&self, idle_instances: Arc<dyn IdleInstances>) {
        if let Some(sharing) = &self.sharing {
            sharing.add_idle_instances(idle_instances);
        }
    }

    /// The GPU memory that can be bound now, and that of all devices.
    #[must_use]
    pub fn gpu(&self) -> (MebiBytes, MebiBytes) {
        let sharing = self.sharing.as_ref();
        sharing.map_or_else(Default::default, |sharing| sharing.devices().totals())
    }

    /// The GPU memory that can be bound now, and that which is bound.
    #[must_use]
    pub fn gpu_left(&self) -> (MebiBytes, MebiBytes) {
        let sharing = self.sharing.as_ref();
        sharing.map_or_else(Default::default, |sharing| sharing.devices().usage())
    }

    /// Keeps up to `each` instances of each function on standby, started before they are requested.
    #[must_use]
    pub fn with_standby(mut self, each: u32, patience: Duration, metrics: InstanceMetrics) -> Self {
        let (runtime, ledger) = (Arc::clone(&self.runtime), Arc::clone(&self.ledger));
        self.standby = Standby::new(runtime, ledger, each, patience, metrics);
        self
    }

    #[cfg(test)]
    pub(super) const fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    /// Stops starting instances ahead of need, because the agent stops; also ends those on standby if they do not outlive the agent.
    pub async fn close(&self, ends_with_us: bool) {
        if let Some(standby) = &self.standby {
            standby.close(ends_with_us).await;
        }
    }

    /// Checks that there is room for an instance with these resources, or would be once instances on standby have given way.
    ///
    /// # Errors
    /// With a text that says what is short.
    pub fn has_room(&self, resources: Resources) -> Result<(), String> {
        let resources = on_the_node(resources);
        let short = match self.ledger.reserve(resources) {
            Ok(_) => return Ok(()),
            Err(short) => short,
        };
        let standby = self.standby.as_ref();
        if standby.is_some_and(|standby| standby.could_evict_for(resources)) {
            return Ok(());
        }
        Err(short)
    }

    /// Reserves one more instance's part of its app's and its tenant's share, for [`LocalPlacer::place_with`]; `None` if there are no shares.
    ///
    /// # Errors
    /// With a text that says what is short.
    pub(crate) fn take_share(
        &self,
        description: &Description,
    ) -> Result<Option<ShareReservation>, String> {
        let memory = description.resources.memory_mib;
        let apps = self.apps.as_ref();
        let part = apps.map(|apps| apps.reserve(&description.app, memory));
        part.transpose()
    }

    /// Reserves CPU and memory, evicting instances on standby if necessary, and waits for instances that are being stopped.
    async fn reserve_when_free(&self, resources: Resources) -> InstanceReservation {
        if let Ok(reservation) = self.ledger.reserve(resources) {
            return reservation;
        }
        if let Some(standby) = &self.standby {
            standby.evict_for(resources);
        }
        self.ledger.reserve_when_free(resources).await
    }

    /// The kind of runtime that starts instances here.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.runtime.kind()
    }

    /// Ends instances whose devices have failed or are gone; their functions get new ones.
    pub async fn end(&self, ids: &BTreeSet<InstanceId>) {
        let concerned: Vec<_> = {
            let mut held = self
                .on_devices
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            held.retain(|_, instance| instance.strong_count() > 0);
            let of = |id| held.get(id).and_then(Weak::upgrade);
            ids.iter().filter_map(of).collect()
        };
        let ends = concerned.into_iter().map(|instance| async move {
            info!(id = %instance.id(), "an instance on a failed device is ended");
            // Whoever has it holds its resources until then.
            stopped(&*instance, Duration::ZERO).await;
        });
        join_all(ends).await;
    }

    /// Remembers an instance for [`LocalPlacer::end`].
    fn noted(&self, instance: &Arc<dyn Instance>) {
        if !instance.description().devices.is_empty() {
            let mut held = self
                .on_devices
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            held.retain(|_, instance| instance.strong_count() > 0);
            held.insert(instance.id(), Arc::downgrade(instance));
        }
    }
}

impl LocalPlacer {
    /// Like [`Placer::place`], with the part that [`LocalPlacer::take_share`] reserved. Without one, it waits for stopping instances of its app
    /// to release theirs.
    pub(crate) async fn place_with(
        &self,
        mut spec: StartSpec,
        need: Need,
        part: Option<ShareReservation>,
    ) -> Result<Placed, PlaceError> {
        spec.description.id = InstanceId::from_uuid(Uuid::now_v7());
        let resources = on_the_node(spec.description.resources);
        if let Some(short) = resources.shortage(&self.ledger.capacity()) {
            return Err(PlaceError::NoRoom(short));
        }
        let start = async {
            let (app, memory) = (&spec.description.app, resources.memory_mib);
            let part = match (part, &self.apps) {
                (None, Some(apps)) => Some(apps.reserve_when_free(app, memory).await),
                (part, _) => part,
            };
            let standby = match &self.standby {
                Some(standby) => standby.take(&spec).await,
                None => None,
            };
            if let Some(mut placed) = standby {
                placed.reservation = placed
                    .reservation
                    .map(|reservation| reservation.with_part(part));
                return Ok(placed);
            }
            // Instances that were evicted for this one may still be stopping.
            let reservation = self.reserve_when_free(resources).await;
            let slices = match &self.sharing {
                Some(sharing) => Slices::bind(sharing, &mut spec, need).await?,
                None => None,
            };
            let reservation = reservation.with_slices(slices).with_part(part);
            let placed = Unclaimed::start(&self.runtime, spec, reservation).await?;
            self.noted(&placed.instance);
            Ok(placed)
        };
        match timeout(self.start_timeout, start).await {
            Ok(placed) => placed,
            Err(_) => Err(PlaceError::Late(self.start_timeout)),
        }
    }
}

#[async_trait]
impl Placer for LocalPlacer {
    async fn place(&self, spec: StartSpec, need: Need) -> Result<Placed, PlaceError> {
        self.place_with(spec, need, None).await
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.runtime.prepare(image).await
    }

    async fn lacks_devices(&self, request: &GpuRequest) -> Option<String> {
        let (sharing, request) = (self.sharing.clone()?, request.clone());
        // The allocation table is locked while it is written, so this may wait for the disk.
        let feasible = spawn_blocking(move || sharing.devices().check_feasible(&request)).await;
        feasible.ok()?.err().map(|lacking| lacking.to_string())
    }

    fn found(&self, description: &Description) -> Vec<Placed> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |placed: &Placed| {
            let mut other = placed.instance.description().clone();
            other.id = description.id;
            other.devices.clone_from(&description.devices);
            other == *description
        };
        let ids: Vec<InstanceId> = found
            .iter()
            .filter(|(_, placed)| fits(placed))
            .map(|(id, _)| *id)
            .collect();
        ids.iter().filter_map(|id| found.remove(id)).collect()
    }

    fn pauses(&self) -> bool {
        self.runtime.capabilities().pause
    }

    fn weight(&self, resources: Resources) -> Weight {
        weight(resources, self.ledger.capacity())
    }

    fn room(&self) -> Weight {
        of_memory(self.ledger.room_for_instances())
    }

    fn register(&self, spec: &StartSpec, _expected: Millis) -> Registration {
        let prepared = self.runtime.expect(spec);
        let standby = self.standby.as_ref().and_then(|one| one.register(spec));
        let apps = self.apps.as_ref();
        let known = apps.map(|apps| apps.register(&spec.description.app));
        if prepared.is_none() && standby.is_none() && known.is_none() {
            return None;
        }
        Some(Box::new((prepared, standby, known)))
    }

    fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        if let Some(apps) = &self.apps {
            apps.set_tenant(app, tenant);
        }
    }

    fn evict_standby(&self) {
        if let Some(standby) = &self.standby
            && self.ledger.wanted() > MebiBytes(0)
        {
            standby.evict_for(Resources::default());
        }
    }

    fn max_weight(&self) -> Weight {
        of_memory(self.ledger.capacity().memory_mib)
    }
}

/// The resources that the ledger counts: slices of devices are accounted for in the allocation table of devices.
pub(super) const fn on_the_node(resources: Resources) -> Resources {
    Resources::new(resources.cpu_milli, resources.memory_mib)
}

/// Memory in the scheduler's unit: KiB, so that CPU fractions are represented finely enough.
#[must_use]
pub const fn of_memory(memory: MebiBytes) -> Weight {
    Weight(memory.get().saturating_mul(1024))
}

/// The weight of an instance on a node of this capacity; see [`Placer::weight`].
#[must_use]
pub fn weight(resources: Resources, capacity: Resources) -> Weight {
    let (cpu, cpus) = (resources.cpu_milli.get(), capacity.cpu_milli.get().max(1));
    let by_cpu = u128::from(cpu) * u128::from(of_memory(capacity.memory_mib).get());
    let by_cpu = u64::try_from(by_cpu / u128::from(cpus)).unwrap_or(u64::MAX);
    let by_memory = of_memory(resources.memory_mib).get();
    Weight(by_memory.max(by_cpu).max(1))
}

#[cfg(test)]
mod tests {
    use fdn_core::MilliCpu;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_scarcer_of_memory_and_cpu_counts() {
        let node = Resources::new(MilliCpu(2000), MebiBytes(16_000));
        let of = |cpu, memory| weight(Resources::new(MilliCpu(cpu), MebiBytes(memory)), node).get();
        assert_eq!(of(100, 2000), 2000 << 10);
        assert_eq!(of(500, 64), 4000 << 10);
        assert_eq!(of(0, 0), 1);
        let odd = Resources::new(MilliCpu(200), MebiBytes(18_078));
        let twentieth = weight(Resources::new(MilliCpu(10), MebiBytes(1)), odd).get();
        assert!(twentieth * 20 <= 18_078 << 10, "twenty twentieths fit");
    }

    proptest! {
        #[test]
        fn what_fits_by_weight_fits_by_memory_and_cpu(
            cpu in 1u64..100_000, memory in 4096u64..1_000_000,
            parts in prop::collection::vec((0u64..20_000, 0u64..200_000), 1..40),
        ) {
            let node = Resources::new(MilliCpu(cpu), MebiBytes(memory));
            let (mut weights, mut held) = (0, Resources::default());
            for (cpu, memory) in parts {
                let part = Resources::new(MilliCpu(cpu), MebiBytes(memory));
                let next = weights + weight(part, node).get();
                if next <= of_memory(node.memory_mib).get() {
                    weights = next;
                    held = held.saturating_add(&part);
                }
                prop_assert!(held.fits(&node));
            }
        }
    }
}
