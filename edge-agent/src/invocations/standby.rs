//! Instances on standby: started and frozen before anybody calls them, so that the first call of a function resumes one within milliseconds
//! instead of waiting for a start.
//!
//! Up to `instances.standby` are kept of each registered function. They hold their CPU and memory in the ledger like any other instance, but at
//! low priority: they are started only while room is left over, and are the first to go when a start or a call in a sandbox needs the room. One
//! that is taken is an ordinary instance from then on, and is replaced a moment later.
//!
//! After a restart the agent finds them as paused instances and gives them to the pool, like all instances that it finds.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fdn_core::{InstanceId, Resources};
use fdn_instances::{Instance, InstanceState, Runtime, StartSpec};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};
use uuid::Uuid;

use super::ledger::{InstanceReservation, Ledger};
use super::placer::{Placed, on_the_node};
use super::stop::stopped;
use super::unclaimed::Unclaimed;
use crate::metrics::InstanceMetrics;

/// The pause after a registration or a use before another one is started: calls go first.
const QUIET: Duration = Duration::from_millis(500);
/// The interval of checks for free room.
const LOOK: Duration = Duration::from_secs(10);
/// The pause after a failed start.
const AGAIN: Duration = Duration::from_secs(60);

/// The instances on standby. A cheap handle.
#[derive(Clone)]
pub struct Standby(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn Runtime>,
    ledger: Arc<Ledger>,
    /// The number kept of each function.
    each: usize,
    /// The timeout for freezing or resuming one.
    patience: Duration,
    metrics: InstanceMetrics,
    rows: Mutex<Vec<Row>>,
    bell: Notify,
    /// Whether the task that starts them is running.
    runs: AtomicBool,
    /// The agent is stopping: instances on standby are left as they are.
    closed: AtomicBool,
}

struct Row {
    /// The specification of its instances, whose id is meaningless.
    spec: StartSpec,
    registered: usize,
    kept: Vec<StandbyInstance>,
    again: Option<Instant>,
}

struct StandbyInstance {
    instance: Arc<dyn Instance>,
    reservation: InstanceReservation,
}

/// Keeps a function registered while it lives.
struct RegistrationGuard(Weak<Inner>, StartSpec);

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.unregister(&self.1);
        }
    }
}

/// Whether two specifications are equal except for the id.
fn alike(one: &StartSpec, other: &StartSpec) -> bool {
    if one.description.digest != other.description.digest {
        return false;
    }
    let mut same_id = one.clone();
    same_id.description.id = other.description.id;
    same_id == *other
}

impl Standby {
    /// Keeps `each` instances of each function on standby; `None` if `each` is 0, or the runtime cannot pause.
    #[must_use]
    pub fn new(
        runtime: Arc<dyn Runtime>,
        ledger: Arc<Ledger>,
        each: u32,
        patience: Duration,
        metrics: InstanceMetrics,
    ) -> Option<Self> {
        let can = each > 0 && runtime.capabilities().pause;
        can.then(|| {
            Self(Arc::new(Inner {
                runtime,
                ledger,
                each: each as usize,
                patience,
                metrics,
                rows: Mutex::default(),
                bell: Notify::new(),
                runs: AtomicBool::new(false),
                closed: AtomicBool::new(false),
            }))
        })
    }

    /// Keeps instances of this function on standby until the result is dropped; `None` if they need devices, which are bound only at a real
    /// start.
    #[must_use]
    pub fn register(&self, spec: &StartSpec) -> Option<Box<dyn Any + Send + Sync>> {
        let inner = &self.0;
        if spec.gpu.is_some() {
            return None;
        }
        inner.register(spec);
        if !inner.runs.swap(true, Ordering::Relaxed) {
            tokio::spawn(keep(Arc::downgrade(inner)));
        }
        inner.bell.notify_one();
        Some(Box::new(RegistrationGuard(
            Arc::downgrade(inner),
            spec.clone(),
        )))
    }

    /// Takes and resumes an instance with exactly this specification, if there is one.
    pub(super) async fn take(&self, spec: &StartSpec) -> Option<Placed> {
        let inner = &self.0;
        loop {
            let Some(kept) = inner.pop(spec)? else {
                inner.count("none");
                return None;
            };
            inner.bell.notify_one();
            let StandbyInstance {
                instance,
                reservation,
            } = kept;
            let unclaimed = Unclaimed::of(Placed {
                instance: Arc::clone(&instance),
                reservation: Some(reservation),
            });
            match timeout(inner.patience, instance.resume()).await {
                Ok(Ok(())) => {
                    inner.count("used");
                    return Some(unclaimed.claim());
                }
                // It is stopped, and the next one is tried.
                Ok(Err(failure)) => debug!(%failure, "an instance on standby did not wake"),
                Err(_) => debug!("an instance on standby did not wake in time"),
            }
            inner.count("lost");
        }
    }

    /// Ends as many instances as needed for the resources that `wanted` lacks; these are free a moment later. Returns whether that is enough.
    pub(super) fn evict_for(&self, wanted: Resources) -> bool {
        self.0.evict_for(wanted)
    }

    /// Whether ending instances on standby would free enough.
    pub(super) fn could_evict_for(&self, wanted: Resources) -> bool {
        let lacking = self.0.lacking(wanted);
        let rows = self.0.rows();
        let kept = rows.iter().flat_map(|row| &row.kept);
        let held = kept.fold(Resources::default(), |sum, one| {
            sum.saturating_add(&of(one))
        });
        lacking.shortage(&held).is_none()
    }

    /// Stops starting instances, because the agent stops. Ends the existing ones if they do not outlive the agent.
    pub async fn close(&self, ends_with_us: bool) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.bell.notify_one();
        if !ends_with_us {
            return;
        }
        let all: Vec<StandbyInstance> = {
            let mut rows = self.0.rows();
            rows.iter_mut().flat_map(|row| row.kept.drain(..)).collect()
        };
        let stops = all.iter().map(|one| one.instance.stop(Duration::ZERO));
        for stopped in futures::future::join_all(stops).await {
            if let Err(failure) = stopped {
                debug!(%failure, "an instance on standby could not be stopped");
            }
        }
        self.0.show();
    }
}

/// The resources that an instance on standby holds on the node.
fn of(kept: &StandbyInstance) -> Resources {
    on_the_node(kept.instance.description().resources)
}

impl Inner {
    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, result: &str) {
        self.metrics.standby.with_label_values(&[result]).inc();
        self.show();
    }

    fn show(&self) {
        let count: usize = self.rows().iter().map(|row| row.kept.len()).sum();
        let gauge = self.metrics.instances.with_label_values(&["standby"]);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn register(&self, spec: &StartSpec) {
        let mut rows = self.rows();
        if let Some(row) = rows.iter_mut().find(|row| alike(&row.spec, spec)) {
            row.registered += 1;
            return;
        }
        rows.push(Row {
            spec: spec.clone(),
            registered: 1,
            kept: Vec::new(),
            again: None,
        });
    }

    fn unregister(&self, spec: &StartSpec) {
        let mut rows = self.rows();
        let Some(at) = rows.iter().position(|row| alike(&row.spec, spec)) else {
            return;
        };
        rows[at].registered -= 1;
        if rows[at].registered > 0 {
            return;
        }
        let left = rows.swap_remove(at).kept;
        drop(rows);
        if !self.closed.load(Ordering::Relaxed) {
            for one in left {
                end(one);
            }
        }
        self.show();
    }

    /// Takes an instance of this function from standby; the outer `None` means that the function is not registered.
    fn pop(&self, spec: &StartSpec) -> Option<Option<StandbyInstance>> {
        let mut rows = self.rows();
        let row = rows.iter_mut().find(|row| alike(&row.spec, spec))?;
        Some(row.kept.pop())
    }

    /// The resources that an instance with these would lack, including memory that calls in sandboxes wait for.
    fn lacking(&self, wanted: Resources) -> Resources {
        let (capacity, ledger) = (self.ledger.capacity(), &self.ledger);
        let cpu = ledger.cpu_held().get() + wanted.cpu_milli.get();
        let memory = ledger.held().get() + wanted.memory_mib.get() + ledger.wanted().get();
        Resources::new(
            fdn_core::MilliCpu(cpu.saturating_sub(capacity.cpu_milli.get())),
            fdn_core::MebiBytes(memory.saturating_sub(capacity.memory_mib.get())),
        )
    }

    fn evict_for(&self, wanted: Resources) -> bool {
        let lacking = self.lacking(wanted);
        let mut freed = Resources::default();
        let mut ending = Vec::new();
        let mut rows = self.rows();
        while lacking.shortage(&freed).is_some() {
            // From the function with the most, so that as many functions as possible keep one.
            let most = rows.iter_mut().max_by_key(|row| row.kept.len());
            let Some(one) = most.and_then(|row| row.kept.pop()) else {
                break;
            };
            freed = freed.saturating_add(&of(&one));
            ending.push(one);
        }
        drop(rows);
        for one in ending {
            info!(id = %one.instance.id(), "an instance on standby gives way");
            self.count("gave_way");
            end(one);
        }
        lacking.shortage(&freed).is_none()
    }

    /// The next instance to start, with its reservation, if there is room that nobody else waits for.
    fn next(&self, now: Instant) -> Option<(StartSpec, InstanceReservation)> {
        if self.closed.load(Ordering::Relaxed) || self.ledger.is_waited_for() {
            return None;
        }
        let rows = self.rows();
        let short = rows.iter().filter(|row| row.kept.len() < self.each);
        let mut due = short.filter(|row| row.again.is_none_or(|again| again <= now));
        due.find_map(|row| {
            let resources = on_the_node(row.spec.description.resources);
            let reservation = self.ledger.reserve(resources).ok()?;
            Some((row.spec.clone(), reservation))
        })
    }

    /// Starts an instance and freezes it.
    async fn start(self: &Arc<Self>, mut spec: StartSpec, reservation: InstanceReservation) {
        spec.description.id = InstanceId::from_uuid(Uuid::now_v7());
        let started = Unclaimed::start(&self.runtime, spec.clone(), reservation).await;
        let placed = match started {
            Ok(placed) => Unclaimed::of(placed),
            Err(failure) => {
                // Calls of the function will report the failure.
                debug!(app = %spec.description.app, %failure, "no instance could be put on standby");
                return self.failed(&spec);
            }
        };
        let instance = placed.instance();
        match timeout(self.patience, instance.pause()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return self.failed(&spec),
        }
        let Placed {
            instance,
            reservation: Some(reservation),
        } = placed.claim()
        else {
            return;
        };
        let watched = Arc::clone(&instance);
        if let Err(unwanted) = self.put(
            &spec,
            StandbyInstance {
                instance,
                reservation,
            },
        ) {
            return end(unwanted);
        }
        self.show();
        tokio::spawn(watch(Arc::downgrade(self), watched));
    }

    fn put(&self, spec: &StartSpec, kept: StandbyInstance) -> Result<(), StandbyInstance> {
        let mut rows = self.rows();
        match rows.iter_mut().find(|row| alike(&row.spec, spec)) {
            Some(row) => {
                row.kept.push(kept);
                row.again = None;
                Ok(())
            }
            None => Err(kept),
        }
    }

    fn failed(&self, spec: &StartSpec) {
        self.count("not_started");
        let mut rows = self.rows();
        if let Some(row) = rows.iter_mut().find(|row| alike(&row.spec, spec)) {
            row.again = Some(Instant::now() + AGAIN);
        }
    }
}

/// Ends an instance in the background; its resources are released once it is gone.
fn end(
    StandbyInstance {
        instance,
        reservation,
    }: StandbyInstance,
) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            stopped(&*instance, Duration::ZERO).await;
            drop(reservation);
        });
    }
}

/// Removes an instance that ends while it is on standby.
async fn watch(inner: Weak<Inner>, instance: Arc<dyn Instance>) {
    let mut state = instance.state();
    let ended = state.wait_for(|state| matches!(state, InstanceState::Exited(_)));
    drop(ended.await);
    let Some(inner) = inner.upgrade() else { return };
    let id = instance.id();
    let mut lost = false;
    for row in inner.rows().iter_mut() {
        let before = row.kept.len();
        row.kept.retain(|one| one.instance.id() != id);
        if row.kept.len() < before {
            lost = true;
            row.again = Some(Instant::now() + AGAIN);
        }
    }
    if lost {
        inner.count("lost");
    }
}

/// Starts missing instances one after another, until the standby is dropped or closed.
async fn keep(inner: Weak<Inner>) {
    loop {
        while let Some(inner) = inner.upgrade()
            && let Some((spec, reservation)) = inner.next(Instant::now())
        {
            inner.start(spec, reservation).await;
        }
        let Some(strong) = inner.upgrade() else {
            return;
        };
        if strong.closed.load(Ordering::Relaxed) {
            return;
        }
        let rung = timeout(LOOK, strong.bell.notified()).await.is_ok();
        drop(strong);
        if rung {
            sleep(QUIET).await;
        }
    }
}

#[cfg(test)]
mod tests;
