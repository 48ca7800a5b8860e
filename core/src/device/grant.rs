//! The device binding with which an instance is started, so that it sees its own slices and no other device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::unit::MebiBytes;

/// Prefixes of environment variables that only the node sets. A function that could set one would widen its binding: the devices that it
/// sees, or its share of one.
pub const RESERVED_PREFIXES: [&str; 3] = ["CUDA_", "FDN_", "NVIDIA_"];

/// Whether only the node may set a variable with this name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A slice of a device, bound to an instance before it starts. An instance with slices of several devices has one grant for each, all
/// with the same variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGrant {
    /// The device as its driver calls it: `GPU-…`, `MIG-…`, or a name of the simulation.
    pub device: String,
    /// The amount of its memory that is bound.
    pub memory: MebiBytes,
    /// Environment variables that enforce the binding: visible devices, MPS limits.
    pub env: BTreeMap<String, String>,
    /// Folders that must be mounted in the instance under the same path, such as the MPS daemon's pipes.
    pub folders: BTreeSet<PathBuf>,
    /// Whether the container engine must be asked for the device; `false` for a simulated one, which no engine knows.
    pub physical: bool,
}
