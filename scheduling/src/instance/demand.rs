//! The resources of an instance and of a node: unit slots, or a vector of resource classes.

use std::fmt::Debug;

use fdn_core::{MebiBytes, MilliCpu, Resources};

/// The scale of [`Demand::room`] for vectors: fractions of 2^-20, finer than any cluster needs to tell nodes apart.
const WHOLE: u128 = 1 << 20;

/// A resource amount: the demand of an instance, the capacity of a node. A demand fits when every class does.
pub trait Demand: Copy + Debug + Default + PartialEq {
    /// Whether this demand fits into what is free.
    fn fits(&self, free: &Self) -> bool;

    /// The sum, class by class.
    #[must_use]
    fn plus(&self, other: &Self) -> Self;

    /// What is left when `other` is taken away; `None` if any class would go below zero.
    fn minus(&self, other: &Self) -> Option<Self>;

    /// The difference, with zero in every class that would be negative.
    #[must_use]
    fn minus_or_zero(&self, other: &Self) -> Self;

    /// The larger amount of each class: what does not fit into it fits into neither.
    #[must_use]
    fn ceiling(&self, other: &Self) -> Self;

    /// The rank of a node with `self` free out of `capacity`: nodes with a higher rank are preferred.
    fn room(&self, capacity: &Self) -> u32;

    /// As a resource vector, for schedulers that score vectors only. The conversion preserves what fits.
    fn resources(&self) -> Resources;
}

/// Unit slots: every instance takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slots(pub u32);

impl Demand for Slots {
    #[inline]
    fn fits(&self, free: &Self) -> bool {
        self.0 <= free.0
    }

    #[inline]
    fn plus(&self, other: &Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[inline]
    fn minus(&self, other: &Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    #[inline]
    fn minus_or_zero(&self, other: &Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    #[inline]
    fn ceiling(&self, other: &Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The number of free slots, regardless of the node's size.
    #[inline]
    fn room(&self, _: &Self) -> u32 {
        self.0
    }

    /// One slot as 0.001 core, no memory.
    fn resources(&self) -> Resources {
        Resources::new(MilliCpu(self.0.into()), MebiBytes(0))
    }
}

impl Demand for Resources {
    fn fits(&self, free: &Self) -> bool {
        self.fits(free)
    }

    fn plus(&self, other: &Self) -> Self {
        self.saturating_add(other)
    }

    fn minus(&self, other: &Self) -> Option<Self> {
        self.checked_sub(other)
    }

    fn minus_or_zero(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            gpu_memory_mib: self.gpu_memory_mib.saturating_sub(other.gpu_memory_mib),
        }
    }

    fn ceiling(&self, other: &Self) -> Self {
        Self {
            cpu_milli: MilliCpu(self.cpu_milli.get().max(other.cpu_milli.get())),
            memory_mib: MebiBytes(self.memory_mib.get().max(other.memory_mib.get())),
            gpu_memory_mib: MebiBytes(self.gpu_memory_mib.get().max(other.gpu_memory_mib.get())),
        }
    }

    /// The mean free share over the classes that the node has, in units of 2^-20.
    fn room(&self, capacity: &Self) -> u32 {
        let classes = [
            (self.cpu_milli.get(), capacity.cpu_milli.get()),
            (self.memory_mib.get(), capacity.memory_mib.get()),
            (self.gpu_memory_mib.get(), capacity.gpu_memory_mib.get()),
        ];
        let (sum, count) = classes.iter().filter(|(_, capacity)| *capacity > 0).fold(
            (0, 0),
            |(sum, count), &(free, capacity)| {
                let share = u128::from(free.min(capacity)) * WHOLE / u128::from(capacity);
                (sum + share, count + 1)
            },
        );
        u32::try_from(sum / u128::max(count, 1)).expect("a share is at most 2^20")
    }

    fn resources(&self) -> Resources {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpu: u64, memory: u64, gpu: u64) -> Resources {
        Resources {
            gpu_memory_mib: MebiBytes(gpu),
            ..Resources::new(MilliCpu(cpu), MebiBytes(memory))
        }
    }

    #[test]
    fn slots_are_counted() {
        let (three, five) = (Slots(3), Slots(5));
        assert!(three.fits(&five) && three.fits(&three) && !five.fits(&three));
        assert_eq!(three.plus(&five), Slots(8));
        assert_eq!(five.minus(&three), Some(Slots(2)));
        assert_eq!(three.minus(&five), None);
        assert_eq!(three.minus_or_zero(&five), Slots(0));
        assert_eq!(three.ceiling(&five), five);
        assert_eq!(three.room(&Slots(100)), 3);
    }

    #[test]
    fn resources_are_compared_by_their_mean_free_share_of_the_classes_there_are() {
        let whole = 1 << 20;
        let no_gpu = resources(1000, 4000, 0);
        assert_eq!(no_gpu.room(&no_gpu), whole);
        assert_eq!(resources(500, 4000, 0).room(&no_gpu), whole * 3 / 4);
        let gpu = resources(1000, 4000, 800);
        assert_eq!(resources(1000, 4000, 200).room(&gpu), whole * 3 / 4);
        assert_eq!(Resources::default().room(&Resources::default()), 0);
        assert_eq!(
            Resources::UNLIMITED.room(&Resources::UNLIMITED),
            whole,
            "no overflow"
        );
    }

    #[test]
    fn every_class_of_resources_counts() {
        let (a, b) = (resources(1, 20, 3), resources(10, 2, 3));
        assert!(!Demand::fits(&a, &b) && !Demand::fits(&b, &a));
        assert_eq!(a.ceiling(&b), resources(10, 20, 3));
        assert_eq!(a.minus_or_zero(&b), resources(0, 18, 0));
        assert_eq!(a.minus(&b), None);
        assert_eq!(a.plus(&b).minus(&b), Some(a));
    }
}
