//! Where instances come from: this node, or another one of the cluster.
//!
//! A [`Placer`] is asked for one more instance of a function and answers with a handle on it, or with why not. [`LocalPlacer`]
//! starts it here: the [`Ledger`] reserves what it holds, or refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::{Coded, ErrorCode, InstanceId, MebiBytes, Resources};
use fdn_devices::{BindError, Devices};
use fdn_instances::{
    Description, Image, Instance, LogLine, Runtime, RuntimeError, StartError, StartSpec,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};
use uuid::Uuid;

use super::ledger::{InstanceHold, Ledger};
use super::slices::{self, Slices};

/// An instance that was started, with what it holds until it is gone.
#[derive(Debug)]
pub struct Placed {
    /// The handle.
    pub instance: Arc<dyn Instance>,
    /// What it holds of this node; nothing where it runs on another.
    pub hold: Option<InstanceHold>,
}

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no room for it now.
    #[error("no node has room for the instance: {0}")]
    NoRoom(String),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No device has room for its slices, or they could not be bound.
    #[error(transparent)]
    Devices(#[from] BindError),
    /// It took longer than a start may.
    #[error("the instance did not start within {0:?}")]
    Late(Duration),
}

impl PlaceError {
    /// The last lines that it wrote.
    #[must_use]
    pub fn log(&self) -> &[LogLine] {
        match self {
            Self::Start(error) => error.log(),
            Self::NoRoom(_) | Self::Devices(_) | Self::Late(_) => &[],
        }
    }

    /// The label in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoRoom(_) => "no_room",
            Self::Start(error) => error.label(),
            Self::Devices(_) => "devices",
            Self::Late(_) => "late",
        }
    }
}

impl Coded for PlaceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoRoom(_) => ErrorCode::Overloaded,
            Self::Start(error) => error.code(),
            Self::Devices(error) => error.code(),
            Self::Late(_) => ErrorCode::InstanceNotStarted,
        }
    }
}

/// Answers requests for one more instance.
#[async_trait]
pub trait Placer: Send + Sync {
    /// Starts one more instance; returns when it answers. `spec` is whole but for the instance's id, which is made anew.
    ///
    /// # Errors
    /// When there is no room, or it does not start.
    async fn place(&self, spec: StartSpec) -> Result<Placed, PlaceError>;

    /// Has an image ready, so that the first start need not fetch it.
    ///
    /// # Errors
    /// When it cannot be had or used.
    async fn prepare(&self, image: &Image) -> Result<(), StartError>;

    /// Instances that fit this description, but for the id, and run already; each is handed out once.
    fn found(&self, description: &Description) -> Vec<Placed>;

    /// How much of a node an instance takes, by which the scheduler counts: its memory, or as much memory as its share of the CPU is of
    /// all CPU, whichever is more, in [`units`]. So what fits by this figure fits by both, as long as the node has no more instances
    /// than KiB for each thousandth of a core; beyond that the ledger refuses what does not fit.
    fn weight(&self, resources: Resources) -> MebiBytes;
}

/// Starts instances on this node.
pub struct LocalPlacer {
    runtime: Arc<dyn Runtime>,
    ledger: Arc<Ledger>,
    start_timeout: Duration,
    devices: Option<Devices>,
    /// Instances that hold slices of devices, for when those fail.
    on_devices: Mutex<BTreeMap<InstanceId, Weak<dyn Instance>>>,
    found: Mutex<BTreeMap<InstanceId, Placed>>,
}

impl LocalPlacer {
    /// On this runtime, within this ledger.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>, ledger: Arc<Ledger>, start_timeout: Duration) -> Self {
        Self {
            runtime,
            ledger,
            start_timeout,
            devices: None,
            on_devices: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// With GPU devices, slices of which are bound to those that ask for them.
    #[must_use]
    pub fn with_devices(mut self, devices: Devices) -> Self {
        self.devices = Some(devices);
        self
    }

    /// Ends instances whose devices have failed or are gone; their functions get others.
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
        for instance in concerned {
            let id = instance.id();
            info!(%id, "an instance on a failed device is ended");
            if let Err(failure) = instance.stop(Duration::ZERO).await {
                warn!(%id, %failure, "it could not be ended");
            }
        }
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

    /// Brings the book of devices in line with what runs. Returns the instances that have to end, as there is no room for them.
    async fn reconcile(&self, running: &[Arc<dyn Instance>]) -> BTreeSet<InstanceId> {
        let Some(devices) = self.devices.clone() else {
            return BTreeSet::new();
        };
        let running: Vec<_> = running
            .iter()
            .filter_map(|instance| slices::running(instance.description()))
            .collect();
        match spawn_blocking(move || devices.reconcile(running)).await {
            Ok(Ok(done)) => done.lost,
            Ok(Err(failure)) => {
                warn!(%failure, "the book of devices is as before the restart");
                BTreeSet::new()
            }
            Err(failure) => {
                warn!(%failure, "the book of devices is as before the restart");
                BTreeSet::new()
            }
        }
    }

    /// What one that runs holds; why it cannot stay.
    fn held(&self, instance: &dyn Instance) -> Result<InstanceHold, String> {
        let description = instance.description();
        let hold = self.ledger.hold(on_the_node(description.resources))?;
        let slices = self
            .devices
            .as_ref()
            .filter(|_| !description.devices.is_empty());
        Ok(hold.with_slices(slices.map(|devices| Slices::held(devices, description.id))))
    }

    /// Finds what runs already, after the agent's restart, and reserves what it holds before anything else is started.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn adopt(&self) -> Result<usize, RuntimeError> {
        let running = self.runtime.adopt().await?;
        let lost = self.reconcile(&running).await;
        let mut found = BTreeMap::new();
        for instance in running {
            let id = instance.id();
            let held = if lost.contains(&id) {
                Err("its devices have no room for it".to_owned())
            } else {
                self.held(&*instance)
            };
            match held {
                Ok(hold) => {
                    self.noted(&instance);
                    let hold = Some(hold);
                    found.insert(id, Placed { instance, hold });
                }
                Err(short) => {
                    warn!(%id, %short, "an instance that runs no longer fits this node and is stopped");
                    if let Err(failure) = instance.stop(Duration::ZERO).await {
                        warn!(%id, %failure, "it could not be stopped");
                    }
                }
            }
        }
        let count = found.len();
        if count > 0 {
            info!(count, "instances run on from before");
        }
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        let collected = self.runtime.collect().await?;
        for (id, reason) in collected.failed {
            warn!(%id, %reason, "an ended instance could not be removed");
        }
        Ok(count)
    }

    /// Stops what was found and belongs to no function that is deployed.
    pub async fn stop_unclaimed(&self) {
        let left = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, placed) in left {
            info!(%id, "an instance of nothing that is deployed is stopped");
            if let Err(failure) = placed.instance.stop(Duration::from_secs(1)).await {
                warn!(%id, %failure, "it could not be stopped");
            }
        }
    }
}

#[async_trait]
impl Placer for LocalPlacer {
    async fn place(&self, mut spec: StartSpec) -> Result<Placed, PlaceError> {
        spec.description.id = InstanceId::from_uuid(Uuid::now_v7());
        let resources = on_the_node(spec.description.resources);
        if let Some(short) = resources.shortage(&self.ledger.capacity()) {
            return Err(PlaceError::NoRoom(short));
        }
        let start = async {
            // What was evicted for it is on its way out.
            let hold = self.ledger.hold_when_free(resources).await;
            let slices = match &self.devices {
                Some(devices) => Slices::bind(devices, &mut spec).await?,
                None => None,
            };
            let hold = Some(hold.with_slices(slices));
            let instance = self.runtime.start(spec).await?;
            self.noted(&instance);
            Ok(Placed { instance, hold })
        };
        match timeout(self.start_timeout, start).await {
            Ok(placed) => placed,
            Err(_) => Err(PlaceError::Late(self.start_timeout)),
        }
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.runtime.prepare(image).await
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

    fn weight(&self, resources: Resources) -> MebiBytes {
        weight(resources, self.ledger.capacity())
    }
}

/// What the ledger counts: slices of devices are in the book of devices.
const fn on_the_node(resources: Resources) -> Resources {
    Resources::new(resources.cpu_milli, resources.memory_mib)
}

/// Memory as the scheduler counts it: in KiB, so that shares of the CPU are told apart finely.
#[must_use]
pub const fn units(memory: MebiBytes) -> MebiBytes {
    MebiBytes(memory.get().saturating_mul(1024))
}

/// See [`Placer::weight`].
fn weight(resources: Resources, capacity: Resources) -> MebiBytes {
    let (cpu, cpus) = (resources.cpu_milli.get(), capacity.cpu_milli.get().max(1));
    let by_cpu = u128::from(cpu) * u128::from(units(capacity.memory_mib).get());
    let by_cpu = u64::try_from(by_cpu / u128::from(cpus)).unwrap_or(u64::MAX);
    let by_memory = units(resources.memory_mib).get();
    MebiBytes(by_memory.max(by_cpu).max(1))
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
                if next <= units(node.memory_mib).get() {
                    weights = next;
                    held = held.saturating_add(&part);
                }
                prop_assert!(held.fits(&node));
            }
        }
    }
}
