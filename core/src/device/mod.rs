//! GPU devices: what a function asks for, what an instance is given, and what a node tells of them.
//!
//! A *device* is a whole GPU or an instance that MIG cut out of one. A *slice* is what one instance holds of a device: some of its
//! memory and, if the function asks for it, some of its cores. Which device an instance gets is decided elsewhere; this is what the
//! processes say about it.

mod grant;
mod request;
mod status;

pub use grant::{DeviceGrant, RESERVED_PREFIXES, is_reserved};
pub use request::{GpuBounds, GpuModel, GpuRequest, Percent};
pub use status::{DeviceKind, DeviceState, DeviceStatus, SliceStatus};
