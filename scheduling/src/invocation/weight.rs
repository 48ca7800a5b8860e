//! The weight of a container on its worker.

use std::fmt;

use fdn_core::MebiBytes;

/// The weight of a container, `R(j)`: its memory in MiB by default. A caller whose workers have scarce resources beside memory may use a
/// finer unit and convert them into it; all weights of one scheduler must be in the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u64);

impl Weight {
    /// The weight in its unit.
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
