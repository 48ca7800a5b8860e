//! What an instance is started with, so that it sees its slices and no other device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::unit::MebiBytes;

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
