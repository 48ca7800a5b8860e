//! State shared by the caller's side and the guest's side of a call.
//!
//! In the common case both sides run in the same poll on the same thread, so this is one allocation, one lock that is never
//! contended, and a few atomics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use fdn_core::InstanceId;
use fdn_core::api::LogStream;
use rustix::time::{ClockId, clock_gettime};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode as WasiErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use super::context::Limits;
use super::stats::CallStats;
use crate::error::CallError;
use crate::log::LogSink;
use crate::ticker::TICK;

pub(crate) type Head = Result<http::Response<HyperOutgoingBody>, WasiErrorCode>;

const NOT_SUSPECTED: u64 = u64::MAX;
const TICK_NS: u64 = 1_000_000 * TICK.as_millis() as u64;

/// The verdict on the running slice.
pub(crate) enum SliceStatus {
    /// The slice is not over, as far as is known.
    Running,
    /// The slice is over; the CPU time of the call so far.
    Exhausted(Duration),
}

/// The CPU time of this thread, in ns.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
    log: Arc<dyn LogSink>,
    /// Whether the guest has used up its first slice and belongs in the background.
    slice_used: AtomicBool,
    /// Whether the guest runs in the background: its CPU time is then read from the thread's clock.
    heavy: AtomicBool,
    /// Whether the request body exceeded its limit.
    body_exceeded: AtomicBool,
    /// Whether the outcome is known.
    over: AtomicBool,
    cpu_ns: AtomicU64,
    slice_start_ns: AtomicU64,
    /// The thread's CPU clock when the running slice was first noticed to be long.
    suspected_at_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    head: Option<Head>,
    head_set: bool,
    outcome: Option<Result<(), CallError>>,
    waker: Option<Waker>,
    stats: CallStats,
}

impl Shared {
    pub(crate) fn new(limits: Limits, log: Arc<dyn LogSink>) -> Self {
        Self {
            started: Instant::now(),
            limits,
            log,
            slice_used: AtomicBool::new(false),
            heavy: AtomicBool::new(false),
            body_exceeded: AtomicBool::new(false),
            over: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
            slice_start_ns: AtomicU64::new(0),
            suspected_at_ns: AtomicU64::new(NOT_SUSPECTED),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the call must be over.
    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.limits.timeout
    }

    // ---- the guest's side ----

    pub(crate) fn set_head(&self, head: Head) {
        let waker = {
            let mut state = self.state();
            state.head = Some(head);
            state.head_set = true;
            state.stats.first_byte = self.started.elapsed();
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Records how the guest ended, unless an outcome is already known.
    pub(crate) fn finish(&self, outcome: Result<(), CallError>) {
        self.set_outcome(outcome, |known| known.is_none());
    }

    /// Records a failure of the call, even if the guest has already ended successfully. The first failure stands.
    pub(crate) fn fail(&self, error: CallError) {
        self.set_outcome(Err(error), |known| !matches!(known, Some(Err(_))));
    }

    /// Records an outcome if `replaces` allows it, and logs the reason of a failure, once.
    fn set_outcome(
        &self,
        outcome: Result<(), CallError>,
        replaces: impl FnOnce(&Option<Result<(), CallError>>) -> bool,
    ) {
        let (waker, instance, error) = {
            let mut state = self.state();
            if !replaces(&state.outcome) {
                return;
            }
            let error = outcome.as_ref().err().cloned();
            state.outcome = Some(outcome);
            // A call that the node had no room for has taken nothing.
            if !matches!(error, Some(CallError::Overloaded { .. })) {
                self.complete_times(&mut state.stats);
            }
            state.stats.finished = true;
            self.over.store(true, Ordering::Relaxed);
            (state.waker.take(), state.stats.instance, error)
        };
        if let Some(error) = error.filter(|error| *error != CallError::Cancelled) {
            let instance = instance.unwrap_or(InstanceId::from_uuid(uuid::Uuid::nil()));
            self.log
                .line(instance, LogStream::System, &error.to_string());
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Adds the time so far of a guest that has not told it: it still runs, or is cut before it returns. Until an instance is ready, this is the time
    /// that making it took. Without this, a call that is cut would seem to have taken no time at all.
    fn complete_times(&self, stats: &mut CallStats) {
        if stats.instance.is_none() || !stats.exec.is_zero() {
            return;
        }
        let so_far = self.started.elapsed();
        if stats.instantiate.is_zero() {
            stats.instantiate = so_far;
        } else {
            stats.exec = so_far.saturating_sub(stats.instantiate);
        }
    }

    pub(crate) fn update_stats(&self, update: impl FnOnce(&mut CallStats)) {
        update(&mut self.state().stats);
    }

    pub(crate) fn mark_body_exceeded(&self) {
        self.body_exceeded.store(true, Ordering::Relaxed);
    }

    /// Whether the outcome is known.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn body_exceeded(&self) -> bool {
        self.body_exceeded.load(Ordering::Relaxed)
    }

    // ---- slices ----

    /// Runs one poll of the guest and counts its CPU time.
    pub(super) fn slice<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.begin_slice();
        let result = poll();
        self.count_cpu();
        result
    }

    fn begin_slice(&self) {
        self.begin_slice_at(self.clock_ns());
    }

    fn begin_slice_at(&self, now_ns: u64) {
        self.slice_start_ns.store(now_ns, Ordering::Relaxed);
        self.suspected_at_ns.store(NOT_SUSPECTED, Ordering::Relaxed);
    }

    /// Adds the CPU time of the running slice so far. Only the thread that runs the slice calls this, so that the load and
    /// the store need not be one atomic step.
    pub(crate) fn count_cpu(&self) {
        // Read once for both slices: reading the clock is most of what this costs.
        let now = self.clock_ns();
        let used = self.slice_ns(now);
        let before = self.cpu_ns.load(Ordering::Relaxed);
        self.cpu_ns.store(before + used, Ordering::Relaxed);
        self.begin_slice_at(now);
    }

    /// Checks the running slice; called by the guest inside it, at most once per tick.
    ///
    /// On a caller's thread, a slice that is long by the wall clock may just have been preempted, and a light guest must not
    /// be sent to the background because its node is busy. So such a slice is only suspected at first; the thread's own CPU
    /// clock, read now and at the next check, then proves it.
    pub(crate) fn check_slice(&self) -> SliceStatus {
        if self.is_heavy() {
            return SliceStatus::Exhausted(self.total_ns());
        }
        let start = self.slice_start_ns.load(Ordering::Relaxed);
        if self.wall_ns().saturating_sub(start) < TICK_NS {
            return SliceStatus::Running;
        }
        match self.suspected_at_ns.load(Ordering::Relaxed) {
            NOT_SUSPECTED => {
                self.suspected_at_ns
                    .store(thread_cpu_ns(), Ordering::Relaxed);
                SliceStatus::Running
            }
            at if thread_cpu_ns().saturating_sub(at) < TICK_NS / 2 => SliceStatus::Running,
            _ => SliceStatus::Exhausted(self.total_ns()),
        }
    }

    fn total_ns(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed) + self.slice_ns(self.clock_ns()))
    }

    /// The CPU time of the running slice at `now_ns` of its clock, in ns. In the background it is measured. On a caller's thread, asking the kernel for
    /// the thread's clock would cost as much as the rest of the bookkeeping, so wall-clock time of up to two ticks is counted there, and
    /// CPU time is measured from when a longer slice was noticed.
    fn slice_ns(&self, now_ns: u64) -> u64 {
        let wall_or_cpu = now_ns.saturating_sub(self.slice_start_ns.load(Ordering::Relaxed));
        if self.is_heavy() {
            return wall_or_cpu;
        }
        match self.suspected_at_ns.load(Ordering::Relaxed) {
            NOT_SUSPECTED => wall_or_cpu.min(2 * TICK_NS),
            at => TICK_NS + thread_cpu_ns().saturating_sub(at),
        }
    }

    fn clock_ns(&self) -> u64 {
        if self.is_heavy() {
            thread_cpu_ns()
        } else {
            self.wall_ns()
        }
    }

    fn wall_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn mark_slice_used(&self) {
        self.slice_used.store(true, Ordering::Relaxed);
    }

    pub(super) fn slice_used(&self) -> bool {
        self.slice_used.load(Ordering::Relaxed)
    }

    pub(crate) fn is_heavy(&self) -> bool {
        self.heavy.load(Ordering::Relaxed)
    }

    pub(super) fn mark_heavy(&self) {
        self.heavy.store(true, Ordering::Relaxed);
        self.update_stats(|stats| stats.heavy = true);
    }

    // ---- the caller's side ----

    pub(super) fn take_head(&self) -> Option<Head> {
        self.state().head.take()
    }

    pub(crate) fn head_set(&self) -> bool {
        self.state().head_set
    }

    pub(super) fn outcome(&self) -> Option<Result<(), CallError>> {
        self.state().outcome.clone()
    }

    /// How the call ended; otherwise `None`, and the waker is woken when the outcome, or the head, is known.
    pub(super) fn outcome_or_wake(&self, waker: &Waker) -> Option<Result<(), CallError>> {
        let mut state = self.state();
        if state.outcome.is_none() && !state.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        state.outcome.clone()
    }

    pub(super) fn stats(&self) -> CallStats {
        let mut stats = self.state().stats;
        if !stats.finished {
            self.complete_times(&mut stats);
        }
        stats.cpu = Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed));
        stats
    }
}
