//! The machine changes: devices appear, vanish, fail, come back.

use std::collections::BTreeSet;

use fdn_core::{DeviceId, InstanceId, Timestamp};

use super::{AllocationTable, Entry, Outage};
use crate::discovery::Device;
use crate::error::BindError;

/// Who has to do with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Devices that are other than before.
    pub devices: BTreeSet<DeviceId>,
    /// Instances that hold slices of them, and should go on elsewhere.
    pub instances: BTreeSet<InstanceId>,
}

impl AllocationTable {
    /// The machine has these devices now. An instance whose device is gone, or no longer has room for it, is lost: it is among the
    /// affected, has to end, and until then its devices give nothing out.
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
                    let entry = Entry {
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
            self.forget_gone();
        }
        let instances = self.lost().filter(|lost| !before.contains(lost)).collect();
        Ok(Affected {
            devices: changed,
            instances,
        })
    }

    /// A device, or all MIG instances of a GPU, gives nothing out any more. Who holds slices of it keeps them and is told of.
    pub fn out_of_service(&mut self, device: &DeviceId, reason: &str, at: Timestamp) -> Affected {
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

    /// A device, or all MIG instances of a GPU, gives slices out again.
    pub fn back_in_service(&mut self, device: &DeviceId) -> Affected {
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

    /// The machine has been started anew: what was wrong with its devices is to be found out again.
    pub fn forget_outages(&mut self) {
        for entry in self.devices.values_mut() {
            entry.outage = None;
        }
    }

    fn affected(&self, devices: BTreeSet<DeviceId>) -> Affected {
        let holdings = self.bindings.iter();
        let holds = holdings.filter(|(_, h)| !h.bound.devices.is_disjoint(&devices));
        Affected {
            instances: holds.map(|(instance, _)| *instance).collect(),
            devices,
        }
    }

    /// The device itself and what is cut out of it.
    fn family(&self, device: &DeviceId) -> BTreeSet<DeviceId> {
        let entries = self.devices.iter();
        let own = entries
            .filter(|(id, entry)| *id == device || entry.device.parent.as_ref() == Some(device));
        own.map(|(id, _)| id.clone()).collect()
    }
}
