//! The host's state of one instance: the data of its store.

use std::sync::Arc;

use fdn_core::api::LogStream;
use wasmtime::component::ResourceTable;
use wasmtime::{StoreContextMut, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::http::types::{Method, Scheme};
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::p2::types::{
    HostIncomingRequest, HostOutgoingRequest, HostOutgoingResponse,
};
use wasmtime_wasi_http::{FieldMap, WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::call::{CallContext, Shared, SliceStatus};
use crate::limiter::Limiter;
use crate::log::Output;
use crate::outbound::{BODY_MAX, Hooks};

/// The most resources (bodies, headers, streams, timers) that an instance may hold.
const MAX_RESOURCES: usize = 8192;
/// An instance that holds more than this between two calls leaks them and is not reused. Guests with garbage collection hold some.
const MAX_IDLE_RESOURCES: usize = 512;
/// The most memory of this process, in bytes, that header maps, and requests and responses that were not sent, may take: none of it counts as the
/// guest's own memory. All requests that a call may send fit, each with headers and a body. It is checked once in several slices, so that a guest
/// may go beyond it by what it copies in those.
const HELD_MAX: usize = 80 << 20;
/// How many slices there are to a check of what the host holds, which takes longer the more that is.
const SLICES_PER_CHECK: u32 = 8;
/// So many header maps, requests and responses count with what is in them alone.
const MAPS_BY_CONTENTS: usize = 512;
/// What each further one counts besides: a header map keeps the room for what was removed from it, about this much at most, and does not tell how much.
const EMPTIED_MAP: usize = 512 << 10;
/// What a body that was not sent holds at most: what was written to it, and its trailers.
const UNSENT_BODY: usize = BODY_MAX + FIELD_SIZE;
/// What a header map holds for each header besides its text, about.
const HEADER_OVERHEAD: usize = 104;
/// The most bytes of one list or string that a guest passes to the host.
pub(crate) const HOSTCALL_FUEL: usize = 4 << 20;
/// The most component-model handles.
pub(crate) const MAX_HANDLES: usize = 16_384;
/// The most memory of one header map, in bytes, including its bookkeeping.
const FIELD_SIZE: usize = 128 << 10;
/// The most random bytes in one request.
const MAX_RANDOM: u64 = 1 << 20;
/// Ticks until the first check of a guest. With one, a guest that starts just before a tick would be interrupted.
pub(crate) const FIRST_SLICE: u64 = 2;
const NEXT_SLICE: u64 = 1;

/// Why the host ended a guest at the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Termination {
    CpuLimit,
    Timeout,
    /// It left too much with the host.
    Held,
}

impl std::fmt::Display for Termination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CpuLimit => "out of CPU time",
            Self::Timeout => "out of time",
            Self::Held => "its headers, and its requests and responses that were not sent, take more than 80MiB",
        })
    }
}

impl std::error::Error for Termination {}

/// The data of a store.
pub(crate) struct GuestState {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    pub(crate) hooks: Hooks,
    pub(crate) limiter: Limiter,
    pub(crate) output: Output,
    /// The running call, or the last one.
    call: Arc<Shared>,
    /// The number of slices so far.
    slices: u32,
}

impl GuestState {
    pub(crate) fn new(context: &CallContext, call: Arc<Shared>, hooks: Hooks) -> Self {
        let output = Output::default();
        let mut wasi = WasiCtx::builder();
        // The builder inherits nothing from this process: no files, arguments, environment, or standard streams.
        wasi.envs(&context.env)
            .stdout(output.stream(LogStream::Stdout))
            .stderr(output.stream(LogStream::Stderr))
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .allow_blocking_current_thread(false)
            .max_random_size(MAX_RANDOM);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELD_SIZE);
        let mut table = ResourceTable::with_capacity(16);
        table.set_max_capacity(MAX_RESOURCES);
        Self {
            table,
            wasi: wasi.build(),
            http,
            hooks,
            limiter: Limiter::new(context.limits.memory.as_bytes()),
            output,
            call,
            slices: 0,
        }
    }

    /// Prepares an idle instance's state for another call.
    pub(crate) fn begin_call(&mut self, context: &CallContext, call: Arc<Shared>, hooks: Hooks) {
        self.limiter.begin_call(context.limits.memory.as_bytes());
        self.hooks = hooks;
        self.call = call;
    }

    /// Cuts all ties to the call that has ended, before the instance is kept. Returns whether it may serve another call: not if a
    /// response body is still open in it, nor if it leaks resources or much memory of the host.
    pub(crate) fn end_call(&mut self) -> bool {
        self.hooks.end_call();
        let mut held = 0;
        for entry in self.table.iter_mut() {
            held += 1;
            if entry.is::<HostOutgoingBody>() {
                return false;
            }
            if let Some(request) = entry.downcast_mut::<HostIncomingRequest>() {
                request.body = None;
            }
        }
        held <= MAX_IDLE_RESOURCES && held_bytes(&mut self.table) <= HELD_MAX
    }

    /// At the end of a slice: ends the guest if a limit is exceeded, otherwise makes it yield its thread.
    pub(crate) fn end_slice(
        mut store: StoreContextMut<'_, Self>,
    ) -> wasmtime::Result<UpdateDeadline> {
        let state = store.data_mut();
        state.slices = state.slices.wrapping_add(1);
        if state.slices.is_multiple_of(SLICES_PER_CHECK) && held_bytes(&mut state.table) > HELD_MAX
        {
            return Err(Termination::Held.into());
        }
        let call = &state.call;
        if std::time::Instant::now() >= call.deadline() {
            return Err(Termination::Timeout.into());
        }
        let SliceStatus::Exhausted(total) = call.check_slice() else {
            return Ok(UpdateDeadline::Continue(NEXT_SLICE));
        };
        if total >= call.limits.cpu_time {
            return Err(Termination::CpuLimit.into());
        }
        if !call.is_heavy() {
            call.mark_slice_used();
        }
        Ok(UpdateDeadline::Yield(NEXT_SLICE))
    }
}

/// At most how many bytes of this process the header maps, requests and responses in a table hold. Those that were sent are no longer in it.
fn held_bytes(table: &mut ResourceTable) -> usize {
    let (mut maps, mut bytes) = (0_usize, 0_usize);
    for entry in table.iter_mut() {
        bytes += if let Some(fields) = entry.downcast_ref::<FieldMap>() {
            header_bytes(fields)
        } else if let Some(request) = entry.downcast_ref::<HostOutgoingRequest>() {
            request_bytes(request)
        } else if let Some(response) = entry.downcast_ref::<HostOutgoingResponse>() {
            header_bytes(&response.headers) + response.body.as_ref().map_or(0, |_| UNSENT_BODY)
        } else {
            continue;
        };
        maps += 1;
    }
    bytes + maps.saturating_sub(MAPS_BY_CONTENTS) * EMPTIED_MAP
}

fn header_bytes(fields: &FieldMap) -> usize {
    let headers = fields.iter();
    headers
        .map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD)
        .sum()
}

fn request_bytes(request: &HostOutgoingRequest) -> usize {
    let method = match &request.method {
        Method::Other(name) => name.len(),
        _ => 0,
    };
    let scheme = match &request.scheme {
        Some(Scheme::Other(name)) => name.len(),
        _ => 0,
    };
    let texts = [&request.authority, &request.path_with_query];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let body = request.body.as_ref().map_or(0, |_| UNSENT_BODY);
    method + scheme + texts + header_bytes(&request.headers) + body
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: &mut self.table,
            hooks: &mut self.hooks,
        }
    }
}
