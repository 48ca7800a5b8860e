//! Clusters as placement sees them.

use std::fmt;

use fdn_core::{ClusterId, Millis, Resources};

use super::slots::Slots;

/// A cluster's position in a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterIndex(u32);

impl ClusterIndex {
    /// The position as an index.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// As an index into a slice.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClusterIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// `theta(p)`: how fast a cluster works, relative to the reference machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(f64);

impl Speed {
    /// A speed; what is no positive finite number becomes 0, at which nothing is ever placed.
    #[must_use]
    pub fn new(theta: f64) -> Self {
        Self(if theta.is_finite() && theta > 0.0 {
            theta
        } else {
            0.0
        })
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// `w(c,p)`: how long `work` takes.
    #[must_use]
    pub fn time(self, work: Millis) -> Millis {
        if work.get() == 0.0 {
            return Millis::ZERO;
        }
        Millis::new(work.get() / self.0)
    }
}

/// The smaller amount of each class.
fn class_min(a: &Resources, b: &Resources) -> Resources {
    Resources {
        cpu_milli: a.cpu_milli.min(b.cpu_milli),
        memory_mib: a.memory_mib.min(b.memory_mib),
        gpu_memory_mib: a.gpu_memory_mib.min(b.gpu_memory_mib),
    }
}

/// Whether new work may go to a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// It takes work.
    #[default]
    Up,
    /// It finishes what it has.
    Draining,
    /// It does not answer.
    Down,
}

/// A cluster and what is left of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub id: ClusterId,
    /// How fast it works.
    pub speed: Speed,
    /// When each of its slots is free, from the moment of planning.
    pub slots: Slots,
    /// `I(p)`: what is free, all nodes together.
    pub free: Resources,
    /// The largest single container that some node has room for.
    pub largest: Resources,
    /// Whether new work may go there.
    pub availability: Availability,
    /// What all nodes that take work have, free or not.
    pub capacity: Resources,
    /// The largest single container that some node would have room for if it were empty.
    pub roomiest: Resources,
}

impl Cluster {
    /// A cluster that is up, with `slots` idle slots and unlimited resources.
    #[must_use]
    pub fn new(id: ClusterId, speed: Speed, slots: usize) -> Self {
        Self {
            id,
            speed,
            slots: Slots::idle(slots),
            free: Resources::UNLIMITED,
            largest: Resources::UNLIMITED,
            availability: Availability::Up,
            capacity: Resources::UNLIMITED,
            roomiest: Resources::UNLIMITED,
        }
    }

    /// The same with other slots.
    #[must_use]
    pub fn with_slots(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// The same with `free` resources.
    #[must_use]
    pub const fn with_free(mut self, free: Resources) -> Self {
        self.free = free;
        self
    }

    /// The same with a bound on a single container.
    #[must_use]
    pub const fn with_largest(mut self, largest: Resources) -> Self {
        self.largest = largest;
        self
    }

    /// The same with one node that has so much, free or not.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: Resources) -> Self {
        self.capacity = capacity;
        self.roomiest = capacity;
        self
    }

    /// The same in another state.
    #[must_use]
    pub const fn with_availability(mut self, availability: Availability) -> Self {
        self.availability = availability;
        self
    }

    /// Counts as free what instances of the very app that is being placed occupy there: to run it takes nothing more. Never more than there is.
    pub fn give_back(&mut self, held: &Resources) {
        self.return_free(held);
        self.free = class_min(&self.free, &self.capacity);
        self.largest = class_min(&self.largest.saturating_add(held), &self.roomiest);
    }

    /// Takes what a container holds until its job ends.
    pub(super) fn take(&mut self, demand: &Resources) {
        self.free = self.free.checked_sub(demand).unwrap_or_default();
    }

    /// Returns what was taken.
    pub(super) fn return_free(&mut self, demand: &Resources) {
        self.free = self.free.saturating_add(demand);
    }
}
