//! Node records: capacity, use, and a version that counts changes.

use std::fmt;

use fdn_core::Resources;

pub use crate::node::NodeIndex;

/// The number of changes of a node's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

impl Version {
    /// A version after this number of changes.
    #[must_use]
    pub const fn new(version: u64) -> Self {
        Self(version)
    }

    /// The number of changes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Whether a node takes containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// There is no node with this index.
    #[default]
    Absent,
    /// The node takes containers.
    Up,
    /// The node is draining: it keeps its containers and takes no more.
    Draining,
}

/// The record of a node, as schedulers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    pub(super) capacity: Resources,
    pub(super) used: Resources,
    pub(super) version: Version,
    pub(super) presence: Presence,
}

impl NodeRecord {
    /// The record of a node that takes containers.
    #[must_use]
    pub const fn new(capacity: Resources, used: Resources, version: Version) -> Self {
        Self {
            capacity,
            used,
            version,
            presence: Presence::Up,
        }
    }

    /// The node's resources.
    #[must_use]
    pub const fn capacity(&self) -> &Resources {
        &self.capacity
    }

    /// The part of them in use.
    #[must_use]
    pub const fn used(&self) -> &Resources {
        &self.used
    }

    /// The free resources, class by class; zero where use exceeds capacity.
    #[must_use]
    pub const fn free(&self) -> Resources {
        let (capacity, used) = (&self.capacity, &self.used);
        Resources {
            cpu_milli: capacity.cpu_milli.saturating_sub(used.cpu_milli),
            memory_mib: capacity.memory_mib.saturating_sub(used.memory_mib),
            gpu_memory_mib: capacity.gpu_memory_mib.saturating_sub(used.gpu_memory_mib),
        }
    }

    /// The number of changes of this record.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Whether it takes containers.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        self.presence
    }

    /// Whether a container with this demand may be placed here (the filter).
    #[must_use]
    pub fn has_room(&self, demand: &Resources) -> bool {
        self.presence == Presence::Up && demand.fits(&self.free())
    }
}
