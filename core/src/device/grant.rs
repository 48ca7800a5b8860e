//! What an instance is started with, so that it sees its slices and no other device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::unit::MebiBytes;

/// How variables begin that only the node sets. A function that could set one would widen what was bound to it: the devices that it sees, or its
/// share of one.
pub const RESERVED_PREFIXES: [&str; 3] = ["CUDA_", "FDN_", "NVIDIA_"];

/// Whether only the node sets variables of this name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A slice of a device that was bound to an instance before its start. An instance with slices of several devices has one for each,
/// all with the same variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGrant {
    /// The device as its driver calls it: `GPU-…`, `MIG-…`, or a name of the simulation.
    pub device: String,
    /// How much of its memory is bound.
    pub memory: MebiBytes,
    /// Environment variables that make the binding hold: visible devices, MPS limits.
    pub env: BTreeMap<String, String>,
    /// Folders that must be visible inside under the same path, such as the MPS daemon's pipes.
    pub folders: BTreeSet<PathBuf>,
    /// Whether the engine is asked for the device (`false` for a simulated one, which no engine knows).
    pub physical: bool,
}
