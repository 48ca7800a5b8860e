//! GPU devices of a node: discovered, watched, and bound to instances slice by slice.
//!
//! - [`discovery`] finds devices and reports their faults: through NVML, or simulated by settings.
//! - [`allocations`] tracks which instance holds which slice: a pure state machine over the packed words of [`fdn_scheduling::resource`], which
//!   filters, scores and chooses.
//! - [`store`] keeps the allocation table on disk, so that bindings survive the agent.
//! - [`grant`] turns a binding into what an instance is started with.
//! - [`Devices`] combines them: every change is on disk before anybody acts on it.
//!
//! A device never has more memory bound than it has. The instances that really run are authoritative: after a restart the allocation table is
//! reconciled with them, and an instance that does not fit must end before its device is assigned again.

pub mod allocations;
pub mod discovery;
mod error;
pub mod grant;
pub mod health;
mod metrics;
mod service;
mod settings;
pub mod store;

pub use allocations::{AllocationOptions, AllocationTable, Binding, RunningBinding};
pub use discovery::{Device, Discovery};
pub use error::{BindError, DiscoveryError, StoreError};
pub use metrics::DeviceMetrics;
pub use service::{Devices, Event, Parts, WatchGuard};
pub use settings::{DeviceOrder, DevicesSettings, ScoreName, SimulatedGroup};
