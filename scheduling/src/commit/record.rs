//! What is known of a node: its capacity, what is used of it, and a version that counts the changes.

use std::fmt;

use fdn_core::Resources;

pub use crate::node::NodeIndex;

/// How often a node's record has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

impl Version {
    /// This number of changes.
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
    /// There is no node at this place.
    #[default]
    Absent,
    /// It takes containers.
    Up,
    /// It keeps what it has and takes nothing new.
    Draining,
}

/// A node as schedulers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    pub(super) capacity: Resources,
    pub(super) used: Resources,
    pub(super) version: Version,
    pub(super) presence: Presence,
}

impl NodeRecord {
    /// A node that is up.
    #[must_use]
    pub const fn new(capacity: Resources, used: Resources, version: Version) -> Self {
        Self {
            capacity,
            used,
            version,
            presence: Presence::Up,
        }
    }

    /// What it has.
    #[must_use]
    pub const fn capacity(&self) -> &Resources {
        &self.capacity
    }

    /// What is used of it.
    #[must_use]
    pub const fn used(&self) -> &Resources {
        &self.used
    }

    /// What is left, class by class.
    #[must_use]
    pub const fn free(&self) -> Resources {
        let (capacity, used) = (&self.capacity, &self.used);
        Resources {
            cpu_milli: capacity.cpu_milli.saturating_sub(used.cpu_milli),
            memory_mib: capacity.memory_mib.saturating_sub(used.memory_mib),
            gpu_memory_mib: capacity.gpu_memory_mib.saturating_sub(used.gpu_memory_mib),
        }
    }

    /// How often it has changed.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Whether it takes containers.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        self.presence
    }

    /// The filter: whether a container of this demand may be put here.
    #[must_use]
    pub fn has_room(&self, demand: &Resources) -> bool {
        self.presence == Presence::Up && demand.fits(&self.free())
    }
}
