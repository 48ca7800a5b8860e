//! The form of the allocation table on disk.

use fdn_core::InstanceId;
use serde::{Deserialize, Serialize};

use super::{AllocationOptions, AllocationTable, Binding, BindingEntry, DeviceEntry, Outage};
use crate::discovery::Device;
use crate::error::BindError;

/// The part of an allocation table that survives the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAllocations {
    /// The boot of the machine that it belongs to; outages of devices do not survive a restart of the machine.
    #[serde(default)]
    pub boot: String,
    devices: Vec<SavedDevice>,
    bindings: Vec<SavedBinding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedDevice {
    #[serde(flatten)]
    device: Device,
    present: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outage: Option<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedBinding {
    #[serde(flatten)]
    bound: Binding,
    lost: bool,
}

impl AllocationTable {
    /// The state to keep on disk.
    #[must_use]
    pub fn to_saved(&self, boot: &str) -> SavedAllocations {
        let device = |entry: &DeviceEntry| SavedDevice {
            device: entry.device.clone(),
            present: entry.present,
            outage: entry.outage.clone(),
        };
        let binding = |entry: &BindingEntry| SavedBinding {
            bound: entry.bound.clone(),
            lost: entry.lost,
        };
        SavedAllocations {
            boot: boot.to_owned(),
            devices: self.devices.values().map(device).collect(),
            bindings: self.bindings.values().map(binding).collect(),
        }
    }

    /// Restores the table. A saved binding that contradicts the rest (for instance of a device with less memory than is bound, because the file
    /// was edited) becomes lost instead of being trusted.
    ///
    /// # Errors
    /// [`BindError::Contradiction`], which would be a bug.
    pub fn from_saved(
        options: AllocationOptions,
        saved: SavedAllocations,
    ) -> Result<Self, BindError> {
        let mut allocations = Self::new(options);
        for saved in saved.devices {
            let entry = DeviceEntry {
                device: saved.device,
                present: saved.present,
                outage: saved.outage,
            };
            allocations.devices.insert(entry.device.id.clone(), entry);
        }
        for saved in saved.bindings {
            let entry = BindingEntry {
                bound: saved.bound,
                lost: saved.lost,
            };
            allocations.bindings.insert(entry.bound.instance, entry);
        }
        let order: Vec<InstanceId> = allocations.bindings.keys().copied().collect();
        allocations.rebuild(&order)?;
        Ok(allocations)
    }
}
