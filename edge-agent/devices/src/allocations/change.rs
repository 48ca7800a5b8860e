//! Changes of the machine: devices appear, vanish, fail and recover.

use std::collections::BTreeSet;

use fdn_core::{DeviceId, InstanceId, Timestamp};

use super::{AllocationTable, DeviceEntry, Outage};
use crate::discovery::Device;
use crate::error::BindError;

/// The devices and instances affected by a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// The devices that changed.
    pub devices: BTreeSet<DeviceId>,
    /// The instances that hold slices of them and should move elsewhere.
    pub instances: BTreeSet<InstanceId>,
}

impl AllocationTable {
    /// Sets the devices that the machine has now. An instance whose device is gone, or no longer has room for it, is lost: it is among the
    /// affected and must end; until then its devices provide nothing.
    ///
    /// # Errors
    /// [`BindError::Contradiction`], which would be a bug.
    pub fn inventory(&mut self, found: Vec<Device>) -> Result<Affected, BindError> {
        let before: BTreeSet<InstanceId> = self.lost().collect();
        let mut changed = BTreeSet::new();
        let ids: BTreeSet<DeviceId> = found.iter().map(|device| device.id.clone()).collect();
        for (id, entry) in &mut self.devices {
            if entry.present && !ids.contains(id) {
                entry.present = false;
                changed.insert(id.clone());
            }
        }
        for device in found {
            let known = self.devices.get_mut(&device.id);
            match known {
                Some(entry) if entry.present && entry.device == device => {}
                Some(entry) => {
                    changed.insert(device.id.clone());
                    entry.present = true;
                    entry.device = device;
                }
                None => {
                    changed.insert(device.id.clone());
                    let entry = DeviceEntry {
                        device: device.clone(),
                        present: true,
                        outage: None,
                    };
                    self.devices.insert(device.id, entry);
                }
            }
        }
        if !changed.is_empty() {
            let order: Vec<InstanceId> = self.bindings.keys().copied().collect();
            self.rebuild(&order)?;
            self.prune_gone();
        }
        let instances = self.lost().filter(|lost| !before.contains(lost)).collect();
        Ok(Affected {
            devices: changed,
            instances,
        })
    }

    /// Takes a device, or all MIG instances of a GPU, out of service. Instances that hold slices of it keep them and are returned.
    pub fn take_out_of_service(
        &mut self,
        device: &DeviceId,
        reason: &str,
        at: Timestamp,
    ) -> Affected {
        let devices = self.family(device);
        for id in &devices {
            if let Some(entry) = self.devices.get_mut(id)
                && entry.outage.is_none()
            {
                entry.outage = Some(Outage {
                    reason: reason.to_owned(),
                    since: at,
                });
            }
        }
        self.affected(devices)
    }

    /// Puts a device, or all MIG instances of a GPU, back into service.
    pub fn return_to_service(&mut self, device: &DeviceId) -> Affected {
        let devices = self.family(device);
        for id in &devices {
            if let Some(entry) = self.devices.get_mut(id) {
                entry.outage = None;
            }
        }
        Affected {
            devices,
            instances: BTreeSet::new(),
        }
    }

    /// Clears all outages after a restart of the machine: remaining faults will be reported again.
    pub fn forget_outages(&mut self) {
        for entry in self.devices.values_mut() {
            entry.outage = None;
        }
    }

    fn affected(&self, devices: BTreeSet<DeviceId>) -> Affected {
        let entries = self.bindings.iter();
        let holds = entries.filter(|(_, h)| !h.bound.devices.is_disjoint(&devices));
        Affected {
            instances: holds.map(|(instance, _)| *instance).collect(),
            devices,
        }
    }

    /// The device itself and the MIG instances that are parts of it.
    fn family(&self, device: &DeviceId) -> BTreeSet<DeviceId> {
        let entries = self.devices.iter();
        let own = entries
            .filter(|(id, entry)| *id == device || entry.device.parent.as_ref() == Some(device));
        own.map(|(id, _)| id.clone()).collect()
    }
}
