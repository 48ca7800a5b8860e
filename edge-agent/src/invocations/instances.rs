//! The shell around the [`Pool`]: assigns calls to instances, starts and stops instances, and notices when they end.
//!
//! The pool is behind one lock, which is held for a decision and never across an await. A call that finds a warm instance takes the lock twice:
//! when it arrives and when it has ended. Starts and stops run as tasks of the agent's own runtime, not of the gateway thread that happened to
//! trigger them.

mod clock;
mod function_queue;
mod in_flight;
mod lend;
mod pausing;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::device::{GpuRequest, Percent};
use fdn_core::{AppName, Millis, TenantTag};
use fdn_instances::{Image, Instance, InstanceState, StartError, StartSpec};
use fdn_scheduling::invocation::{ContainerId, Profile, ReleaseReason};
use fdn_service::CancellationToken;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::warn;

use super::admission::Refused;
use super::ledger::{InstanceReservation, Ledger};
use super::placer::{Need, Placed, Placer, of_memory};
use super::policy;
use super::pool::{CallId, Effect, FunctionParameters, Pool, PoolSettings};
use super::stop::stopped;
use crate::error::Error;
use crate::metrics::InstanceMetrics;
use crate::peers::Placement;
use crate::settings::{InstanceSettings, QueueSettings, ScaleSettings};

pub use function_queue::InstanceQueue;
use function_queue::RegisteredFunction;
pub use in_flight::InFlight;
pub use lend::WeakInstances;
pub use watch::Degradation;

/// The components and settings of [`Instances`].
pub struct InstancesParts {
    /// Starts the instances.
    pub placer: Arc<dyn Placer>,
    /// The ledger of the node's resources.
    pub ledger: Arc<Ledger>,
    /// The order of waiting calls.
    pub queue: QueueSettings,
    /// How instances are kept, started and stopped.
    pub settings: InstanceSettings,
    /// How the number of instances follows the load.
    pub scale: ScaleSettings,
    /// The share of the memory that all instances of one app may hold.
    pub app_share: Percent,
    /// The share that all instances of one tenant may hold, of what other tenants leave.
    pub tenant_share: Percent,
    /// Counters.
    pub metrics: InstanceMetrics,
}

/// The instances of a node's functions, and the calls that wait for them. A cheap handle.
#[derive(Clone)]
pub struct Instances {
    inner: Arc<Inner>,
}

struct Inner {
    placer: Arc<dyn Placer>,
    ledger: Arc<Ledger>,
    settings: InstanceSettings,
    scale: ScaleSettings,
    metrics: InstanceMetrics,
    state: Mutex<State>,
    began: Instant,
    /// The agent is stopping: instances keep running although their queues are dropped.
    detached: AtomicBool,
    /// Notified when the next tick has become earlier, or the node's free memory has changed.
    wake: Arc<Notify>,
    tasks: Handle,
}

struct State {
    pool: Pool,
    /// The senders that hand waiting calls their place.
    waiters: BTreeMap<CallId, oneshot::Sender<InFlight>>,
    /// The running instances, by the container's slot.
    live: Vec<Option<Live>>,
    functions: Vec<Option<Arc<RegisteredFunction>>>,
    due: Option<Millis>,
}

#[derive(Clone)]
struct Live {
    container: ContainerId,
    instance: Arc<dyn Instance>,
    reservation: Arc<Option<InstanceReservation>>,
    since: Instant,
    /// The instance ran for another node before; it is lent to the next node that wants it.
    lendable: bool,
    /// How the cluster placed it, for the first call that gets it.
    placement: Option<Arc<Placement>>,
}

impl Instances {
    /// Starts without any instance. Must be called on the runtime that outlives the gateway's threads; the returned task ends when `stop` is
    /// cancelled.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn start(
        parts: InstancesParts,
        stop: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let InstancesParts {
            placer,
            ledger,
            queue,
            settings,
            scale,
            app_share,
            tenant_share,
            metrics,
        } = parts;
        let pool = PoolSettings {
            scheduler: policy::scheduler(&queue, settings.waiting)?,
            reaction: policy::millis(scale.reaction),
            interval: policy::millis(scale.interval),
            ahead: policy::millis(scale.stable),
            pause_after: policy::pause_after(&settings).filter(|_| placer.pauses()),
            app_share,
            tenant_share,
        };
        let pool = Pool::new(pool, policy::keep_alive(&settings)?)
            .map_err(|error| Error::Settings(error.to_string()))?;
        let inner = Arc::new(Inner {
            placer,
            ledger,
            settings,
            scale,
            metrics,
            state: Mutex::new(State {
                pool,
                waiters: BTreeMap::new(),
                live: Vec::new(),
                functions: Vec::new(),
                due: None,
            }),
            began: Instant::now(),
            detached: AtomicBool::new(false),
            wake: Arc::default(),
            tasks: Handle::current(),
        });
        let task = tokio::spawn(Arc::clone(&inner).run(stop));
        Ok((Self { inner }, task))
    }

    /// The notification for changes of the memory that instances may use.
    #[must_use]
    pub fn memory_bell(&self) -> Arc<Notify> {
        Arc::clone(&self.inner.wake)
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &InstanceSettings {
        &self.inner.settings
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> &InstanceMetrics {
        &self.inner.metrics
    }

    /// Fetches an image ahead of time, so that the first start need not fetch it.
    ///
    /// # Errors
    /// When the image cannot be fetched or used.
    pub async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.inner.placer.prepare(image).await
    }

    /// Whether containers can run here or elsewhere in the cluster. Returns once that is known.
    pub async fn runs_containers(&self) -> bool {
        self.inner.placer.runs_containers().await
    }

    /// Why the devices of this node and the cluster can never satisfy the request; `None` if some could. Returns once that is known.
    pub async fn lacks_devices(&self, request: &GpuRequest) -> Option<String> {
        self.inner.placer.lacks_devices(request).await
    }

    /// Makes a function callable. Running instances of it are adopted.
    ///
    /// # Errors
    /// When the limit of functions is reached, or its figures are invalid.
    pub fn register(&self, spec: StartSpec, expected: Millis) -> Result<InstanceQueue, Error> {
        let inner = &self.inner;
        let refused = |error: &dyn std::fmt::Display| Error::Settings(error.to_string());
        let concurrency = spec.description.concurrency.get();
        let weight = inner.placer.weight(spec.description.resources);
        let cold = policy::millis(inner.settings.cold_start);
        let parameters = FunctionParameters {
            app: spec.description.app.clone(),
            memory: of_memory(spec.description.resources.memory_mib),
            profile: Profile::new(expected, cold, weight).map_err(|error| refused(&error))?,
            concurrency,
            scale: policy::scale(&inner.scale, concurrency),
        };
        let registration = inner.placer.register(&spec, expected);
        let found = inner.placer.found(&spec.description);
        let degradation = watch::DegradationCell::default();
        let function = Arc::new(RegisteredFunction {
            spec,
            degradation,
            starts: AtomicU64::new(0),
        });
        let mut unwanted = Vec::new();
        let index = inner.with(|state, now| {
            let index = state.pool.register(parameters)?;
            let rows = state.functions.len().max(index.get() + 1);
            state.functions.resize(rows, None);
            state.functions[index.get()] = Some(Arc::clone(&function));
            for placed in found {
                let is_paused = *placed.instance.state().borrow() == InstanceState::Paused;
                match state.pool.adopt(now, index, is_paused) {
                    Some(container) => inner.insert(state, container, placed),
                    None => unwanted.push(placed),
                }
            }
            Ok::<_, fdn_scheduling::invocation::Refusal>(index)
        });
        for placed in unwanted {
            inner.stop_later(placed.instance, Arc::new(placed.reservation));
        }
        Ok(InstanceQueue {
            inner: Arc::downgrade(inner),
            index: index.map_err(|error| refused(&error))?,
            function,
            _registration: registration,
        })
    }

    /// Sets the tenant of an app with registered functions: its instances share memory with those of the tenant's other apps.
    pub fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        self.inner.placer.set_tenant(app, tenant);
        self.inner
            .with(|state, now| state.pool.set_tenant(now, app, tenant));
    }

    /// Acquires a place in an instance for a call, waiting until `until` at most. `again` is for a call whose instance was lost.
    ///
    /// # Errors
    /// When too many calls wait, or this one for too long.
    pub async fn acquire(
        &self,
        queue: &InstanceQueue,
        until: Instant,
        again: bool,
    ) -> Result<InFlight, Refused> {
        let begun = Instant::now();
        let (in_flight, has_waited) = self.take(queue, until, again).await?;
        if has_waited {
            let waited = begun.elapsed().as_secs_f64();
            self.inner.metrics.wait.observe(waited);
        }
        let mut in_flight = in_flight.ok_or(Refused::Late)?;
        in_flight.until = until;
        Ok(in_flight)
    }

    /// Ensures that an instance is ready for the next call, starting one if necessary. Returns `false` after `longest`, or as soon as a start
    /// fails.
    pub async fn warm(&self, queue: &InstanceQueue, longest: Duration) -> bool {
        let degradation = queue.function.degradation.next();
        tokio::pin!(degradation);
        degradation.as_mut().enable();
        let until = Instant::now() + longest;
        tokio::select! {
            // The place is released at once, which leaves the instance idle.
            taken = self.take(queue, until, false) => matches!(taken, Ok((Some(_), _))),
            () = degradation => false,
        }
    }

    /// Acquires a place, if there is one in time; also returns whether the call had to wait.
    async fn take(
        &self,
        queue: &InstanceQueue,
        until: Instant,
        again: bool,
    ) -> Result<(Option<InFlight>, bool), Refused> {
        let inner = &self.inner;
        let weight = inner
            .placer
            .weight(queue.function.spec.description.resources);
        if weight > inner.placer.max_weight() {
            return Err(Refused::TooLarge);
        }
        let (sender, mut assigned) = oneshot::channel();
        let call = inner.with(|state, now| {
            let call = if again {
                state.pool.requeue(now, queue.index)?
            } else {
                state.pool.arrive(now, queue.index)?
            };
            state.waiters.insert(call, sender);
            Ok::<_, fdn_scheduling::invocation::Refusal>(call)
        })?;
        if let Ok(in_flight) = assigned.try_recv() {
            return Ok((Some(in_flight), false));
        }
        let waiting = Waiting { inner, call };
        let longest = (Instant::now() + inner.settings.wait.as_duration()).min(until);
        let outcome = tokio::time::timeout_at(longest, &mut assigned).await;
        let in_flight = match outcome {
            Ok(Ok(in_flight)) => Some(in_flight),
            Ok(Err(_)) | Err(_) => None,
        };
        drop(waiting);
        // The place may have been assigned just as the wait ended.
        Ok((in_flight.or_else(|| assigned.try_recv().ok()), true))
    }

    /// Leaves all instances running, so that the agent's next start finds them.
    pub fn detach(&self) {
        self.inner.detached.store(true, Ordering::Relaxed);
    }

    /// Stops all instances, for a runtime whose instances do not outlive the agent.
    pub async fn stop_all(&self) {
        let live: Vec<Live> = {
            let mut state = self.inner.lock();
            state.live.iter_mut().filter_map(Option::take).collect()
        };
        let stops = live.into_iter().map(|live| async move {
            if let Err(failure) = live.instance.stop(Duration::from_secs(1)).await {
                warn!(id = %live.instance.id(), %failure, "an instance could not be stopped");
            }
        });
        futures::future::join_all(stops).await;
    }
}

/// A waiting call; leaves the queue when dropped.
struct Waiting<'a> {
    inner: &'a Arc<Inner>,
    call: CallId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let call = self.call;
        let waiter = self.inner.with(|state, now| {
            state.pool.leave(now, call);
            state.waiters.remove(&call)
        });
        drop(waiter);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        Millis::from(self.began.elapsed())
    }

    /// Applies an event to the pool and performs the resulting effects.
    fn with<T>(self: &Arc<Self>, event: impl FnOnce(&mut State, Millis) -> T) -> T {
        let mut unwanted = Vec::new();
        let mut state = self.lock();
        let now = self.now();
        state.pool.capacity(now, self.placer.room());
        let result = event(&mut state, now);
        for effect in state.pool.take_effects() {
            self.perform(&mut state, effect, &mut unwanted);
        }
        let due = state.pool.next_tick();
        let sooner = match (due, state.due) {
            (Some(due), Some(before)) => due < before,
            (due, None) => due.is_some(),
            (None, Some(_)) => false,
        };
        if sooner {
            state.due = due;
        }
        drop(state);
        if sooner {
            self.wake.notify_one();
        }
        // Not under the lock: releasing a place takes the lock.
        drop(unwanted);
        result
    }

    fn perform(self: &Arc<Self>, state: &mut State, effect: Effect, unwanted: &mut Vec<InFlight>) {
        match effect {
            Effect::Assign { call, container } => {
                let Some(live) = here(state, container) else {
                    // An instance is opened only once it is in `live`.
                    warn!(%container, "a call was assigned to an instance that is not here");
                    return;
                };
                let placement = live.placement.take();
                let instance = Arc::clone(&live.instance);
                let in_flight = InFlight::new(Arc::clone(self), container, instance, placement);
                match state.waiters.remove(&call) {
                    Some(waiter) => unwanted.extend(waiter.send(in_flight).err()),
                    None => unwanted.push(in_flight),
                }
            }
            Effect::Start {
                container,
                function,
                is_ahead,
                ..
            } => {
                if let Some(known) = state.functions.get(function.get()).cloned().flatten() {
                    let inner = Arc::clone(self);
                    let need = if is_ahead { Need::Ahead } else { Need::Call };
                    self.tasks.spawn(inner.start_one(container, known, need));
                } else {
                    warn!(%container, "an instance of a function that is gone was ordered");
                }
            }
            Effect::Pause { container } => {
                if let Some(live) = here(state, container) {
                    let (inner, instance) = (Arc::clone(self), Arc::clone(&live.instance));
                    self.tasks.spawn(inner.pause_one(container, instance));
                }
            }
            Effect::Resume { container } => {
                if let Some(live) = here(state, container) {
                    let (inner, instance) = (Arc::clone(self), Arc::clone(&live.instance));
                    self.tasks.spawn(inner.resume_one(container, instance));
                }
            }
            Effect::Stop { container, why } => {
                self.metrics.stops.with_label_values(&[label(why)]).inc();
                if let Some(live) = take(state, container) {
                    self.stop_later(live.instance, live.reservation);
                }
            }
        }
    }

    fn insert(self: &Arc<Self>, state: &mut State, container: ContainerId, placed: Placed) {
        let rows = state.live.len().max(container.slot() + 1);
        state.live.resize(rows, None);
        let instance = placed.instance;
        let placement = self.placer.placement(instance.id());
        self.tasks
            .spawn(Arc::clone(self).watch(container, Arc::clone(&instance)));
        state.live[container.slot()] = Some(Live {
            container,
            instance,
            reservation: Arc::new(placed.reservation),
            since: Instant::now(),
            lendable: false,
            placement,
        });
    }

    /// Stops an instance in the background; its resources are released once it is gone.
    fn stop_later(
        &self,
        instance: Arc<dyn Instance>,
        reservation: Arc<Option<InstanceReservation>>,
    ) {
        let grace = self.settings.stop_grace.as_duration();
        let wake = Arc::clone(&self.wake);
        self.tasks.spawn(async move {
            stopped(&*instance, grace).await;
            drop(reservation);
            wake.notify_one();
        });
    }
}

/// The running instance of this container.
fn here(state: &mut State, container: ContainerId) -> Option<&mut Live> {
    let live = state.live.get_mut(container.slot())?.as_mut();
    live.filter(|live| live.container == container)
}

fn take(state: &mut State, container: ContainerId) -> Option<Live> {
    let live = state.live.get_mut(container.slot())?;
    live.take_if(|live| live.container == container)
}

const fn label(why: ReleaseReason) -> &'static str {
    match why {
        ReleaseReason::Evicted => "evicted",
        ReleaseReason::Expired => "expired",
        ReleaseReason::NotNeededYet => "not_needed_yet",
        ReleaseReason::Shrunk => "shrunk",
        ReleaseReason::Retired => "retired",
        ReleaseReason::Surplus => "surplus",
    }
}

#[cfg(test)]
mod tests;
