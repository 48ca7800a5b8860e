//! A loaded function and its idle instances.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::call::{Call, CallContext, RequestBody, ResourceGuard};
use crate::engine::Engine;
use crate::guest::Instance;
use crate::heavy::FunctionPlaces;
use crate::outbound::Reach;
use crate::state::GuestState;

/// A compiled, loaded and linked component. Dropping the last handle unloads it once its calls have ended.
pub struct Function {
    engine: Engine,
    pre: ProxyPre<GuestState>,
    /// Idle instances; the most recently used is at the end and taken first: its memory is warm. One lock for all threads, held for a push
    /// or a pop; per-thread lists would leave instances idle on one thread while another makes new ones.
    idle: Mutex<Vec<Instance>>,
    heavy_places: FunctionPlaces,
    reach: Arc<Reach>,
}

impl Function {
    pub(crate) fn new(engine: Engine, pre: ProxyPre<GuestState>) -> Self {
        Self {
            reach: Arc::new(engine.reach()),
            engine,
            pre,
            idle: Mutex::new(Vec::new()),
            heavy_places: FunctionPlaces::default(),
        }
    }

    /// Prepares a call. The URI of `request` may be in origin form; the authority is then taken from the `host` header.
    #[must_use]
    pub fn call(
        self: &Arc<Self>,
        context: CallContext,
        request: http::Request<RequestBody>,
    ) -> Call {
        Call::new(self.clone(), context, request)
    }

    /// The number of instances waiting for a call.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        self.idle().len()
    }

    /// Drops all idle instances, for example because the version is no longer current. Returns how many there were.
    pub fn drop_idle(&self) -> usize {
        let dropped = std::mem::take(&mut *self.idle());
        dropped.len()
    }

    /// Drops instances that have been idle since before `oldest`.
    pub(crate) fn expire_idle(&self, oldest: Instant) {
        let expired = {
            let mut idle = self.idle();
            // Sorted by age, because instances are added at the end.
            let keep_from = idle.partition_point(|instance| instance.idle_since() < oldest);
            idle.drain(..keep_from).collect::<Vec<_>>()
        };
        // Releasing memory takes a while and needs no lock.
        drop(expired);
    }

    /// When each idle instance was last used.
    pub(crate) fn idle_times(&self) -> Vec<Instant> {
        self.idle().iter().map(Instance::idle_since).collect()
    }

    /// Drops the idle instances that were not used after `last`. Returns how many there were.
    pub(crate) fn drop_idle_until(&self, last: Instant) -> usize {
        let goes = |instance: &mut Instance| instance.idle_since() <= last;
        let dropped: Vec<Instance> = self.idle().extract_if(.., goes).collect();
        dropped.len()
    }

    /// When each idle instance that holds something was last used, and how much it holds.
    pub(crate) fn idle_holding(
        &self,
        held: &impl Fn(&ResourceGuard) -> u64,
    ) -> Vec<(Instant, u64)> {
        let idle = self.idle();
        let all = idle
            .iter()
            .map(|instance| (instance.idle_since(), instance.holds(held)));
        all.filter(|(_, holds)| *holds > 0).collect()
    }

    /// Drops the idle instances that hold something and were not used after `last`. Returns how many there were.
    pub(crate) fn drop_idle_holding(
        &self,
        last: Instant,
        held: &impl Fn(&ResourceGuard) -> u64,
    ) -> usize {
        let goes =
            |instance: &mut Instance| instance.idle_since() <= last && instance.holds(held) > 0;
        let dropped: Vec<Instance> = self.idle().extract_if(.., goes).collect();
        dropped.len()
    }

    /// The places of the background that its calls hold.
    pub(crate) fn heavy_places(&self) -> &FunctionPlaces {
        &self.heavy_places
    }

    /// How its calls reach the network.
    pub(crate) fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn pre(&self) -> &ProxyPre<GuestState> {
        &self.pre
    }

    /// Takes an idle instance that may serve a call of this context.
    pub(crate) fn take_idle(&self, context: &CallContext) -> Option<Instance> {
        let mut idle = self.idle();
        let at = idle
            .iter()
            .rposition(|instance| instance.can_serve(context))?;
        Some(idle.remove(at))
    }

    /// Keeps an instance for another call if there is room.
    pub(crate) fn keep_idle(&self, instance: Instance) {
        let mut idle = self.idle();
        if idle.len() < self.engine.options().idle_per_function {
            idle.push(instance);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function")
            .field("idle_instances", &self.idle_instances())
            .finish_non_exhaustive()
    }
}
