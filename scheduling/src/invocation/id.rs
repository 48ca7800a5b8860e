//! Identifiers used by the scheduler of invocations.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The index with this number.
            ///
            /// # Panics
            /// From 2^32 on, which the bounds of the tables exclude.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables have fewer than 2^32 rows"))
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> usize {
                self.0 as usize
            }

            /// The number in the width in which tables store it.
            pub(super) const fn raw(self) -> u32 {
                self.0
            }

            pub(super) const fn from_raw(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(
    /// A function version known to the scheduler, in the order of registration.
    FunctionIndex
);
index!(
    /// A worker: a node, or the part of one, on which containers live.
    WorkerIndex
);

/// The caller's id of an invocation; the scheduler only returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A row of a table whose rows are reused: the generation distinguishes the present entry from earlier ones, so that a late message about
/// an entry that is gone cannot affect its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A container, from the order to load it until its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub(super) Slot);

impl ContainerId {
    /// Its row in the table of containers: unique among living containers, and below the largest number ever alive at once.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.0.index as usize
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

/// A waiting invocation, for [`super::Scheduler::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) Slot);
