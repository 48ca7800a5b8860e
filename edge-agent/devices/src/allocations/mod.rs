//! Which instance holds which slices of the node's devices: a pure state machine.
//!
//! **Problem.** Devices are shared by slices; instances come, end and crash, the agent restarts, devices fail, vanish and come back with
//! another size. Whatever the order of these, a device must never have more memory bound than it has, and what an instance still uses
//! must not be given to another.
//!
//! | state of a binding | counts as bound | leaves it by |
//! | --- | --- | --- |
//! | held | yes | [`AllocationTable::unbind`]; becomes lost when its device vanishes or no longer has room for it |
//! | lost | no; its devices give nothing out meanwhile | [`AllocationTable::unbind`], when the instance has ended |
//!
//! **What is true.** What really runs is ([`AllocationTable::reconcile`]): a binding of which nothing runs is given back, an instance that runs
//! without one gets one on the devices that it uses, and if there is no room for it, it is lost and has to end.
//!
//! **Service.** A device out of service keeps its bindings and gives out nothing; who holds slices of it is told, and the caller
//! starts those instances elsewhere.
//!
//! **Invariants.** On a device, the memory of held bindings is at most its own, in whole units; the same for cores. An instance has
//! one binding. A refused call changes nothing. Neither clock nor I/O is here.

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
use bank::{Bank, Each};

pub use change::Affected;
pub use reconcile::Reconciled;
pub use saved::SavedAllocations;

/// How an allocation table is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationOptions {
    /// What is bound at a time.
    pub unit: MemoryUnit,
    /// Bindings at most.
    pub max_bindings: usize,
    /// How banks are compared.
    pub score: ScoreName,
    /// Which device of a bank is taken.
    pub order: DeviceOrder,
}

/// What an instance holds: as much of each of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The instance.
    pub instance: InstanceId,
    /// The app that it serves.
    pub app: AppName,
    /// Memory of each device, as it was asked for.
    pub memory: MebiBytes,
    /// Share of each device's cores, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Percent>,
    /// Its devices, in order.
    pub devices: BTreeSet<DeviceId>,
}

impl Bound {
    const fn each(&self) -> Each {
        Each {
            memory: self.memory,
            cores: self.cores,
        }
    }
}

/// An instance that really runs, and the slices that it was started with. What a runtime says of it.
pub type Running = Bound;

/// Why a device gives nothing out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outage {
    reason: String,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Entry {
    device: Device,
    /// Whether the machine has it now.
    present: bool,
    outage: Option<Outage>,
}

#[derive(Clone, Debug)]
struct Holding {
    bound: Bound,
    lost: bool,
}

/// The allocation table. See the module's documentation.
#[derive(Clone, Debug)]
pub struct AllocationTable {
    options: AllocationOptions,
    devices: BTreeMap<DeviceId, Entry>,
    bindings: BTreeMap<InstanceId, Holding>,
    /// Made of the devices that are present and the bindings that are held; never changed otherwise.
    banks: Vec<Bank>,
}

impl AllocationTable {
    /// An allocation table of no devices.
    #[must_use]
    pub const fn new(options: AllocationOptions) -> Self {
        Self {
            options,
            devices: BTreeMap::new(),
            bindings: BTreeMap::new(),
            banks: Vec::new(),
        }
    }

    /// Binds what an instance asks for to the best devices.
    ///
    /// # Errors
    /// [`BindError::AlreadyBound`], [`BindError::Full`], [`BindError::NoRoom`], or [`BindError::Never`] when no device of this node
    /// could give so much even if it were free.
    pub fn bind(
        &mut self,
        instance: InstanceId,
        app: &AppName,
        request: &GpuRequest,
    ) -> Result<Bound, BindError> {
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
        let each = each(request);
        bank.bind(instance, choice.devices, each)?;
        let chosen = choice.devices.iter();
        let bound = Bound {
            instance,
            app: app.clone(),
            memory: each.memory,
            cores: each.cores,
            devices: chosen.map(|i| bank.devices[i as usize].clone()).collect(),
        };
        self.bindings.insert(
            instance,
            Holding {
                bound: bound.clone(),
                lost: false,
            },
        );
        Ok(bound)
    }

    /// Whether devices of this node could give what is asked for if they were free and in service.
    ///
    /// # Errors
    /// [`BindError::Never`], with what is missing.
    pub fn could(&self, request: &GpuRequest) -> Result<(), BindError> {
        let (count, each) = (request.count, each(request));
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
        let mut fitting = self.banks.iter().filter(|bank| is_of(bank, request));
        if fitting.clone().next().is_none() {
            return Err(never("there is no device of that model"));
        }
        if !fitting.any(|bank| bank.could(count, each)) {
            return Err(never(
                "there are too few devices of one model that are so large",
            ));
        }
        Ok(())
    }

    /// The best devices of the best bank.
    fn choose(&self, request: &GpuRequest) -> Result<(usize, Choice), BindError> {
        self.could(request)?;
        let (count, each) = (request.count, each(request));
        let mut best: Option<(usize, Choice)> = None;
        for (at, bank) in self.banks.iter().enumerate() {
            if !is_of(bank, request) || !bank.could(count, each) {
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

    /// Which of these instances would have to end for a request to be bound: empty when there is room, nothing when there would be none
    /// without all of them, or never. Those that come first go first, and none goes without whom there would be no room either.
    ///
    /// Complexity: O(n + k²) changes of copies of the allocation table, n instances, k of them in the way or before one that is.
    #[must_use]
    pub fn in_the_way(&self, request: &GpuRequest, idle: &[InstanceId]) -> Option<Vec<InstanceId>> {
        let has_room = |allocations: &Self| match allocations.choose(request) {
            Ok(_) => Some(true),
            Err(BindError::NoRoom { .. }) => Some(false),
            Err(_) => None,
        };
        let (mut allocations, mut going, mut idle) = (self.clone(), Vec::new(), idle.iter());
        while !has_room(&allocations)? {
            let next = *idle.next()?;
            // One that holds nothing gives nothing.
            if allocations.unbind(next).is_ok() {
                going.push(next);
            }
        }
        // The last has made room. Of those before, who was let go for nothing stays.
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

    /// The devices of a bank that are in service and of which no lost instance still holds something.
    fn usable(&self, bank: &Bank) -> DeviceSet {
        let in_service = |id: &DeviceId| {
            let entry = self.devices.get(id);
            entry.is_some_and(|entry| entry.present && entry.outage.is_none()) && !self.blocked(id)
        };
        (0..)
            .zip(&bank.devices)
            .filter(|(_, id)| in_service(id))
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether an instance that should have ended may still use the device.
    fn blocked(&self, device: &DeviceId) -> bool {
        let mut holdings = self.bindings.values();
        holdings.any(|holding| holding.lost && holding.bound.devices.contains(device))
    }

    /// Gives back what an instance held: it has ended.
    ///
    /// # Errors
    /// [`BindError::NotBound`], as when its end is told twice.
    pub fn unbind(&mut self, instance: InstanceId) -> Result<Bound, BindError> {
        let holding = self
            .bindings
            .remove(&instance)
            .ok_or(BindError::NotBound(instance))?;
        for bank in &mut self.banks {
            bank.unbind(instance)?;
        }
        self.forget_gone();
        Ok(holding.bound)
    }

    /// What an instance holds; nothing once it is lost.
    #[must_use]
    pub fn get(&self, instance: InstanceId) -> Option<&Bound> {
        let holding = self.bindings.get(&instance)?;
        (!holding.lost).then_some(&holding.bound)
    }

    /// The instances that have lost their slices and have to end.
    pub fn lost(&self) -> impl Iterator<Item = InstanceId> {
        let lost = self.bindings.iter().filter(|(_, holding)| holding.lost);
        lost.map(|(instance, _)| *instance)
    }

    /// Puts the devices that are present into banks and the held bindings into those, in this order; who finds no room is lost.
    fn rebuild(&mut self, order: &[InstanceId]) -> Result<(), ResourceError> {
        let present = self.devices.values().filter(|entry| entry.present);
        let present: Vec<&Device> = present.map(|entry| &entry.device).collect();
        self.banks = Bank::all(&present, &self.options)?;
        for instance in order {
            let Some(holding) = self.bindings.get_mut(instance) else {
                continue;
            };
            if !holding.lost {
                holding.lost = !place(&mut self.banks, &holding.bound)?;
            }
        }
        Ok(())
    }

    /// Drops what is remembered of devices that are gone and of which nobody holds anything. A fault is remembered: a device that falls
    /// off the bus and comes back is not as good as new.
    fn forget_gone(&mut self) {
        let mut holdings = self.bindings.values();
        let held: BTreeSet<&DeviceId> = holdings.by_ref().flat_map(|h| &h.bound.devices).collect();
        self.devices
            .retain(|id, entry| entry.present || entry.outage.is_some() || held.contains(id));
    }
}

/// Binds in every bank that has devices of the binding; takes all back if one has no room.
fn place(banks: &mut [Bank], bound: &Bound) -> Result<bool, ResourceError> {
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
        if bank.bind(bound.instance, devices, bound.each()).is_err() {
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

fn is_of(bank: &Bank, request: &GpuRequest) -> bool {
    let model = request.model.as_ref();
    model.is_none_or(|model| model.covers(&bank.model))
}

const fn each(request: &GpuRequest) -> Each {
    Each {
        memory: request.memory.to_mebibytes(),
        cores: request.cores,
    }
}
