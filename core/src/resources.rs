//! Resource vectors: the demand of an instance, or the capacity of a node or cluster.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::unit::{MebiBytes, MilliCpu};

/// CPU, memory and GPU memory. One vector fits into another if every component does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    /// CPU, in thousandths of a core.
    pub cpu_milli: MilliCpu,
    /// Memory, in MiB.
    pub memory_mib: MebiBytes,
    /// Memory of GPU devices, in MiB; 0 if absent.
    #[serde(default)]
    pub gpu_memory_mib: MebiBytes,
}

impl Resources {
    /// No limit: more than any node has.
    pub const UNLIMITED: Self = Self {
        cpu_milli: MilliCpu(u64::MAX),
        memory_mib: MebiBytes(u64::MAX),
        gpu_memory_mib: MebiBytes(u64::MAX),
    };

    /// CPU and memory without GPU memory.
    #[inline]
    #[must_use]
    pub const fn new(cpu_milli: MilliCpu, memory_mib: MebiBytes) -> Self {
        Self {
            cpu_milli,
            memory_mib,
            gpu_memory_mib: MebiBytes(0),
        }
    }

    /// Whether this demand fits into `free`, class by class.
    #[inline]
    #[must_use]
    pub fn fits(&self, free: &Self) -> bool {
        self.cpu_milli <= free.cpu_milli
            && self.memory_mib <= free.memory_mib
            && self.gpu_memory_mib <= free.gpu_memory_mib
    }

    /// `self - demand`, or `None` if any class would go below zero.
    #[inline]
    #[must_use]
    pub fn checked_sub(&self, demand: &Self) -> Option<Self> {
        demand.fits(self).then(|| Self {
            cpu_milli: self.cpu_milli.saturating_sub(demand.cpu_milli),
            memory_mib: self.memory_mib.saturating_sub(demand.memory_mib),
            gpu_memory_mib: self.gpu_memory_mib.saturating_sub(demand.gpu_memory_mib),
        })
    }

    /// The sum, class by class; saturates instead of overflowing.
    #[inline]
    #[must_use]
    pub fn saturating_add(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            gpu_memory_mib: self.gpu_memory_mib.saturating_add(other.gpu_memory_mib),
        }
    }

    /// The larger amount of each class.
    #[must_use]
    pub fn max_by_class(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_mib: self.memory_mib.max(other.memory_mib),
            gpu_memory_mib: self.gpu_memory_mib.max(other.gpu_memory_mib),
        }
    }

    /// Describes the first class in which this demand does not fit into `free`; `None` if it fits.
    #[must_use]
    pub fn shortage(&self, free: &Self) -> Option<String> {
        if self.cpu_milli > free.cpu_milli {
            Some(format!(
                "wants {} CPU, {} free",
                self.cpu_milli, free.cpu_milli
            ))
        } else if self.memory_mib > free.memory_mib {
            Some(format!(
                "wants {} memory, {} free",
                self.memory_mib, free.memory_mib
            ))
        } else if self.gpu_memory_mib > free.gpu_memory_mib {
            Some(format!(
                "wants {} GPU memory, {} free",
                self.gpu_memory_mib, free.gpu_memory_mib
            ))
        } else {
            None
        }
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPU, {}", self.cpu_milli, self.memory_mib)?;
        if self.gpu_memory_mib.get() > 0 {
            write!(f, ", {} GPU", self.gpu_memory_mib)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_must_fit() {
        let free = Resources::new(MilliCpu(1000), MebiBytes(256));
        assert!(Resources::new(MilliCpu(1000), MebiBytes(256)).fits(&free));
        let big = Resources::new(MilliCpu(100), MebiBytes(257));
        assert!(!big.fits(&free));
        assert_eq!(free.checked_sub(&big), None);
        assert_eq!(
            big.shortage(&free).expect("does not fit"),
            "wants 257 MiB memory, 256 MiB free"
        );
        let gpu = Resources {
            gpu_memory_mib: MebiBytes(1),
            ..Resources::default()
        };
        assert!(gpu.shortage(&free).expect("no GPU").contains("GPU"));
    }
}
