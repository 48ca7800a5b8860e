//! The public view of the allocation table.

use fdn_core::device::{DeviceState, DeviceStatus, SliceStatus};
use fdn_core::{DeviceId, MebiBytes};

use super::{AllocationTable, DeviceEntry};

impl AllocationTable {
    /// Every known device: those that the machine has, and gone ones with bindings or a remembered outage.
    #[must_use]
    pub fn status(&self) -> Vec<DeviceStatus> {
        self.devices.values().map(|e| self.status_of(e)).collect()
    }

    fn status_of(&self, entry: &DeviceEntry) -> DeviceStatus {
        let device = &entry.device;
        let entries = self.bindings.values();
        let held = entries.filter(|h| !h.lost && h.bound.devices.contains(&device.id));
        DeviceStatus {
            id: device.id.clone(),
            kind: device.kind,
            model: device.model.clone(),
            parent: device.parent.clone(),
            memory_mib: device.memory,
            bound_mib: self.bound(&device.id),
            state: self.state(entry),
            slices: held
                .map(|entry| SliceStatus {
                    instance: entry.bound.instance,
                    app: entry.bound.app.clone(),
                    memory_mib: entry.bound.memory,
                    cores: entry.bound.cores,
                })
                .collect(),
        }
    }

    fn state(&self, entry: &DeviceEntry) -> DeviceState {
        let (reason, since) = match &entry.outage {
            Some(outage) => (outage.reason.clone(), outage.since),
            None if !entry.present => ("it is gone".to_owned(), fdn_core::Timestamp(0)),
            None if self.is_held_by_lost(&entry.device.id) => (
                "an instance that lost its slice has not ended".to_owned(),
                fdn_core::Timestamp(0),
            ),
            None => return DeviceState::InService,
        };
        DeviceState::OutOfService { reason, since }
    }

    /// The memory bound on a device, in whole units.
    #[must_use]
    pub fn bound(&self, device: &DeviceId) -> MebiBytes {
        let mut banks = self.banks.iter();
        banks
            .find_map(|bank| bank.bound(device))
            .unwrap_or_default()
    }

    /// The memory that a scheduler may still assign: free on devices in service; and the memory of all devices.
    #[must_use]
    pub fn totals(&self) -> (MebiBytes, MebiBytes) {
        let mut totals = (MebiBytes(0), MebiBytes(0));
        for entry in self.devices.values().filter(|entry| entry.present) {
            let all = entry.device.memory;
            totals.1 = totals.1.saturating_add(all);
            if self.state(entry).is_in_service() {
                let free = all.saturating_sub(self.bound(&entry.device.id));
                totals.0 = totals.0.saturating_add(free);
            }
        }
        totals
    }

    /// The number of bindings, including lost ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Whether there are no bindings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }
}
