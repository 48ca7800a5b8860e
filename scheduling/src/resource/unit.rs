//! Units of device slices, and the conversion of sizes into whole units.
//!
//! Quantities of devices are whole numbers of [`Units`]; the fleet chooses the unit: a thousandth of a device ([`GpuMilli`]), or a block
//! of its memory ([`MemoryUnit`]). A demand is rounded up and a capacity down, so that nothing is promised that does not exist. With
//! blocks of 256 MiB a device of 80 GiB is 320 units, 9 bits, and 14 such devices fit into a `u128`, whereas mebibytes would need 17 bits
//! each.

use std::fmt;

use fdn_core::MebiBytes;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $suffix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The number of units.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

quantity!(
    /// A quantity of device slices, in the fleet's unit.
    Units,
    " units"
);
quantity!(
    /// Thousandths of a device.
    GpuMilli,
    "m GPU"
);
quantity!(
    /// Megabits (10^6 bits) per second of a network link.
    MegabitsPerSecond,
    " Mbit/s"
);

impl GpuMilli {
    /// A whole device.
    pub const WHOLE: Self = Self(1000);

    /// As [`Units`] of a fleet that counts thousandths.
    #[must_use]
    pub const fn units(self) -> Units {
        Units(self.0)
    }
}

/// The size of the memory block that counts as one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUnit(u64);

impl MemoryUnit {
    /// 256 MiB: devices of up to 127 GiB in 9 bits.
    pub const MIB_256: Self = Self(256);

    /// A block of this size; `None` for zero.
    #[must_use]
    pub const fn new(size: MebiBytes) -> Option<Self> {
        match size.get() {
            0 => None,
            mib => Some(Self(mib)),
        }
    }

    /// The units of a demand, rounded up.
    #[must_use]
    pub const fn demand(self, size: MebiBytes) -> Units {
        Units(size.get().div_ceil(self.0))
    }

    /// The units of a device with this much memory, rounded down.
    #[must_use]
    pub const fn capacity(self, size: MebiBytes) -> Units {
        Units(size.get() / self.0)
    }

    /// The size of this many units.
    #[must_use]
    pub const fn size(self, units: Units) -> MebiBytes {
        MebiBytes(units.0.saturating_mul(self.0))
    }
}

/// The number of bits for every quantity up to `most`; at least 1.
#[must_use]
pub const fn bits_for(most: Units) -> u32 {
    match u64::BITS - most.0.leading_zeros() {
        0 => 1,
        bits => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_gibibytes_are_nine_bits_of_256_mib() {
        let unit = MemoryUnit::MIB_256;
        let device = unit.capacity(MebiBytes(80 * 1024));
        assert_eq!(device, Units(320));
        assert_eq!(bits_for(device), 9);
        assert_eq!(u128::BITS / bits_for(device), 14);
        assert_eq!(bits_for(Units(80 * 1024)), 17);
        assert_eq!((bits_for(Units(0)), bits_for(Units(1))), (1, 1));
        assert_eq!(bits_for(Units(u64::MAX)), 64);
    }

    #[test]
    fn demands_round_up_and_capacities_down() {
        let unit = MemoryUnit::new(MebiBytes(256)).unwrap();
        assert_eq!(unit.demand(MebiBytes(257)), Units(2));
        assert_eq!(unit.demand(MebiBytes(256)), Units(1));
        assert_eq!(unit.demand(MebiBytes(0)), Units(0));
        assert_eq!(unit.capacity(MebiBytes(511)), Units(1));
        assert_eq!(unit.size(Units(2)), MebiBytes(512));
        assert_eq!(MemoryUnit::new(MebiBytes(0)), None);
    }
}
