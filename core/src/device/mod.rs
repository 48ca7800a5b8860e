//! GPU devices: what a function requests, what an instance is granted, and what a node reports about them.
//!
//! A *device* is a whole GPU or a MIG instance of one. A *slice* is what one instance holds of a device: part of its memory and, if the
//! function requests it, part of its cores. Which device an instance gets is decided elsewhere; these are the data types that processes
//! exchange about it.

mod grant;
mod request;
mod status;

pub use grant::{DeviceGrant, RESERVED_PREFIXES, is_reserved};
pub use request::{GpuBounds, GpuModel, GpuRequest, Percent};
pub use status::{DeviceKind, DeviceState, DeviceStatus, SliceStatus};
