//! WebAssembly components with `wasi:http`: validated, compiled, run within limits.
//!
//! The controller uses [`validate`] to judge uploads; the edge agent compiles with [`CompileWorker`], loads with
//! [`Engine::load`] and serves with [`Function::call`]. Both read archives of container images with [`image`]. Nothing here knows about
//! apps, tenants, routing or the wire.
//!
//! The life of a call: the guest is polled on the caller's own task first, so that a small function never crosses a thread.
//! Once it has used its first slice of about a millisecond of CPU, it moves to a bounded pool of background threads, where
//! guests share a thread in slices. An endless loop therefore delays no light function. [`call`] tells the rest.

mod artifact;
pub mod call;
pub mod compile;
mod engine;
mod error;
mod function;
mod guest;
mod heavy;
pub mod image;
pub mod inspect;
mod limiter;
mod log;
mod outbound;
pub mod probe;
mod sniff;
mod state;
mod ticker;
mod trusted;
pub mod validate;

pub use artifact::{checksum_file, compiled_file_name, is_leftover};
pub use call::{
    Call, CallContext, CallStats, Hold, Limits, RequestBody, RequestBodySender, ResponseBody,
    StatsHandle,
};
pub use compile::{
    COMPILE_WORKER_ARG, CacheUse, CompileCache, CompileError, CompileReport, CompileWorker,
    Compiler, Incoming, IncomingPack, PACKS_MAX, compile_in_process, compile_worker_main,
};
pub use engine::{Engine, EngineOptions, EngineStats};
pub use error::{CallError, EngineError, LoadError};
pub use function::Function;
pub use log::{LogSink, MemoryLog, NoLog};
pub use outbound::Network;
