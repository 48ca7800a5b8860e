//! Combines the allocation table, the disk, discovery and metrics.
//!
//! Every change is made on a copy, written to disk, and only then put into effect: what an instance is started with is always on disk, and a
//! failing disk refuses bindings instead of forgetting them. Calls block for as long as the disk takes; asynchronous callers must use a blocking
//! task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fdn_core::device::{DeviceGrant, DeviceKind, DeviceStatus, GpuRequest};
use fdn_core::{AppName, DeviceId, InstanceId, MebiBytes, Timestamp};
use tracing::{error, info, warn};

use crate::allocations::{Affected, AllocationTable, Binding, ReconcileReport, RunningBinding};
use crate::discovery::Discovery;
use crate::error::{BindError, DiscoveryError, StoreError};
use crate::grant::{Mps, grants};
use crate::health::{HealthAction, HealthEvent};
use crate::metrics::DeviceMetrics;
use crate::settings::DevicesSettings;
use crate::store::AllocationStore;

/// The longest that a thread waits without a look at whether to stop.
const TICK: Duration = Duration::from_millis(200);

/// An event for the part that runs instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The devices of these instances are gone, or no longer have room for them: they must end, and their end must be reported.
    Lost(BTreeSet<InstanceId>),
    /// A device of these instances has failed: others should take over before these are ended.
    Unhealthy {
        /// The failed devices.
        devices: BTreeSet<DeviceId>,
        /// Why they failed.
        reason: String,
        /// The instances that hold slices of them.
        instances: BTreeSet<InstanceId>,
    },
}

/// What the devices of a node are made of.
pub struct Parts<'a> {
    /// The section `[devices]`.
    pub settings: DevicesSettings,
    /// The folder of the allocation table.
    pub folder: &'a Path,
    /// The source of devices and events.
    pub discovery: Arc<dyn Discovery>,
    /// The metrics of the devices.
    pub metrics: DeviceMetrics,
    /// An id that changes with every boot of the machine, such as `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The clock, for times that people read.
    pub now: fn() -> Timestamp,
}

/// The devices of this node. Clones share them.
#[derive(Clone)]
pub struct Devices {
    shared: Arc<Shared>,
}

struct Shared {
    settings: DevicesSettings,
    store: AllocationStore,
    discovery: Arc<dyn Discovery>,
    metrics: DeviceMetrics,
    boot: String,
    now: fn() -> Timestamp,
    allocations: Mutex<AllocationTable>,
}

impl Devices {
    /// Opens the allocation table and scans for devices. Bindings of the last run stay in effect until [`Devices::reconcile`] learns what runs.
    ///
    /// # Errors
    /// When the allocation table cannot be read or written.
    pub fn open(parts: Parts<'_>) -> Result<Self, BindError> {
        let store = AllocationStore::open(parts.folder)?;
        let options = parts.settings.allocations();
        let allocations = match store.load()? {
            Some(saved) => {
                let same_boot = saved.boot == parts.boot;
                let mut allocations = AllocationTable::from_saved(options, saved)?;
                if !same_boot {
                    allocations.forget_outages();
                }
                allocations
            }
            None => AllocationTable::new(options),
        };
        let devices = Self {
            shared: Arc::new(Shared {
                settings: parts.settings,
                store,
                discovery: parts.discovery,
                metrics: parts.metrics,
                boot: parts.boot,
                now: parts.now,
                allocations: Mutex::new(allocations),
            }),
        };
        devices.scan()?;
        Ok(devices)
    }

    /// Binds slices and returns what to start the instance with; the binding is on disk when this returns.
    ///
    /// # Errors
    /// Like [`AllocationTable::bind`], or when the disk fails: nothing is bound then.
    pub fn bind(
        &self,
        instance: InstanceId,
        app: &AppName,
        request: &GpuRequest,
    ) -> Result<Vec<DeviceGrant>, BindError> {
        let bound = self
            .shared
            .change(|allocations| allocations.bind(instance, app, request));
        let result = match &bound {
            Ok(_) => "bound",
            Err(BindError::NoRoom { .. } | BindError::Full { .. }) => "no_room",
            Err(BindError::Never { .. }) => "never",
            Err(_) => "failed",
        };
        let binds = &self.shared.metrics.binds;
        binds.with_label_values(&[result]).inc();
        Ok(self.grants(&bound?))
    }

    /// The grants of a binding; computed again after a restart of the agent, since the MPS daemon may have come or gone. A device that is not known
    /// any more is not taken for a simulated one: its instance must not start without it.
    #[must_use]
    pub fn grants(&self, bound: &Binding) -> Vec<DeviceGrant> {
        let kind = self
            .status()
            .into_iter()
            .find(|device| bound.devices.contains(&device.id))
            .map_or(DeviceKind::Gpu, |device| device.kind);
        let mps = Mps::detect(&self.shared.settings);
        grants(bound, kind, mps.as_ref())
    }

    /// Whether the devices of this node could provide the request if all were free and in service ([`AllocationTable::check_feasible`]).
    ///
    /// # Errors
    /// [`BindError::Never`], with what is missing.
    pub fn check_feasible(&self, request: &GpuRequest) -> Result<(), BindError> {
        self.shared.allocations().check_feasible(request)
    }

    /// Which of these instances would have to end so that a request can be bound ([`AllocationTable::instances_to_evict`]).
    #[must_use]
    pub fn instances_to_evict(
        &self,
        request: &GpuRequest,
        idle: &[InstanceId],
    ) -> Option<Vec<InstanceId>> {
        // On a copy: it takes a while, and the result is not a promise.
        let allocations = self.shared.allocations().clone();
        allocations.instances_to_evict(request, idle)
    }

    /// Releases the slices of an instance that has ended.
    ///
    /// # Errors
    /// [`BindError::NotBound`], or when the disk fails: the slices stay bound then, and the next [`Devices::reconcile`] frees them.
    pub fn unbind(&self, instance: InstanceId) -> Result<(), BindError> {
        self.shared
            .change(|allocations| allocations.unbind(instance))
            .map(drop)
    }

    /// Reconciles the allocation table with the instances that run; `running` must be complete.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn reconcile(&self, running: Vec<RunningBinding>) -> Result<ReconcileReport, BindError> {
        let done = self
            .shared
            .change(|allocations| allocations.reconcile(running))?;
        if done != ReconcileReport::default() {
            info!(
                kept = done.kept.len(),
                adopted = done.adopted.len(),
                released = done.released.len(),
                lost = done.lost.len(),
                "the allocation table of devices is in line with what runs"
            );
        }
        Ok(done)
    }

    /// Scans the machine for its devices.
    ///
    /// # Errors
    /// When the disk fails. A failure of the driver is logged, and what was known remains valid.
    pub fn scan(&self) -> Result<Affected, BindError> {
        match self.shared.discovery.devices() {
            Ok(found) => self
                .shared
                .change(|allocations| allocations.inventory(found)),
            Err(failure) => {
                warn!(%failure, "the devices of the machine are not known now");
                Ok(Affected::default())
            }
        }
    }

    /// Takes a device out of service.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn take_out(&self, device: &DeviceId, reason: &str) -> Result<Affected, BindError> {
        let now = (self.shared.now)();
        self.shared
            .change(|allocations| Ok(allocations.take_out_of_service(device, reason, now)))
    }

    /// Puts a device back into service.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn restore(&self, device: &DeviceId) -> Result<Affected, BindError> {
        self.shared
            .change(|allocations| Ok(allocations.return_to_service(device)))
    }

    /// Every device with the instances that hold slices of it.
    #[must_use]
    pub fn status(&self) -> Vec<DeviceStatus> {
        self.shared.allocations().status()
    }

    /// The memory that can be bound, and the memory of all devices.
    #[must_use]
    pub fn totals(&self) -> (MebiBytes, MebiBytes) {
        self.shared.allocations().totals()
    }

    /// The memory that can be bound and the memory that is bound, at the same moment.
    #[must_use]
    pub fn usage(&self) -> (MebiBytes, MebiBytes) {
        let allocations = self.shared.allocations();
        let bound = allocations
            .status()
            .into_iter()
            .map(|device| device.bound_mib);
        let bound = bound.fold(MebiBytes(0), MebiBytes::saturating_add);
        (allocations.totals().0, bound)
    }

    /// Watches the devices until the guard is dropped; reports the affected instances.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn watch(
        &self,
        report: impl Fn(Event) + Send + 'static,
    ) -> Result<WatchGuard, std::io::Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, events) = mpsc::channel();
        let (discovery, stopping) = (Arc::clone(&self.shared.discovery), Arc::clone(&stop));
        let again = self.shared.settings.rescan.as_duration();
        let listener = thread::Builder::new()
            .name("devices-events".into())
            .spawn(move || listen(&*discovery, &stopping, &sender, again))?;
        let (devices, stopping) = (self.clone(), Arc::clone(&stop));
        let keeper = thread::Builder::new()
            .name("devices".into())
            .spawn(move || devices.run(&stopping, &events, &report))?;
        Ok(WatchGuard {
            stop,
            threads: vec![listener, keeper],
        })
    }

    /// Handles events, and scans at intervals; with each scan, what could not be written is tried again.
    fn run(&self, stop: &AtomicBool, events: &mpsc::Receiver<HealthEvent>, report: &dyn Fn(Event)) {
        let rescan = self.shared.settings.rescan.as_duration();
        let mut due = Instant::now() + rescan;
        let mut unwritten = BTreeMap::new();
        while !stop.load(Ordering::Relaxed) {
            let wait = due.saturating_duration_since(Instant::now());
            let scan = match events.recv_timeout(wait.min(TICK)) {
                Ok(event) => {
                    let kind = event.what.kind();
                    let counted = &self.shared.metrics.events;
                    counted.with_label_values(&[kind]).inc();
                    self.handle_event(event, &mut unwritten, report)
                }
                Err(RecvTimeoutError::Timeout) => wait.is_zero(),
                // There will be no more events; scans continue.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(wait.min(TICK));
                    wait.is_zero()
                }
            };
            if scan {
                due = Instant::now() + rescan;
                self.retry(&mut unwritten, report);
                self.report_lost(self.scan(), report);
            }
        }
    }

    /// Handles an event; returns whether to scan. If its consequence cannot be written, it is kept in `unwritten` in place of an earlier one of
    /// the same device.
    fn handle_event(
        &self,
        event: HealthEvent,
        unwritten: &mut BTreeMap<DeviceId, HealthEvent>,
        report: &dyn Fn(Event),
    ) -> bool {
        let device = &event.device;
        let done = match event.what.action(&self.shared.settings.ignored_xids) {
            HealthAction::Ignore => {
                info!(%device, what = ?event.what, "a program failed on a GPU; the device is as before");
                return false;
            }
            HealthAction::Rescan => return true,
            HealthAction::Restore => self.restore(device).map(|_| {
                info!(%device, "the device is in service again");
            }),
            HealthAction::TakeOut(reason) => {
                error!(%device, reason, "a device is out of service");
                self.take_out(device, &reason).map(|affected| {
                    report(Event::Unhealthy {
                        devices: affected.devices,
                        reason,
                        instances: affected.instances,
                    });
                })
            }
        };
        match done {
            Ok(()) => drop(unwritten.remove(device)),
            Err(failure) => {
                error!(%device, %failure, "the allocation table could not be written; it is tried again with the next scan");
                unwritten.insert(device.clone(), event);
            }
        }
        false
    }

    /// Handles once more the events whose consequences could not be written.
    fn retry(&self, unwritten: &mut BTreeMap<DeviceId, HealthEvent>, report: &dyn Fn(Event)) {
        for event in std::mem::take(unwritten).into_values() {
            self.handle_event(event, unwritten, report);
        }
    }

    fn report_lost(&self, scanned: Result<Affected, BindError>, report: &dyn Fn(Event)) {
        match scanned {
            Ok(affected) if affected.instances.is_empty() => {}
            Ok(affected) => {
                error!(devices = ?affected.devices, "devices are gone or smaller; instances lose their slices");
                report(Event::Lost(affected.instances));
            }
            Err(failure) => error!(%failure, "the allocation table could not be written"),
        }
    }
}

/// Passes events on until `stop` is set, or there can be none. If the driver fails, asks it once more `again` later: later faults must be heard of,
/// too.
fn listen(
    discovery: &dyn Discovery,
    stop: &AtomicBool,
    sender: &mpsc::Sender<HealthEvent>,
    again: Duration,
) {
    let mut report = |event| drop(sender.send(event));
    while !stop.load(Ordering::Relaxed) {
        let ended: Result<(), DiscoveryError> = discovery.watch(stop, &mut report);
        let Err(failure) = ended else {
            return;
        };
        error!(%failure, again_in = ?again, "faults of devices are not heard of now");
        let due = Instant::now() + again;
        while !stop.load(Ordering::Relaxed) {
            let wait = due.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                break;
            }
            thread::sleep(wait.min(TICK));
        }
    }
}

impl Shared {
    fn allocations(&self) -> MutexGuard<'_, AllocationTable> {
        // Changes are made on a copy, so a panic leaves the allocation table consistent.
        self.allocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, on disk first.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut AllocationTable) -> Result<T, BindError>,
    ) -> Result<T, BindError> {
        let mut allocations = self.allocations();
        let before = allocations.to_saved(&self.boot);
        let mut next = allocations.clone();
        let value = change(&mut next)?;
        let saved = next.to_saved(&self.boot);
        if saved != before {
            self.save(&saved)?;
        }
        *allocations = next;
        self.metrics
            .show(&allocations.status(), allocations.lost().count());
        Ok(value)
    }

    fn save(&self, saved: &crate::allocations::SavedAllocations) -> Result<(), StoreError> {
        self.store.save(saved)
    }
}

/// Ends the watch when dropped.
pub struct WatchGuard {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported already.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
