//! Validates, compiles and runs WebAssembly components with `wasi:http`, within limits.
//!
//! The controller checks uploads with [`validate`]; the edge agent compiles with [`CompileWorker`], loads with
//! [`Engine::load`] and serves with [`Function::call`]. Both read archives of container images with [`image`]. Nothing in this crate knows about
//! apps, tenants, routing or the wire.
//!
//! A call first runs on the caller's own task, so that a small function never crosses a thread.
//! Once the guest has used its first slice of about a millisecond of CPU, it moves to a bounded pool of background threads, where
//! guests share a thread in slices. An endless loop therefore delays no light function. Details are in [`call`].

mod artifact;
pub mod call;
pub mod compile;
mod engine;
mod error;
mod frames;
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
    Call, CallContext, CallStats, Limits, RequestBody, RequestBodySender, ResourceGuard,
    ResponseBody, StatsHandle,
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
