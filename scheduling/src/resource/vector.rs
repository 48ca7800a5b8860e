//! What a node has and an instance wants, by named class.

use std::fmt;

use fdn_core::{MebiBytes, MilliCpu};

use super::error::ResourceError;
use super::unit::{MegabitsPerSecond, Units};

/// A class of resources that a node has one pool of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Thousandths of a core.
    Cpu,
    /// Mebibytes of memory.
    Memory,
    /// Mebibytes of disk.
    Disk,
    /// Megabits per second of the network link.
    Bandwidth,
}

impl Class {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Disk, Self::Bandwidth];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu_milli",
            Self::Memory => "memory_mib",
            Self::Disk => "disk_mib",
            Self::Bandwidth => "bandwidth_mbit_per_s",
        }
    }

    /// Its place in [`Self::ALL`].
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
    /// CPU and memory.
    #[must_use]
    pub const fn new(cpu: MilliCpu, memory: MebiBytes) -> Self {
        Self([cpu.get(), memory.get(), 0, 0])
    }

    /// A quantity for each class.
    #[must_use]
    pub fn from_fn(quantity: impl Fn(Class) -> u64) -> Self {
        Self(Class::ALL.map(quantity))
    }

    /// The same with disk.
    #[must_use]
    pub const fn with_disk(mut self, disk: MebiBytes) -> Self {
        self.0[Class::Disk.index()] = disk.get();
        self
    }

    /// The same with bandwidth.
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

    /// `self - wanted`.
    ///
    /// # Errors
    /// [`ResourceError::Class`] with the first class that has less.
    pub fn checked_sub(&self, wanted: &Self) -> Result<Self, ResourceError> {
        self.each(wanted, |class, has, wanted| {
            has.checked_sub(wanted).ok_or(ResourceError::Class {
                class: class.name(),
                quantity: wanted,
                most: has,
            })
        })
    }

    /// `self + back`, which must not pass `capacity`.
    ///
    /// # Errors
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

/// What an instance wants of a node's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceRequest {
    /// Nothing.
    #[default]
    None,
    /// As much on each of `count` devices; a share of one device with `count` 1.
    Slices {
        /// How many devices.
        count: u32,
        /// How much of each.
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

    /// How many devices; 0 where nothing is wanted of each.
    #[must_use]
    pub const fn count(&self) -> u32 {
        match self {
            Self::None | Self::Slices { each: Units(0), .. } => 0,
            Self::Slices { count, .. } | Self::Whole(count) => *count,
        }
    }

    /// How much of each device, on a node whose devices have `device` each.
    #[must_use]
    pub const fn each(&self, device: Units) -> Units {
        match self {
            Self::None => Units(0),
            Self::Slices { each, .. } => *each,
            Self::Whole(_) => device,
        }
    }
}

/// What an instance wants of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Of the classes.
    pub classes: Vector,
    /// Of the devices.
    pub devices: DeviceRequest,
}
