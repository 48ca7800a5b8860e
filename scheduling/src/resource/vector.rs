//! Resource quantities by class: capacities of nodes and requests of instances.

use std::fmt;

use fdn_core::{MebiBytes, MilliCpu};

use super::error::ResourceError;
use super::unit::{MegabitsPerSecond, Units};

/// A resource class of which a node has one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// CPU, in thousandths of a core.
    Cpu,
    /// Memory, in MiB.
    Memory,
    /// Disk space, in MiB.
    Disk,
    /// Bandwidth of the network link, in Mbit/s.
    Bandwidth,
}

impl Class {
    /// All classes, in the order in which they are evaluated.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Disk, Self::Bandwidth];

    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu_milli",
            Self::Memory => "memory_mib",
            Self::Disk => "disk_mib",
            Self::Bandwidth => "bandwidth_mbit_per_s",
        }
    }

    /// The position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A quantity of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector([u64; 4]);

impl Vector {
    /// CPU and memory, with the other classes zero.
    #[must_use]
    pub const fn new(cpu: MilliCpu, memory: MebiBytes) -> Self {
        Self([cpu.get(), memory.get(), 0, 0])
    }

    /// Computes the quantity of each class.
    #[must_use]
    pub fn from_fn(quantity: impl Fn(Class) -> u64) -> Self {
        Self(Class::ALL.map(quantity))
    }

    /// Sets the disk space.
    #[must_use]
    pub const fn with_disk(mut self, disk: MebiBytes) -> Self {
        self.0[Class::Disk.index()] = disk.get();
        self
    }

    /// Sets the bandwidth.
    #[must_use]
    pub const fn with_bandwidth(mut self, bandwidth: MegabitsPerSecond) -> Self {
        self.0[Class::Bandwidth.index()] = bandwidth.get();
        self
    }

    /// The quantity of a class, in the unit of its name.
    #[must_use]
    pub const fn get(&self, class: Class) -> u64 {
        self.0[class.index()]
    }

    /// Whether every class fits into `free`.
    #[must_use]
    pub fn fits(&self, free: &Self) -> bool {
        self.0
            .iter()
            .zip(free.0)
            .all(|(wanted, free)| *wanted <= free)
    }

    /// Subtracts `wanted`.
    ///
    /// # Errors
    /// [`ResourceError::Class`] with the first class that has too little.
    pub fn checked_sub(&self, wanted: &Self) -> Result<Self, ResourceError> {
        self.each(wanted, |class, has, wanted| {
            has.checked_sub(wanted).ok_or(ResourceError::Class {
                class: class.name(),
                quantity: wanted,
                most: has,
            })
        })
    }

    /// Adds `back`; the result must not exceed `capacity`.
    ///
    /// [`ResourceError::Class`] with the first class that would.
    /// [`ResourceError::Class`] with the first class that would.
    pub fn checked_add(&self, back: &Self, capacity: &Self) -> Result<Self, ResourceError> {
        self.each(back, |class, has, back| {
            let most = capacity.get(class);
            let sum = has.checked_add(back).filter(|sum| *sum <= most);
            sum.ok_or(ResourceError::Class {
                class: class.name(),
                quantity: has.saturating_add(back),
                most,
            })
        })
    }

    fn each(
        &self,
        other: &Self,
        mut op: impl FnMut(Class, u64, u64) -> Result<u64, ResourceError>,
    ) -> Result<Self, ResourceError> {
        let mut result = *self;
        for class in Class::ALL {
            result.0[class.index()] = op(class, self.get(class), other.get(class))?;
        }
        Ok(result)
    }
}

/// An instance's request for a node's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceRequest {
    /// No devices.
    #[default]
    None,
    /// The same amount on each of `count` devices; with `count` 1 a share of one device.
    Slices {
        /// The number of devices.
        count: u32,
        /// The amount of each.
        each: Units,
    },
    /// This many devices that nothing else uses, whatever their size.
    Whole(u32),
}

impl DeviceRequest {
    /// A share of one device.
    #[must_use]
    pub const fn share(each: Units) -> Self {
        Self::Slices { count: 1, each }
    }

    /// The number of devices; 0 if nothing is requested of each.
    #[must_use]
    pub const fn count(&self) -> u32 {
        match self {
            Self::None | Self::Slices { each: Units(0), .. } => 0,
            Self::Slices { count, .. } | Self::Whole(count) => *count,
        }
    }

    /// The amount of each device, on a node whose devices have the capacity `device`.
    #[must_use]
    pub const fn each(&self, device: Units) -> Units {
        match self {
            Self::None => Units(0),
            Self::Slices { each, .. } => *each,
            Self::Whole(_) => device,
        }
    }
}

/// An instance's request of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The request of each class.
    pub classes: Vector,
    /// The request of devices.
    pub devices: DeviceRequest,
}
