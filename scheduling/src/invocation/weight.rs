//! What a container takes of its worker.

use std::fmt;

use fdn_core::MebiBytes;

/// What a container takes of its worker: `R(j)`, which is its memory, in MiB where nothing else is said. A caller whose workers have more than
/// memory to give counts in finer parts, and sets more against them; all weights of one scheduler are of one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u64);

impl Weight {
    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<MebiBytes> for Weight {
    fn from(memory: MebiBytes) -> Self {
        Self(memory.get())
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
