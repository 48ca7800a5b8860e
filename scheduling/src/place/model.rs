//! Clusters as placement sees them.

use std::fmt;

use fdn_core::{ClusterId, Millis, Resources};

use super::slots::Slots;

/// A cluster's position in the cluster list of a [`super::Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterIndex(u32);

impl ClusterIndex {
    /// Wraps a position; one beyond `u32::MAX` becomes `u32::MAX`, which no problem has.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The position, for indexing slices.
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

/// `theta(p)`: the speed of a cluster relative to the reference machine, which has speed 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(f64);

impl Speed {
    /// A relative speed; anything but a positive finite number becomes 0, at which nothing is ever placed.
    #[must_use]
    pub fn new(theta: f64) -> Self {
        Self(if theta.is_finite() && theta > 0.0 {
            theta
        } else {
            0.0
        })
    }

    /// The speed relative to the reference machine, from 0 up.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// `w(c,p)`: the run time of `work`, which is given as run time at speed 1. Infinite at speed 0, unless there is no work.
    #[must_use]
    pub fn time(self, work: Millis) -> Millis {
        if work.get() == 0.0 {
            return Millis::ZERO;
        }
        Millis::new(work.get() / self.0)
    }
}

/// The smaller amount of each resource class.
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
    /// It accepts work.
    #[default]
    Up,
    /// It finishes the work it has and accepts no more.
    Draining,
    /// It does not respond, and accepts no work.
    Down,
}

/// A cluster and its remaining capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The cluster's id.
    pub id: ClusterId,
    /// Its speed relative to the reference machine.
    pub speed: Speed,
    /// When each of its slots is free, in ms from the moment of planning.
    pub slots: Slots,
    /// `I(p)`: the free resources, summed over all nodes.
    pub free: Resources,
    /// An upper bound of a single container: per class, the most that some node has free.
    pub largest: Resources,
    /// Whether it accepts new work.
    pub availability: Availability,
    /// The resources of all nodes that accept work, in use or not.
    pub capacity: Resources,
    /// As `largest`, if every node were empty.
    pub roomiest: Resources,
}

impl Cluster {
    /// A cluster that is up, with `slots` idle slots and no limit on resources.
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

    /// Replaces the slots.
    #[must_use]
    pub fn with_slots(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// Sets the free resources.
    #[must_use]
    pub const fn with_free(mut self, free: Resources) -> Self {
        self.free = free;
        self
    }

    /// Sets the bound on a single container.
    #[must_use]
    pub const fn with_largest(mut self, largest: Resources) -> Self {
        self.largest = largest;
        self
    }

    /// Sets the capacity to that of one node, which also bounds a single container.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: Resources) -> Self {
        self.capacity = capacity;
        self.roomiest = capacity;
        self
    }

    /// Sets the availability.
    #[must_use]
    pub const fn with_availability(mut self, availability: Availability) -> Self {
        self.availability = availability;
        self
    }

    /// Counts the resources that instances of the app being placed already hold there as free, since running it there needs no more
    /// of them. The result is capped at the capacity.
    pub fn give_back(&mut self, held: &Resources) {
        self.return_free(held);
        self.free = class_min(&self.free, &self.capacity);
        self.largest = class_min(&self.largest.saturating_add(held), &self.roomiest);
    }

    /// Subtracts what a container holds until its job ends; not below zero.
    pub(super) fn take(&mut self, demand: &Resources) {
        self.free = self.free.checked_sub(demand).unwrap_or_default();
    }

    /// Adds what [`Cluster::take`] subtracted.
    pub(super) fn return_free(&mut self, demand: &Resources) {
        self.free = self.free.saturating_add(demand);
    }
}
