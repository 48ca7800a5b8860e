//! Running copies of functions on one node, on any runtime.
//!
//! A [`Runtime`] makes [`Instance`]s: WebAssembly components in this process, containers of a Docker engine, pods of a
//! Kubernetes cluster. Higher layers (gateway, autoscaler, device binding) know only these two traits, and the contract
//! list in this crate's tests is run against every implementation, including the fake. Nothing here decides where an instance
//! should run or whether there is room for it: the node's ledger has reserved its resources before [`Runtime::start`].
//!
//! Rules for every implementation:
//! - `start` returns when the instance answers, or with the reason and the last log lines; nothing is left behind then, or the error says so
//!   ([`StartError::Remains`]);
//! - a call that failed says whether the instance may have seen the request ([`CallFailure`]);
//! - everything that outlives this process carries its owner (cluster and node) and is found again by `adopt`, and nothing
//!   of another owner is ever touched;
//! - no log, body or list is held without a bound.

mod body;
mod call;
pub mod docker;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod instance;
pub mod kubernetes;
mod link;
mod log;
mod metrics;
mod runtime;
mod spec;
mod startup;
mod state;
pub mod wasm;

pub use body::{Body, BoxError, Request, Response, empty_body, full_body};
pub use call::{CallFailure, CallGuard, CallOver};
pub use error::{InstanceError, Remains, RuntimeError, StartError};
pub use instance::Instance;
pub use link::LinkLimits;
pub use link::health::HealthChecks;
pub use log::{LogLimits, LogLine, LogSink, LogTail, NoSink};
pub use metrics::Metrics;
pub use runtime::{Capabilities, Collected, Expectation, Kind, Owner, Runtime};
pub use spec::{
    Credentials, DEFAULT_PORT, Description, DeviceGrant, Image, ImageSource, Outbound, Readiness,
    Secrets, StartSpec,
};
pub use state::{Exit, ExitReason, InstanceState};
