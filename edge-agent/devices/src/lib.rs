//! GPU devices of a node: found, watched, and bound to instances slice by slice.
//!
//! - [`discovery`] finds devices and hears of their faults: through NVML, or made up by settings.
//! - [`allocations`] is which instance holds which slice: a pure state machine over the packed words of [`fdn_scheduling::resource`], which
//!   filters, scores and chooses.
//! - [`store`] keeps the allocation table on disk, so that bindings survive the agent.
//! - [`grant`] makes of a binding what an instance is started with.
//! - [`Devices`] holds them together: every change is on disk before anybody acts on it.
//!
//! Never is more memory of a device bound than it has. What really runs is always right: after a restart the allocation table is brought in line
//! with it, and an instance that cannot be brought in line has to end before its device is given out again.

pub mod allocations;
pub mod discovery;
mod error;
pub mod grant;
pub mod health;
mod metrics;
mod service;
mod settings;
pub mod store;

pub use allocations::{AllocationOptions, AllocationTable, Bound, Running};
pub use discovery::{Device, Discovery};
pub use error::{BindError, DiscoveryError, StoreError};
pub use metrics::DeviceMetrics;
pub use service::{Devices, Event, Parts, WatchGuard};
pub use settings::{DeviceOrder, DevicesSettings, ScoreName, SimulatedGroup};
