//! Admission of calls of WebAssembly functions: at once while there is room, in the order of the [`AdmissionQueue`] once the node is full; and of
//! calls that are held because their app is being made ready.
//!
//! A call that finds the queue empty, a free place and enough memory takes both with one compare-and-swap on the [`Ledger`]. Otherwise it waits,
//! with limits on number and time; each release while calls wait admits the next one. A call that finds the queue full, or waits too long, is
//! refused and may be retried later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    AdmissionQueue, FunctionIndex, Profile, Refusal, RequestId, Ticket,
};
use prometheus::IntGauge;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ledger::{Ledger, MemoryReservation, Permit, Place};
use super::policy;
use super::share::{SharePermit, Shares};
use crate::error::Error;
use crate::metrics::{AppMetrics, CountGuard, Metrics};
use crate::settings::{AdmissionSettings, QueueSettings};

/// A counter of places with a limit.
#[derive(Debug)]
struct Places {
    taken: AtomicU32,
    max: u32,
    gauge: IntGauge,
}

impl Places {
    fn take(&self) -> Option<HeldPlace<'_>> {
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < self.max).then_some(taken + 1)
            });
        taken.ok().map(|_| {
            self.gauge.inc();
            HeldPlace(self)
        })
    }
}

/// The place of a call that is held until its app is ready.
#[derive(Debug)]
pub struct HeldPlace<'a>(&'a Places);

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.dec();
    }
}

/// Counts a call as running until this is dropped.
#[derive(Debug)]
pub struct Slot {
    _place: Option<Place>,
    /// Released after the place, so that no app and no tenant ever holds more than its share.
    _share: Option<SharePermit>,
    _app: CountGuard,
    gauge: IntGauge,
}

impl Slot {
    /// A slot for a call that needs no place of this node's admission queue.
    #[must_use]
    pub fn elsewhere(app: &Arc<AppMetrics>, gauge: &IntGauge) -> Self {
        Self::new((None, None), app, gauge)
    }

    fn new(
        (place, share): (Option<Place>, Option<SharePermit>),
        app: &Arc<AppMetrics>,
        gauge: &IntGauge,
    ) -> Self {
        gauge.inc();
        Self {
            _place: place,
            _share: share,
            _app: app.running(),
            gauge: gauge.clone(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The node's queue is full.
    Full,
    /// The function's queue is full.
    FunctionFull,
    /// The app holds its whole share of the node's places, and none became free in time.
    AppFull,
    /// The app's tenant holds its whole share of the node's places, and none became free in time.
    TenantFull,
    /// The call has waited for the longest permitted time.
    Late,
    /// The function needs more memory than the node has.
    TooLarge,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::FunctionQueueFull { .. } => Self::FunctionFull,
            Refusal::TooLarge { .. } => Self::TooLarge,
            _ => Self::Full,
        }
    }
}

/// A function version's part of the admission queue.
#[derive(Debug)]
pub struct FunctionQueue {
    memory: MebiBytes,
    registration: OnceLock<QueueRegistration>,
}

/// The function's registration in the queue; created when one of its calls first has to wait.
#[derive(Debug)]
struct QueueRegistration {
    function: FunctionIndex,
    queue: Weak<Queue>,
}

impl FunctionQueue {
    /// The queue of a function whose sandbox takes this much memory.
    #[must_use]
    pub const fn new(memory: MebiBytes) -> Self {
        Self {
            memory,
            registration: OnceLock::new(),
        }
    }
}

impl Drop for FunctionQueue {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.get()
            && let Some(queue) = registration.queue.upgrade()
        {
            // No call waits any more: a waiting call holds a reference to the function queue.
            let retired = queue.lock().admission_queue.retire(registration.function);
            debug_assert!(retired.is_ok(), "{retired:?}");
        }
    }
}

/// What is expected of a call of a function when it has to wait.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The execution time of a call.
    pub execution: Millis,
    /// The time to create a sandbox.
    pub start: Millis,
    /// Whether an idle sandbox is kept for reuse.
    pub warm: bool,
}

/// The calls that wait for admission.
struct Queue {
    ledger: Arc<Ledger>,
    reclaim: Reclaim,
    /// How many have asked for [`Queue::reclaim`] since its present run began; 0 while none runs.
    reclaims: AtomicU64,
    state: Mutex<QueueState>,
    began: Instant,
    waiting: IntGauge,
    /// The expected total work of the waiting calls, in microseconds.
    work: AtomicU64,
    /// When a call was last admitted from the queue, or the first one joined it, in microseconds since `began`.
    moved: AtomicU64,
    /// Notified when the memory that waiting calls lack changes.
    wanted_changed: OnceLock<Arc<tokio::sync::Notify>>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("ledger", &self.ledger)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct QueueState {
    admission_queue: AdmissionQueue,
    waiters: BTreeMap<u64, oneshot::Sender<Permit>>,
    next: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        Millis::from(self.began.elapsed())
    }

    /// Records that the queue makes progress.
    fn moves(&self, now: Millis) {
        self.moved.store(micros(now), Ordering::Relaxed);
    }

    /// Admits waiting calls in the queue's order while there is room. Sandboxes that have become idle make room for them.
    fn dispatch(&self) {
        while self.admit() && self.reclaim(MebiBytes(0)) > 0 {}
    }

    /// Admits waiting calls; returns whether the next one lacks only memory.
    fn admit(&self) -> bool {
        let mut gone = Vec::new();
        let mut state = self.lock();
        let now = self.now();
        let mut lacks = MebiBytes(0);
        while let Some(candidate) = state.admission_queue.next(now) {
            // The weight in a profile of a sandbox's function is its memory, in MiB.
            let memory = MebiBytes(state.admission_queue.profile(candidate).memory().get());
            let Some(permit) = self.ledger.enter_from_queue(memory) else {
                if self.ledger.has_place() {
                    lacks = memory;
                }
                break;
            };
            self.moves(now);
            let request = state.admission_queue.start(candidate);
            let waiter = request.and_then(|request| state.waiters.remove(&request.0));
            match waiter {
                Some(waiter) => gone.extend(waiter.send(permit).err()),
                None => gone.push(permit),
            }
        }
        let waiting = state.admission_queue.waiting();
        if waiting == 0 {
            self.ledger.open();
        }
        // Under the lock, so that the figures of two threads are not set in the wrong order.
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let changed = self.ledger.want(lacks);
        drop(state);
        if changed && let Some(wanted_changed) = self.wanted_changed.get() {
            wanted_changed.notify_one();
        }
        // Not under the lock: releasing permits that nobody took runs `dispatch` again.
        drop(gone);
        lacks > MebiBytes(0)
    }

    /// Drops idle sandboxes, which are only an optimization, as many as the next waiting call lacks memory for, or if none waits for it, a call of
    /// `newcomer` memory; returns how many. Never called under the lock: each sandbox that is dropped runs `dispatch`. Only one run takes place
    /// at a time, so that these do not nest; it goes on until it has seen what every other one asked for.
    fn reclaim(&self, newcomer: MebiBytes) -> usize {
        if self.reclaims.fetch_add(1, Ordering::AcqRel) > 0 {
            return 0;
        }
        let (mut dropped, mut seen) = (0, 1);
        loop {
            let wanted = match self.ledger.wanted() {
                MebiBytes(0) => newcomer,
                wanted => wanted,
            };
            let lacking = wanted.saturating_sub(self.ledger.free());
            if lacking > MebiBytes(0) {
                dropped += (self.reclaim)(lacking);
            }
            let ended =
                self.reclaims
                    .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire);
            match ended {
                Ok(_) => return dropped,
                Err(asked) => seen = asked,
            }
        }
    }

    fn leave(&self, id: u64, ticket: Ticket) {
        let mut state = self.lock();
        state.admission_queue.cancel(ticket);
        let waiter = state.waiters.remove(&id);
        drop(state);
        drop(waiter);
        self.dispatch();
    }
}

/// The time that is left until then.
pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn micros(time: Millis) -> u64 {
    (time.get() * 1e3) as u64
}

/// A waiting call; leaves the queue when dropped.
struct Waiting<'a> {
    queue: &'a Queue,
    id: u64,
    ticket: Ticket,
    /// Its expected work, in microseconds.
    work: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.work.fetch_sub(self.work, Ordering::Relaxed);
        self.queue.leave(self.id, self.ticket);
    }
}

/// Frees this much memory by dropping idle sandboxes, the least recently used first and no more than it takes; none if all of them together hold
/// less. Returns how many were dropped.
type Reclaim = Box<dyn Fn(MebiBytes) -> usize + Send + Sync>;

/// Controls which calls may run on the node.
pub struct Admission {
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    shares: Shares,
    wait: Duration,
    held: Places,
    hold: Duration,
    /// The gauge of running calls.
    pub busy: IntGauge,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// Admission with these settings. `reclaim` drops idle sandboxes when memory is short.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(
        settings: &AdmissionSettings,
        queue: &QueueSettings,
        ledger: Arc<Ledger>,
        reclaim: Reclaim,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let bounds = policy::scheduler(queue, settings.waiting)?;
        let admission_queue =
            AdmissionQueue::new(&bounds).map_err(|error| Error::Settings(error.to_string()))?;
        let queue = Arc::new(Queue {
            ledger: Arc::clone(&ledger),
            reclaim,
            reclaims: AtomicU64::new(0),
            state: Mutex::new(QueueState {
                admission_queue,
                waiters: BTreeMap::new(),
                next: 0,
            }),
            began: Instant::now(),
            waiting: metrics.waiting.clone(),
            work: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            wanted_changed: OnceLock::new(),
        });
        let bell = Arc::downgrade(&queue);
        ledger.on_release(Box::new(move || {
            if let Some(queue) = bell.upgrade() {
                queue.dispatch();
            }
        }));
        Ok(Self {
            ledger,
            queue,
            shares: Shares::new(settings, metrics),
            wait: settings.wait.as_duration(),
            held: Places {
                taken: AtomicU32::new(0),
                max: settings.held,
                gauge: metrics.held.clone(),
            },
            hold: settings.hold.as_duration(),
            busy: metrics.busy.clone(),
        })
    }

    /// The ledger of the node's resources.
    #[must_use]
    pub const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Sets the notification for changes of the memory that waiting calls lack.
    pub(crate) fn on_wanted_memory(&self, wanted_changed: Arc<tokio::sync::Notify>) {
        drop(self.queue.wanted_changed.set(wanted_changed));
    }

    /// Admits a call, at once or after a wait that ends `until` then at the latest: a call whose time is over before it is admitted was not served,
    /// and that is not its function's fault.
    ///
    /// # Errors
    /// When too many calls wait already, or this one waits for too long.
    pub async fn enter(
        &self,
        function_queue: &FunctionQueue,
        app: &Arc<AppMetrics>,
        until: Instant,
        expected: impl FnOnce() -> Expected,
    ) -> Result<(Slot, MemoryReservation), Refused> {
        let share = self.shares.enter(app.places(), until).await?;
        let Permit { place, memory } = match self.ledger.enter(function_queue.memory) {
            Some(permit) => permit,
            // Boxed, because it is seldom needed and would make every request's future larger.
            None => Box::pin(self.wait(function_queue, app, until, expected())).await?,
        };
        let slot = Slot::new((Some(place), Some(share)), app, &self.busy);
        Ok((slot, memory))
    }

    async fn wait(
        &self,
        function_queue: &FunctionQueue,
        app: &Arc<AppMetrics>,
        until: Instant,
        expected: Expected,
    ) -> Result<Permit, Refused> {
        if function_queue.memory > self.ledger.capacity().memory_mib {
            return Err(Refused::TooLarge);
        }
        // While others wait, it would not get what it frees.
        if !self.ledger.is_full()
            && self.queue.reclaim(function_queue.memory) > 0
            && let Some(permit) = self.ledger.enter(function_queue.memory)
        {
            return Ok(permit);
        }
        let _waits = app.waiting();
        let (waiting, mut entered) = self.join(function_queue, expected)?;
        // A release before the ledger was closed did not run `dispatch`.
        self.queue.dispatch();
        let longest = self.wait.min(left(until));
        let outcome = timeout(longest, &mut entered).await;
        let permit = match outcome {
            Ok(Ok(permit)) => Some(permit),
            Ok(Err(_)) | Err(_) => None,
        };
        drop(waiting);
        // The call may have been admitted just as it timed out.
        permit
            .or_else(|| entered.try_recv().ok())
            .ok_or(Refused::Late)
    }

    fn join(
        &self,
        function_queue: &FunctionQueue,
        expected: Expected,
    ) -> Result<(Waiting<'_>, oneshot::Receiver<Permit>), Refused> {
        let profile = Profile::new(expected.execution, expected.start, function_queue.memory)?;
        let (let_in, entered) = oneshot::channel();
        let mut state = self.queue.lock();
        let function = match function_queue.registration.get() {
            Some(registration) => registration.function,
            None => {
                let function = state.admission_queue.register(profile)?;
                let queue = Arc::downgrade(&self.queue);
                // Set under the queue's lock, so nobody else can have set it.
                drop(
                    function_queue
                        .registration
                        .set(QueueRegistration { function, queue }),
                );
                function
            }
        };
        state.admission_queue.know(function, profile, expected.warm);
        let (id, now) = (state.next, self.queue.now());
        if state.admission_queue.waiting() == 0 {
            self.queue.moves(now);
        }
        let ticket = state
            .admission_queue
            .enqueue(now, RequestId(id), function)?;
        state.next += 1;
        state.waiters.insert(id, let_in);
        self.ledger.close();
        drop(state);
        let queue = &*self.queue;
        let work = micros(expected.execution + expected.start);
        queue.work.fetch_add(work, Ordering::Relaxed);
        let waiting = Waiting {
            queue,
            id,
            ticket,
            work,
        };
        Ok((waiting, entered))
    }

    /// Whether a call that arrives now has to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ledger.is_full()
    }

    /// The expected waiting time of a new call: the work of all waiting calls plus `running`, the mean expected time of the running calls,
    /// divided by the number of places. Calls are not served in order of arrival, so this is a mean. If nobody has been admitted for longer than
    /// that, running calls take longer than expected, and the wait is at least that long.
    #[must_use]
    pub fn expected_wait(&self, running: impl FnOnce() -> Millis) -> Millis {
        if !self.is_full() {
            return Millis::ZERO;
        }
        let work = Millis::new(self.queue.work.load(Ordering::Relaxed) as f64 / 1e3);
        let model = (work + running()) * (1.0 / f64::from(self.ledger.places().max(1)));
        let moved = Millis::new(self.queue.moved.load(Ordering::Relaxed) as f64 / 1e3);
        match self.queue.waiting.get() {
            0 => model,
            _ => model.max(self.queue.now() - moved),
        }
    }

    /// Takes a place among the calls held for an app that is being made ready, if one is free.
    #[must_use]
    pub fn hold(&self) -> Option<HeldPlace<'_>> {
        self.held.take()
    }

    /// The longest time that a call is held.
    #[must_use]
    pub const fn hold_time(&self) -> Duration {
        self.hold
    }
}

#[cfg(test)]
mod tests;
