//! Like devices side by side in one word.
//!
//! **Problem.** A node may have whole GPUs and MIG instances of several sizes, and more of them than fit into a word, while the packed words of
//! [`fdn_scheduling::resource`] hold like devices only. So the devices of one model and size form a *bank*, of as many as fit into a `u128`; more
//! of them are divided evenly. An instance gets all its devices from one bank, that is, of one model and size.
//!
//! **Method.** A bank has two ledgers of the same layout: memory in units, and cores in hundredths. To choose devices, the bank is presented as a
//! fleet of one node, in which devices that cannot be used (out of service, or too few cores left) have nothing free; the scheduling crate's
//! filter, score and choice of devices do the rest.

use fdn_core::device::Percent;
use fdn_core::{DeviceId, InstanceId, MebiBytes};
use fdn_scheduling::resource::{
    Choice, DeviceRequest, DeviceSet, Fleet, Layout, Ledger, MemoryUnit, NodeIndex, NodeSpec,
    Packed, Request, ResourceError, Selector, Units, Vector, bits_for,
};

use super::AllocationOptions;
use crate::discovery::Device;

/// All cores of a device, in hundredths.
const CORES: Units = Units(Percent::WHOLE.get() as u64);

/// A bank of like devices.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    pub(super) model: String,
    /// The devices in the order of their indices.
    pub(super) devices: Vec<DeviceId>,
    unit: MemoryUnit,
    /// The memory of each device.
    capacity: Units,
    memory: Ledger<InstanceId, u128>,
    cores: Ledger<InstanceId, u128>,
}

/// What an instance needs of each of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceDemand {
    pub(super) memory: MebiBytes,
    pub(super) cores: Option<Percent>,
}

impl SliceDemand {
    fn cores(self) -> Units {
        Units(self.cores.map_or(0, |share| u64::from(share.get())))
    }
}

impl Bank {
    /// Builds the banks for these devices. Devices smaller than one unit are left out.
    pub(super) fn all(
        devices: &[&Device],
        options: &AllocationOptions,
    ) -> Result<Vec<Self>, ResourceError> {
        let mut devices: Vec<&Device> = devices.to_vec();
        devices.sort_by(|a, b| {
            (&a.model, a.kind, a.memory, &a.id).cmp(&(&b.model, b.kind, b.memory, &b.id))
        });
        let mut banks = Vec::new();
        let alike =
            |a: &&Device, b: &&Device| (&a.model, a.kind, a.memory) == (&b.model, b.kind, b.memory);
        for group in devices.chunk_by(alike) {
            let Some(first) = group.first() else { continue };
            let capacity = options.unit.capacity(first.memory);
            if capacity == Units(0) {
                continue;
            }
            let most = (u128::BITS / Self::bits(capacity)) as usize;
            let parts = group.len().div_ceil(most);
            for part in group.chunks(group.len().div_ceil(parts)) {
                banks.push(Self::new(first.model.clone(), part, capacity, options)?);
            }
        }
        Ok(banks)
    }

    /// Both ledgers share a layout, so that their results can be combined.
    fn bits(capacity: Units) -> u32 {
        bits_for(capacity.max(CORES))
    }

    fn new(
        model: String,
        devices: &[&Device],
        capacity: Units,
        options: &AllocationOptions,
    ) -> Result<Self, ResourceError> {
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let layout = Layout::new(count, Self::bits(capacity))?;
        Ok(Self {
            model,
            devices: devices.iter().map(|device| device.id.clone()).collect(),
            unit: options.unit,
            capacity,
            memory: Ledger::new(layout, count, capacity, options.max_bindings)?,
            cores: Ledger::new(layout, count, CORES, options.max_bindings)?,
        })
    }

    /// The memory bound on a device, in whole units; `None` if the device is not in this bank.
    pub(super) fn bound(&self, device: &DeviceId) -> Option<MebiBytes> {
        let index = self.index(device)?;
        let free = self.memory.layout().get(self.memory.free(), index).ok()?;
        let bound = self.capacity.get().saturating_sub(free.get());
        Some(self.unit.size(Units(bound)))
    }

    pub(super) fn index(&self, device: &DeviceId) -> Option<u32> {
        let at = self.devices.iter().position(|own| own == device)?;
        u32::try_from(at).ok()
    }

    /// Whether devices of this bank could provide this if all were free.
    pub(super) fn could_fit(&self, count: u32, each: SliceDemand) -> bool {
        count as usize <= self.devices.len() && self.unit.demand(each.memory) <= self.capacity
    }

    /// Chooses the best devices at present, among the `usable` ones; `None` if there are too few.
    pub(super) fn choose(
        &self,
        count: u32,
        each: SliceDemand,
        usable: DeviceSet,
        options: &AllocationOptions,
    ) -> Result<Option<Choice>, ResourceError> {
        let request = Request {
            classes: Vector::default(),
            devices: DeviceRequest::Slices {
                count,
                each: self.unit.demand(each.memory),
            },
        };
        let fleet = self.as_fleet(each.cores(), usable)?;
        let mut selector = Selector::new(options.score.score(), options.order.choice(), 1);
        Ok(selector.evaluate(&fleet, NodeIndex::new(0), &request))
    }

    /// This bank as a fleet of one node, in which devices that cannot be used have nothing free.
    fn as_fleet(&self, cores: Units, usable: DeviceSet) -> Result<Fleet<u128>, ResourceError> {
        let layout = *self.memory.layout();
        let spec = NodeSpec::new(Vector::default(), layout.devices(), self.capacity);
        let mut fleet = Fleet::with_layout(layout, &[spec])?;
        let enough = |word: Packed<u128>, device: u32| layout.get(word, device);
        for device in 0..layout.devices() {
            let can = usable.contains(device) && enough(self.cores.free(), device)? >= cores;
            let free = if can {
                enough(self.memory.free(), device)?
            } else {
                Units(0)
            };
            let taken = Request {
                classes: Vector::default(),
                devices: DeviceRequest::share(Units(self.capacity.get() - free.get())),
            };
            if taken.devices.count() > 0 {
                fleet.take(NodeIndex::new(0), &taken, DeviceSet::NONE.with(device))?;
            }
        }
        Ok(fleet)
    }

    /// Binds slices of the given devices, in both ledgers or in none.
    pub(super) fn bind(
        &mut self,
        instance: InstanceId,
        devices: DeviceSet,
        each: SliceDemand,
    ) -> Result<(), ResourceError> {
        let units = self.unit.demand(each.memory);
        self.memory.bind_to(instance, devices, units)?;
        if let Err(error) = self.cores.bind_to(instance, devices, each.cores()) {
            self.memory.unbind(instance)?;
            return Err(error);
        }
        Ok(())
    }

    /// Releases what an instance holds here, if anything.
    pub(super) fn unbind(&mut self, instance: InstanceId) -> Result<(), ResourceError> {
        if self.memory.get(instance).is_some() {
            self.memory.unbind(instance)?;
            self.cores.unbind(instance)?;
        }
        Ok(())
    }
}
