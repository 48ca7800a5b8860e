//! The ledger of this node's resources and who holds them: the final authority on whether something may start here.
//!
//! Calls of WebAssembly functions arrive at rates of hundreds of thousands a second, so what they hold is kept in one word that is changed by
//! compare-and-swap: places of running calls, memory, and whether calls wait. While calls wait the word is *closed*: a newcomer cannot pass the
//! queue, and every release invokes a callback.
//!
//! **Invariants.** The memory held by calls, idle sandboxes and instances together is at most the capacity. Running calls are at most the places.
//! CPU is held by instances only, whose runtime enforces it; calls in sandboxes share the CPU in time slices of a millisecond.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fdn_core::{MebiBytes, MilliCpu, Resources};
use fdn_runtime::ResourceGuard;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::app_memory::ShareReservation;
use super::slices::Slices;

/// Bits of the word for memory in MiB: enough for 4 EiB.
const MEMORY_BITS: u32 = 42;
const MEMORY_MASK: u64 = (1 << MEMORY_BITS) - 1;
/// One place, in the bits above the memory.
const PLACE: u64 = 1 << MEMORY_BITS;
const PLACES_MASK: u64 = (1 << 21) - 1;
/// Set while calls wait.
const CLOSED: u64 = 1 << 63;

/// The most places a node can have.
pub const PLACES_MAX: u32 = PLACES_MASK as u32;

/// Called when something is released while calls wait.
type Bell = Box<dyn Fn() + Send + Sync>;

/// The ledger of one node.
pub struct Ledger {
    capacity: Resources,
    places: u64,
    /// The closed flag, places and memory.
    word: AtomicU64,
    /// The part of the memory that instances hold, in MiB.
    instances: AtomicU64,
    /// The CPU that instances hold, in thousandths of a core.
    cpu: AtomicU64,
    /// The memory that the next waiting call lacks, in MiB.
    wanted: AtomicU64,
    bell: OnceLock<Bell>,
    /// The number of tasks that wait for CPU or memory for an instance.
    watchers: AtomicU64,
    freed: Notify,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("capacity", &self.capacity)
            .field("running", &self.running())
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// The place of a running call.
#[derive(Debug)]
pub struct Place(Arc<Ledger>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.release(PLACE);
    }
}

/// The memory of a sandbox, from the call that created it until it is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    ledger: Arc<Ledger>,
    memory: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.ledger.release(self.memory);
    }
}

/// What a call holds: a place until it has ended, and memory for as long as its sandbox lives.
#[derive(Debug)]
pub struct Permit {
    /// The place.
    pub place: Place,
    /// The memory.
    pub memory: MemoryReservation,
}

/// The CPU, memory and device slices of an instance, until it is gone.
#[derive(Debug)]
pub struct InstanceReservation {
    ledger: Arc<Ledger>,
    resources: Resources,
    slices: Option<Slices>,
    /// The part of its app's and tenant's memory share.
    part: Option<Box<ShareReservation>>,
    /// Dropped after everything else was released.
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl InstanceReservation {
    /// Adds slices of devices to what the instance holds.
    #[must_use]
    pub fn with_slices(mut self, slices: Option<Slices>) -> Self {
        self.slices = slices;
        self
    }

    /// Adds a part of the shares of its app and tenant to what the instance holds.
    #[must_use]
    pub(super) fn with_part(mut self, part: Option<ShareReservation>) -> Self {
        self.part = part.map(Box::new);
        self
    }

    /// Drops the guards now, because another account is responsible for the instance from here on.
    pub fn drop_guards(&mut self) {
        self.guards.clear();
    }

    /// Adds a guard that is dropped when everything else has been released.
    #[must_use]
    pub fn with_guard(mut self, guard: Box<dyn Any + Send + Sync>) -> Self {
        self.guards.push(guard);
        self
    }
}

impl Drop for InstanceReservation {
    fn drop(&mut self) {
        let memory = self.resources.memory_mib.get();
        let cpu = self.resources.cpu_milli.get();
        self.ledger.cpu.fetch_sub(cpu, Ordering::Relaxed);
        self.ledger.instances.fetch_sub(memory, Ordering::Relaxed);
        self.ledger.release(memory);
        drop(self.slices.take());
    }
}

impl Ledger {
    /// The ledger of a node with this capacity, on which at most `places` calls run at once.
    #[must_use]
    pub fn new(capacity: Resources, places: u32) -> Arc<Self> {
        let mut capacity = capacity;
        capacity.memory_mib = capacity.memory_mib.min(MebiBytes(MEMORY_MASK >> 1));
        Arc::new(Self {
            capacity,
            places: u64::from(places.min(PLACES_MAX)),
            word: AtomicU64::new(0),
            instances: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            bell: OnceLock::new(),
            watchers: AtomicU64::new(0),
            freed: Notify::new(),
        })
    }

    /// Sets the callback for releases while the ledger is closed; only the first one counts.
    pub(super) fn on_release(&self, bell: Bell) {
        drop(self.bell.set(bell));
    }

    /// The node's capacity.
    #[must_use]
    pub const fn capacity(&self) -> Resources {
        self.capacity
    }

    /// How many calls may run at once.
    #[must_use]
    pub const fn places(&self) -> u32 {
        self.places as u32
    }

    /// The number of running calls.
    #[must_use]
    pub fn running(&self) -> u32 {
        places_of(self.word.load(Ordering::Relaxed)) as u32
    }

    /// The memory held by calls, idle sandboxes and instances.
    #[must_use]
    pub fn held(&self) -> MebiBytes {
        MebiBytes(self.word.load(Ordering::Relaxed) & MEMORY_MASK)
    }

    /// The memory held by instances.
    #[must_use]
    pub fn held_by_instances(&self) -> MebiBytes {
        MebiBytes(self.instances.load(Ordering::Relaxed))
    }

    /// The memory that is free.
    pub(super) fn free(&self) -> MebiBytes {
        self.capacity.memory_mib.saturating_sub(self.held())
    }

    /// The memory of this node that an idle sandbox holds: a process may have sandboxes of several nodes.
    #[must_use]
    pub fn held_by(&self, sandbox: &ResourceGuard) -> MebiBytes {
        let reservation = sandbox.downcast_ref::<MemoryReservation>();
        let own = reservation.filter(|reservation| std::ptr::eq(&*reservation.ledger, self));
        MebiBytes(own.map_or(0, |reservation| reservation.memory))
    }

    /// The CPU held by instances.
    #[must_use]
    pub fn cpu_held(&self) -> MilliCpu {
        MilliCpu(self.cpu.load(Ordering::Relaxed))
    }

    /// The memory that all instances together may hold: what calls neither hold nor wait for.
    #[must_use]
    pub fn room_for_instances(&self) -> MebiBytes {
        let held = self.held();
        let by_calls = held.saturating_sub(self.held_by_instances());
        let wanted = MebiBytes(self.wanted.load(Ordering::Relaxed));
        self.capacity
            .memory_mib
            .saturating_sub(by_calls)
            .saturating_sub(wanted)
    }

    /// The memory that the next waiting call lacks; instances should release it.
    #[must_use]
    pub fn wanted(&self) -> MebiBytes {
        MebiBytes(self.wanted.load(Ordering::Relaxed))
    }

    /// Admits a call if none wait and there is a free place and memory: the path of nearly all calls.
    #[must_use]
    pub fn enter(self: &Arc<Self>, memory: MebiBytes) -> Option<Permit> {
        self.take(memory, CLOSED)
    }

    /// Admits a call from the queue.
    pub(super) fn enter_from_queue(self: &Arc<Self>, memory: MebiBytes) -> Option<Permit> {
        self.take(memory, 0)
    }

    fn take(self: &Arc<Self>, memory: MebiBytes, unless: u64) -> Option<Permit> {
        let memory = memory.get();
        let limit = self.capacity.memory_mib.get();
        let took = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                let fits = word & unless == 0
                    && places_of(word) < self.places
                    && (word & MEMORY_MASK).saturating_add(memory) <= limit;
                fits.then(|| word + PLACE + memory)
            });
        took.ok().map(|_| Permit {
            place: Place(Arc::clone(self)),
            memory: MemoryReservation {
                ledger: Arc::clone(self),
                memory,
            },
        })
    }

    /// Whether a place is free, so that a waiting call lacks only memory.
    pub(super) fn has_place(&self) -> bool {
        places_of(self.word.load(Ordering::Relaxed)) < self.places
    }

    /// Whether a call that arrives now has to wait, for a place or behind others.
    pub(super) fn is_full(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & CLOSED != 0 || places_of(word) >= self.places
    }

    /// From now on only queued calls are admitted, and releases invoke the callback.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// No calls wait any more.
    pub(super) fn open(&self) {
        self.word.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Sets the memory that the next waiting call lacks, which instances should release. Returns whether it has changed.
    pub(crate) fn want(&self, memory: MebiBytes) -> bool {
        self.wanted.swap(memory.get(), Ordering::Relaxed) != memory.get()
    }

    fn release(&self, amount: u64) {
        let before = self.word.fetch_sub(amount, Ordering::SeqCst);
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
        if before & CLOSED != 0
            && let Some(bell) = self.bell.get()
        {
            bell();
        }
    }

    /// Whether anything waits for resources: an instance's start, or calls in the queue.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        let queue = self.word.load(Ordering::Relaxed) & CLOSED != 0;
        queue || self.watchers.load(Ordering::SeqCst) > 0
    }

    /// While this lives, [`Ledger::freed`] is notified of releases.
    pub(super) fn watch(&self) -> Watch<'_> {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        Watch(self)
    }

    /// Resolves at the next release.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Reserves CPU and memory for an instance.
    ///
    /// # Errors
    /// With a text that says what is short.
    pub fn reserve(self: &Arc<Self>, resources: Resources) -> Result<InstanceReservation, String> {
        let short = |cpu: u64| {
            let free = Resources::new(
                MilliCpu(self.capacity.cpu_milli.get().saturating_sub(cpu)),
                self.capacity.memory_mib.saturating_sub(self.held()),
            );
            resources
                .shortage(&free)
                .unwrap_or_else(|| format!("{resources} was free a moment ago"))
        };
        let wanted_cpu = resources.cpu_milli.get();
        let cpu = self
            .cpu
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |cpu| {
                let next = cpu.checked_add(wanted_cpu)?;
                (next <= self.capacity.cpu_milli.get()).then_some(next)
            })
            .map_err(short)?;
        let memory = resources.memory_mib.get();
        let limit = self.capacity.memory_mib.get();
        let took = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                let fits = (word & MEMORY_MASK).saturating_add(memory) <= limit;
                fits.then(|| word + memory)
            });
        if took.is_err() {
            self.cpu.fetch_sub(wanted_cpu, Ordering::Relaxed);
            return Err(short(cpu));
        }
        self.instances.fetch_add(memory, Ordering::Relaxed);
        Ok(self.reserved(resources))
    }

    /// Reserves as much of the resources of an instance that does not fit as is free.
    pub(super) fn reserve_rest(self: &Arc<Self>, resources: Resources) -> InstanceReservation {
        let (cpu, memory) = (resources.cpu_milli.get(), resources.memory_mib.get());
        let limit = self.capacity.cpu_milli.get();
        let free = |held: u64| cpu.min(limit.saturating_sub(held));
        let held = self
            .cpu
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                Some(held + free(held))
            });
        let cpu = free(held.unwrap_or_else(|held| held));
        let limit = self.capacity.memory_mib.get();
        let free = |word: u64| memory.min(limit.saturating_sub(word & MEMORY_MASK));
        let word = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some(word + free(word))
            });
        let memory = free(word.unwrap_or_else(|word| word));
        self.instances.fetch_add(memory, Ordering::Relaxed);
        self.reserved(Resources::new(MilliCpu(cpu), MebiBytes(memory)))
    }

    /// What an instance holds, once it is counted.
    fn reserved(self: &Arc<Self>, resources: Resources) -> InstanceReservation {
        InstanceReservation {
            ledger: Arc::clone(self),
            resources,
            slices: None,
            part: None,
            guards: Vec::new(),
        }
    }

    /// Like [`Ledger::reserve`], but waits until stopping instances have released enough. The caller must bound the wait.
    pub async fn reserve_when_free(self: &Arc<Self>, resources: Resources) -> InstanceReservation {
        let _watch = self.watch();
        loop {
            let freed = self.freed();
            tokio::pin!(freed);
            // Registered before the check, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Ok(reservation) = self.reserve(resources) {
                return reservation;
            }
            freed.await;
        }
    }
}

/// Counts one task that waits for a release, while it lives.
pub(super) struct Watch<'a>(&'a Ledger);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

const fn places_of(word: u64) -> u64 {
    (word >> MEMORY_BITS) & PLACES_MASK
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn ledger(cpu: u64, memory: u64, places: u32) -> Arc<Ledger> {
        Ledger::new(Resources::new(MilliCpu(cpu), MebiBytes(memory)), places)
    }

    #[test]
    fn calls_take_a_place_and_memory_which_end_apart() {
        let ledger = ledger(1000, 100, 2);
        let first = ledger.enter(MebiBytes(60)).expect("room");
        assert!(ledger.enter(MebiBytes(41)).is_none(), "memory is short");
        let second = ledger.enter(MebiBytes(40)).expect("room");
        assert!(ledger.enter(MebiBytes(0)).is_none(), "places are short");
        drop(second);
        let Permit { place, memory } = first;
        drop(place);
        assert_eq!(
            (ledger.running(), ledger.held()),
            (0, MebiBytes(60)),
            "an idle sandbox holds memory and no place"
        );
        drop(memory);
        assert_eq!(ledger.held(), MebiBytes(0));
    }

    #[test]
    fn instances_and_calls_share_the_memory_and_cpu_is_for_instances() {
        let ledger = ledger(1000, 100, 9);
        let want = |cpu, memory| Resources::new(MilliCpu(cpu), MebiBytes(memory));
        let instance = ledger.reserve(want(800, 50)).expect("room");
        let error = ledger.reserve(want(300, 1)).expect_err("no CPU");
        assert!(error.contains("CPU"), "{error}");
        let permit = ledger.enter(MebiBytes(30)).expect("room");
        let error = ledger.reserve(want(100, 30)).expect_err("no memory");
        assert!(error.contains("memory"), "{error}");
        assert_eq!(
            ledger.cpu_held(),
            MilliCpu(800),
            "nothing is left of a refusal"
        );
        assert_eq!(ledger.room_for_instances(), MebiBytes(70));
        assert!(ledger.want(MebiBytes(20)) && !ledger.want(MebiBytes(20)));
        assert_eq!(ledger.room_for_instances(), MebiBytes(50));
        drop((instance, permit));
        assert_eq!(
            (ledger.held(), ledger.cpu_held()),
            (MebiBytes(0), MilliCpu(0))
        );
    }

    #[test]
    fn who_comes_new_does_not_pass_those_who_wait_and_releases_ring() {
        let ledger = ledger(1000, 100, 2);
        let rung = Arc::new(AtomicUsize::new(0));
        let bell = Arc::clone(&rung);
        ledger.on_release(Box::new(move || {
            bell.fetch_add(1, Ordering::Relaxed);
        }));
        let permit = ledger.enter(MebiBytes(1)).expect("room");
        drop(permit);
        assert_eq!(rung.load(Ordering::Relaxed), 0);
        ledger.close();
        assert!(ledger.enter(MebiBytes(1)).is_none());
        let permit = ledger.enter_from_queue(MebiBytes(1)).expect("room");
        drop(permit);
        assert_eq!(rung.load(Ordering::Relaxed), 2, "place and memory");
        ledger.open();
        assert!(ledger.enter(MebiBytes(1)).is_some());
    }

    #[test]
    fn many_threads_never_hold_more_than_there_is() {
        let ledger = ledger(64, 64, 5);
        let threads: Vec<_> = (0..4u64)
            .map(|at| {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || {
                    for round in 0..20_000 {
                        let memory = MebiBytes(1 + (round * 7 + at * 13) % 40);
                        let permit = ledger.enter(memory);
                        assert!(ledger.running() <= 5);
                        assert!(ledger.held() <= MebiBytes(64));
                        let cpu = MilliCpu(memory.get());
                        let reservation = ledger.reserve(Resources::new(cpu, memory));
                        // Something is always held of what does not fit, be it nothing.
                        let rest = ledger.reserve_rest(Resources::new(cpu, memory));
                        assert!(ledger.cpu_held() <= MilliCpu(64));
                        assert!(ledger.held() <= MebiBytes(64));
                        drop((permit, reservation, rest));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no bound was passed");
        }
        assert_eq!((ledger.running(), ledger.held()), (0, MebiBytes(0)));
    }

    #[tokio::test]
    async fn who_waits_for_an_instance_to_go_gets_what_it_held() {
        let ledger = ledger(100, 100, 1);
        let all = Resources::new(MilliCpu(100), MebiBytes(100));
        let first = ledger.reserve(all).expect("room");
        let waiting = Arc::clone(&ledger);
        let second = tokio::spawn(async move { waiting.reserve_when_free(all).await });
        tokio::task::yield_now().await;
        drop(first);
        drop(second.await.expect("held"));
        assert_eq!(ledger.cpu_held(), MilliCpu(0));
    }
}
