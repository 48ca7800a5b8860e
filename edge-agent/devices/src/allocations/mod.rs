//! Which instance holds which slices of the node's devices: a pure state machine.
//!
//! **Problem.** Devices are shared in slices. Instances start, end and crash, the agent restarts, and devices fail, vanish and return with
//! another size. Whatever the order of these events, a device must never have more memory bound than it has, and what an instance still uses must
//! not be given to another.
//!
//! | state of a binding | counts as bound | next |
//! | --- | --- | --- |
//! | held | yes | [`AllocationTable::unbind`]; becomes lost when its device vanishes or no longer has room for it |
//! | lost | no; its devices provide nothing meanwhile | [`AllocationTable::unbind`], when the instance has ended |
//!
//! **Reconciliation.** The instances that really run are authoritative ([`AllocationTable::reconcile`]): a binding whose instance does not run is
//! released; an instance that runs without a binding gets one on the devices that it uses, and if there is no room for that, it is lost and must
//! end.
//!
//! **Service.** A device out of service keeps its bindings and provides nothing; the instances that hold slices of it are reported, and the
//! caller starts those elsewhere.
//!
//! **Invariants.** On a device, the memory of held bindings, in whole units, is at most the device's own; the same holds for cores. An instance
//! has at most one binding. A refused call changes nothing. There is no clock and no I/O in here.

mod bank;
mod change;
mod reconcile;
mod saved;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::device::{GpuRequest, Percent};
use fdn_core::{AppName, DeviceId, InstanceId, MebiBytes, Timestamp};
use fdn_scheduling::resource::{Choice, DeviceSet, MemoryUnit, ResourceError};
use serde::{Deserialize, Serialize};

use crate::discovery::Device;
use crate::error::BindError;
use crate::settings::{DeviceOrder, ScoreName};
use bank::{Bank, SliceDemand};

pub use change::Affected;
pub use reconcile::ReconcileReport;
pub use saved::SavedAllocations;

/// The options of an allocation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationOptions {
    /// The unit of memory in which slices are bound.
    pub unit: MemoryUnit,
    /// The maximum number of bindings.
    pub max_bindings: usize,
    /// How banks are compared.
    pub score: ScoreName,
    /// Which device of a bank is chosen.
    pub order: DeviceOrder,
}

/// The binding of an instance: the same amount of each of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The instance.
    pub instance: InstanceId,
    /// The app that it serves.
    pub app: AppName,
    /// The memory of each device, as requested.
    pub memory: MebiBytes,
    /// The share of each device's cores, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Percent>,
    /// The devices, in order.
    pub devices: BTreeSet<DeviceId>,
}

impl Binding {
    const fn slice_demand(&self) -> SliceDemand {
        SliceDemand {
            memory: self.memory,
            cores: self.cores,
        }
    }
}

/// An instance that really runs, with the slices that it was started with, as the runtime reports it.
pub type RunningBinding = Binding;

/// Why a device is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outage {
    reason: String,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct DeviceEntry {
    device: Device,
    /// Whether the machine has the device now.
    present: bool,
    outage: Option<Outage>,
}

#[derive(Clone, Debug)]
struct BindingEntry {
    bound: Binding,
    lost: bool,
}

/// The allocation table. See the module's documentation.
#[derive(Clone, Debug)]
pub struct AllocationTable {
    options: AllocationOptions,
    devices: BTreeMap<DeviceId, DeviceEntry>,
    bindings: BTreeMap<InstanceId, BindingEntry>,
    /// Derived from the devices that are present and the bindings that are held.
    banks: Vec<Bank>,
}

impl AllocationTable {
    /// An allocation table without devices.
    #[must_use]
    pub const fn new(options: AllocationOptions) -> Self {
        Self {
            options,
            devices: BTreeMap::new(),
            bindings: BTreeMap::new(),
            banks: Vec::new(),
        }
    }

    /// Binds what an instance requests, on the best devices.
    ///
    /// # Errors
    /// [`BindError::AlreadyBound`], [`BindError::Full`], [`BindError::NoRoom`], or [`BindError::Never`] when the devices of this node could not
    /// provide this even if all were free.
    pub fn bind(
        &mut self,
        instance: InstanceId,
        app: &AppName,
        request: &GpuRequest,
    ) -> Result<Binding, BindError> {
        if self.bindings.contains_key(&instance) {
            return Err(BindError::AlreadyBound(instance));
        }
        if self.bindings.len() >= self.options.max_bindings {
            return Err(BindError::Full {
                most: self.options.max_bindings,
            });
        }
        let (at, choice) = self.choose(request)?;
        let bank = &mut self.banks[at];
        let each = slice_demand(request);
        bank.bind(instance, choice.devices, each)?;
        let chosen = choice.devices.iter();
        let bound = Binding {
            instance,
            app: app.clone(),
            memory: each.memory,
            cores: each.cores,
            devices: chosen.map(|i| bank.devices[i as usize].clone()).collect(),
        };
        self.bindings.insert(
            instance,
            BindingEntry {
                bound: bound.clone(),
                lost: false,
            },
        );
        Ok(bound)
    }

    /// Whether the devices of this node could provide the request if all were free and in service.
    ///
    /// # Errors
    /// [`BindError::Never`], with what is missing.
    pub fn check_feasible(&self, request: &GpuRequest) -> Result<(), BindError> {
        let (count, each) = (request.count, slice_demand(request));
        let never = |reason| BindError::Never {
            wanted: each.memory,
            count,
            reason,
        };
        if count == 0 || each.memory == MebiBytes(0) {
            return Err(never("nothing is asked for"));
        }
        if self.banks.is_empty() {
            return Err(never("there is no device"));
        }
        let mut fitting = self
            .banks
            .iter()
            .filter(|bank| matches_model(bank, request));
        if fitting.clone().next().is_none() {
            return Err(never("there is no device of that model"));
        }
        if !fitting.any(|bank| bank.could_fit(count, each)) {
            return Err(never(
                "there are too few devices of one model that are so large",
            ));
        }
        Ok(())
    }

    /// The best devices of the best bank.
    fn choose(&self, request: &GpuRequest) -> Result<(usize, Choice), BindError> {
        self.check_feasible(request)?;
        let (count, each) = (request.count, slice_demand(request));
        let mut best: Option<(usize, Choice)> = None;
        for (at, bank) in self.banks.iter().enumerate() {
            if !matches_model(bank, request) || !bank.could_fit(count, each) {
                continue;
            }
            let found = bank.choose(count, each, self.usable(bank), &self.options)?;
            if let Some(choice) = found
                && best.is_none_or(|(_, best)| choice.cost < best.cost)
            {
                best = Some((at, choice));
            }
        }
        best.ok_or(BindError::NoRoom {
            wanted: each.memory,
            count,
        })
    }

    /// Which of the `idle` instances would have to end so that a request can be bound: empty if there is room, `None` if there would be no room
    /// even without all of them, or never. Instances at the front of the list go first, and the result is minimal: without any one of them in it,
    /// there would be no room.
    ///
    /// Complexity: O(n + k²) changes of copies of the allocation table, for n idle instances and k of them considered.
    #[must_use]
    pub fn instances_to_evict(
        &self,
        request: &GpuRequest,
        idle: &[InstanceId],
    ) -> Option<Vec<InstanceId>> {
        let has_room = |allocations: &Self| match allocations.choose(request) {
            Ok(_) => Some(true),
            Err(BindError::NoRoom { .. }) => Some(false),
            Err(_) => None,
        };
        let (mut allocations, mut going, mut idle) = (self.clone(), Vec::new(), idle.iter());
        while !has_room(&allocations)? {
            let next = *idle.next()?;
            // An instance without a binding frees nothing.
            if allocations.unbind(next).is_ok() {
                going.push(next);
            }
        }
        // The last one has made room. Those before it that are not needed for that are kept.
        let mut at = going.len().saturating_sub(1);
        while at > 0 {
            at -= 1;
            let mut allocations = self.clone();
            let stays = going.remove(at);
            for instance in &going {
                allocations.unbind(*instance).ok()?;
            }
            if !has_room(&allocations)? {
                going.insert(at, stays);
            }
        }
        Some(going)
    }

    /// The devices of a bank that are in service and not held by a lost instance.
    fn usable(&self, bank: &Bank) -> DeviceSet {
        let in_service = |id: &DeviceId| {
            let entry = self.devices.get(id);
            entry.is_some_and(|entry| entry.present && entry.outage.is_none())
                && !self.is_held_by_lost(id)
        };
        (0..)
            .zip(&bank.devices)
            .filter(|(_, id)| in_service(id))
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether a lost instance may still use the device.
    fn is_held_by_lost(&self, device: &DeviceId) -> bool {
        let mut entries = self.bindings.values();
        entries.any(|entry| entry.lost && entry.bound.devices.contains(device))
    }

    /// Releases the binding of an instance that has ended.
    ///
    /// # Errors
    /// [`BindError::NotBound`], for instance when its end is reported twice.
    pub fn unbind(&mut self, instance: InstanceId) -> Result<Binding, BindError> {
        let entry = self
            .bindings
            .remove(&instance)
            .ok_or(BindError::NotBound(instance))?;
        for bank in &mut self.banks {
            bank.unbind(instance)?;
        }
        self.prune_gone();
        Ok(entry.bound)
    }

    /// The binding of an instance; `None` once it is lost.
    #[must_use]
    pub fn get(&self, instance: InstanceId) -> Option<&Binding> {
        let entry = self.bindings.get(&instance)?;
        (!entry.lost).then_some(&entry.bound)
    }

    /// The instances that have lost their slices and must end.
    pub fn lost(&self) -> impl Iterator<Item = InstanceId> {
        let lost = self.bindings.iter().filter(|(_, entry)| entry.lost);
        lost.map(|(instance, _)| *instance)
    }

    /// Builds the banks from the devices that are present and places the held bindings in this order; those without room become lost.
    fn rebuild(&mut self, order: &[InstanceId]) -> Result<(), ResourceError> {
        let present = self.devices.values().filter(|entry| entry.present);
        let present: Vec<&Device> = present.map(|entry| &entry.device).collect();
        self.banks = Bank::all(&present, &self.options)?;
        for instance in order {
            let Some(entry) = self.bindings.get_mut(instance) else {
                continue;
            };
            if !entry.lost {
                entry.lost = !place(&mut self.banks, &entry.bound)?;
            }
        }
        Ok(())
    }

    /// Forgets devices that are gone and of which nobody holds anything. Devices with an outage are remembered: one that falls off the bus and
    /// comes back must not count as sound.
    fn prune_gone(&mut self) {
        let mut entries = self.bindings.values();
        let held: BTreeSet<&DeviceId> = entries.by_ref().flat_map(|h| &h.bound.devices).collect();
        self.devices
            .retain(|id, entry| entry.present || entry.outage.is_some() || held.contains(id));
    }
}

/// Binds in every bank that has devices of the binding; undoes everything if there is no room in one.
fn place(banks: &mut [Bank], bound: &Binding) -> Result<bool, ResourceError> {
    let mut placed = 0;
    for bank in banks.iter_mut() {
        let devices: DeviceSet = bound
            .devices
            .iter()
            .filter_map(|id| bank.index(id))
            .collect();
        if devices.is_empty() {
            continue;
        }
        if bank
            .bind(bound.instance, devices, bound.slice_demand())
            .is_err()
        {
            break;
        }
        placed += devices.len() as usize;
    }
    let all = placed == bound.devices.len() && placed > 0;
    if !all {
        for bank in banks {
            bank.unbind(bound.instance)?;
        }
    }
    Ok(all)
}

fn matches_model(bank: &Bank, request: &GpuRequest) -> bool {
    let model = request.model.as_ref();
    model.is_none_or(|model| model.covers(&bank.model))
}

const fn slice_demand(request: &GpuRequest) -> SliceDemand {
    SliceDemand {
        memory: request.memory.to_mebibytes(),
        cores: request.cores,
    }
}
