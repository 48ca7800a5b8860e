//! The guest's side of a call: it obtains an instance, passes it the request, and reports how it ended.

use std::sync::Arc;
use std::time::Instant;

use fdn_core::InstanceId;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi_http::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::Proxy;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;

use crate::call::{CallContext, GuestRequestBody, RequestBody, ResourceGuard, Shared};
use crate::error::CallError;
use crate::frames;
use crate::function::Function;
use crate::outbound::Hooks;
use crate::state::{FIRST_SLICE, GuestState, HOSTCALL_FUEL, MAX_HANDLES, Termination};

/// How many idle instances are dropped at first for a call that finds the pool full.
const FIRST_DROPS: usize = 4;

/// An instantiated component with its memory.
pub(crate) struct Instance {
    store: Store<GuestState>,
    proxy: Proxy,
    id: InstanceId,
    env: Arc<[(String, String)]>,
    served: u32,
    idle_since: Instant,
    /// Dropped last, once the memory is free.
    resource_guard: Option<ResourceGuard>,
}

fn hooks(function: &Function, context: &CallContext, id: InstanceId, shared: &Shared) -> Hooks {
    Hooks::new(context, function.reach().clone(), id, shared.deadline())
}

impl Instance {
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// How much it holds of what `held` finds in what it occupies.
    pub(crate) fn holds(&self, held: &impl Fn(&ResourceGuard) -> u64) -> u64 {
        self.resource_guard.as_ref().map_or(0, held)
    }

    /// Whether it may serve a call of this context.
    pub(crate) fn can_serve(&self, context: &CallContext) -> bool {
        self.served < context.reuse
            && (Arc::ptr_eq(&self.env, &context.env) || self.env == context.env)
    }

    async fn instantiate(
        function: &Function,
        context: &CallContext,
        shared: &Arc<Shared>,
    ) -> Result<Self, CallError> {
        let engine = function.engine();
        let id = engine.next_instance();
        shared.update_stats(|stats| stats.instance = Some(id));
        let (mut drops, mut retried) = (FIRST_DROPS, false);
        loop {
            let hooks = hooks(function, context, id, shared);
            let state = GuestState::new(context, shared.clone(), hooks);
            let mut store = Store::new(engine.wasmtime(), state);
            store.limiter(|state| &mut state.limiter);
            store.set_epoch_deadline(FIRST_SLICE);
            store.epoch_deadline_callback(GuestState::end_slice);
            store.set_hostcall_fuel(HOSTCALL_FUEL);
            store.set_max_component_handles(MAX_HANDLES);
            begin_output(&store, context, id);
            match function.pre().instantiate_async(&mut store).await {
                Ok(proxy) => {
                    return Ok(Self {
                        store,
                        proxy,
                        id,
                        env: context.env.clone(),
                        served: 0,
                        idle_since: shared.started,
                        resource_guard: None,
                    });
                }
                // Idle instances are only a convenience; a call that waits for room goes before them. Few are dropped at first, so that one full
                // pool does not cost all functions their warm instances; then more, since this function may need several places of the pool.
                Err(error)
                    if error.is::<PoolConcurrencyLimitError>()
                        // Once even if none was idle: another call may have dropped the last ones for itself and for this.
                        && (engine.drop_idle_oldest(drops) > 0 || !retried) =>
                {
                    drops = drops.saturating_mul(2);
                    retried = true;
                }
                // For example, no more memory maps: not the function's fault.
                Err(error) if error.is::<std::io::Error>() => {
                    return Err(CallError::Overloaded {
                        reason: format!("the system has no room for an instance: {error:#}"),
                    });
                }
                Err(error) => return Err(call_error(&error, &store, shared)),
            }
        }
    }

    async fn acquire(
        function: &Function,
        context: &mut CallContext,
        shared: &Arc<Shared>,
    ) -> Result<Self, CallError> {
        if context.reuse > 1
            && let Some(mut instance) = function.take_idle(context)
        {
            let id = instance.id;
            context.resource_guard = None;
            shared.update_stats(|stats| {
                stats.instance = Some(id);
                stats.reused = true;
            });
            let hooks = hooks(function, context, id, shared);
            instance
                .store
                .data_mut()
                .begin_call(context, shared.clone(), hooks);
            instance.store.set_epoch_deadline(FIRST_SLICE);
            begin_output(&instance.store, context, id);
            return Ok(instance);
        }
        let resource_guard = context.resource_guard.take();
        let mut instance = Self::instantiate(function, context, shared).await?;
        instance.resource_guard = resource_guard;
        Ok(instance)
    }

    async fn handle(
        &mut self,
        request: http::Request<RequestBody>,
        shared: &Arc<Shared>,
    ) -> Result<(), CallError> {
        self.served += 1;
        let broken = |error: wasmtime::Error| CallError::BadRequest {
            reason: format!("{error:#}"),
        };
        let scheme = match request.uri().scheme_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        };
        let request = request.map(|body| GuestRequestBody::new(body, shared.clone()));
        let mut http = self.store.data_mut().http();
        let request = http.new_incoming_request(scheme, request).map_err(broken)?;
        let head = shared.clone();
        let out = http
            .new_response_outparam_from_callback(move |response| head.set_head(response))
            .map_err(broken)?;
        let handled = self
            .proxy
            .wasi_http_incoming_handler()
            .call_handle(&mut self.store, request, out)
            .await;
        match handled {
            Ok(()) if shared.head_set() => Ok(()),
            Ok(()) if shared.body_exceeded() => Err(too_large(shared)),
            Ok(()) => Err(CallError::NoResponse {
                reason: "it returned without setting a response".to_owned(),
            }),
            Err(error) => Err(call_error(&error, &self.store, shared)),
        }
    }

    fn memory_peak(&self) -> u64 {
        self.store.data().limiter.peak()
    }
}

fn begin_output(store: &Store<GuestState>, context: &CallContext, id: InstanceId) {
    store.data().output.begin_call(
        context.log.clone(),
        id,
        context.limits.log_line,
        context.limits.log_total,
    );
}

/// Records a cancellation if it is dropped before the guest has ended.
struct CancelOnDrop<'a>(&'a Shared);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish(Err(CallError::Cancelled));
    }
}

/// Runs one call to its end.
pub(crate) async fn serve(
    function: Arc<Function>,
    mut context: CallContext,
    request: http::Request<RequestBody>,
    shared: Arc<Shared>,
) {
    // There are two guards: this one for a guest that is dropped while its instance is being made …
    let _making = CancelOnDrop(&shared);
    let mut instance = match Instance::acquire(&function, &mut context, &shared).await {
        Ok(instance) => instance,
        Err(error) => return shared.finish(Err(error)),
    };
    let ready = shared.started.elapsed();
    shared.update_stats(|stats| stats.instantiate = ready);
    // … and this one, declared after the instance and so dropped before it, for a guest that is dropped while it runs.
    let _running = CancelOnDrop(&shared);
    let outcome = instance.handle(request, &shared).await;
    shared.count_cpu();
    shared.update_stats(|stats| {
        stats.exec = shared.started.elapsed().saturating_sub(ready);
        stats.memory_peak = instance.memory_peak();
    });
    if outcome.is_err() {
        // Recorded before the instance is dropped: a body that ends because of that must not pass for a complete one.
        shared.finish(outcome);
        instance.store.data_mut().output.end_call();
        return;
    }
    // Recorded after the instance is kept or dropped: a call that ended successfully then leaves nothing to clean up.
    let state = instance.store.data_mut();
    state.output.end_call();
    if instance.served < context.reuse && state.end_call() {
        instance.idle_since = Instant::now();
        function.keep_idle(instance);
    } else {
        drop(instance);
    }
    shared.finish(outcome);
}

fn too_large(shared: &Shared) -> CallError {
    CallError::RequestTooLarge {
        limit: shared.limits.body,
    }
}

/// The call's error for an error of the engine.
fn call_error(error: &wasmtime::Error, store: &Store<GuestState>, shared: &Shared) -> CallError {
    if let Some(termination) = error.downcast_ref::<Termination>() {
        return match termination {
            Termination::CpuLimit => CallError::CpuLimit {
                limit: shared.limits.cpu_time,
            },
            Termination::Timeout => CallError::Timeout {
                limit: shared.limits.timeout,
            },
            Termination::Held => CallError::Trapped {
                reason: describe(error),
            },
        };
    }
    if let Some(limit) = error.downcast_ref::<PoolConcurrencyLimitError>() {
        return CallError::Overloaded {
            reason: limit.to_string(),
        };
    }
    if store.data().limiter.refused() {
        return CallError::MemoryLimit {
            limit: shared.limits.memory,
            reason: describe(error),
        };
    }
    if shared.body_exceeded() {
        return too_large(shared);
    }
    CallError::Trapped {
        reason: describe(error),
    }
}

/// The trap and the guest's innermost functions, in one line.
fn describe(error: &wasmtime::Error) -> String {
    let mut text = if let Some(exit) = error.downcast_ref::<I32Exit>() {
        format!("it exited with status {}", exit.0)
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        trap.to_string()
    } else {
        error.root_cause().to_string()
    };
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        let names = frames::names(backtrace);
        if !names.is_empty() {
            text.push_str(" in ");
            text.push_str(&names);
        }
    }
    text
}
