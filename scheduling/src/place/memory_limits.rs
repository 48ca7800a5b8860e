//! Memory constraints of a placement that serves many calls: what its instances need and what other apps leave.
//!
//! A single job holds one container per task. Clients that call repeatedly need more: several instances, or a share of one that already
//! runs. How much that is depends on the cluster (a fast one needs fewer instances) and is computed by the caller, task by task
//! ([`crate::compete`]).

use std::ops::{Add, Sub};

use fdn_core::{MebiBytes, Resources};

use super::infeasible::Exclusion;
use super::problem::ProblemError;

/// Tolerance for rounding errors, in MiB.
const EPSILON: f64 = 1e-6;

/// Memory of machines and of GPU devices, in MiB. Time averages are fractional; a difference can be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Main memory of machines.
    pub main: f64,
    /// Memory of GPU devices.
    pub gpu: f64,
}

impl Memory {
    /// The memory of a resource vector.
    #[must_use]
    pub fn of(resources: &Resources) -> Self {
        Self {
            main: resources.memory_mib.get() as f64,
            gpu: resources.gpu_memory_mib.get() as f64,
        }
    }

    /// Both kinds multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            main: self.main * factor,
            gpu: self.gpu * factor,
        }
    }

    /// The larger amount of each kind.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            main: self.main.max(other.main),
            gpu: self.gpu.max(other.gpu),
        }
    }

    /// Adds `other`, but only to those kinds of which `self` is not zero: a task that needs no memory of a kind is not kept out by reserves of it.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        let sum = |own: f64, other: f64| {
            let beside = if own > EPSILON { other.max(0.0) } else { 0.0 };
            own + beside
        };
        Self {
            main: sum(self.main, other.main),
            gpu: sum(self.gpu, other.gpu),
        }
    }

    /// Whether this fits into `left`. An amount of zero always fits, even where `left` is negative.
    #[must_use]
    pub fn fits(&self, left: &Self) -> bool {
        let fits = |wanted: f64, left: f64| wanted <= EPSILON || wanted <= left + EPSILON;
        fits(self.main, left.main) && fits(self.gpu, left.gpu)
    }

    /// In whole MiB, without CPU, rounded by `round`; negative amounts become zero.
    fn whole(self, round: impl Fn(f64) -> f64) -> Resources {
        let mebibytes = |amount: f64| MebiBytes(round(amount).max(0.0) as u64);
        Resources {
            memory_mib: mebibytes(self.main),
            gpu_memory_mib: mebibytes(self.gpu),
            ..Resources::default()
        }
    }
}

impl Add for Memory {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            main: self.main + other.main,
            gpu: self.gpu + other.gpu,
        }
    }
}

impl Sub for Memory {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            main: self.main - other.main,
            gpu: self.gpu - other.gpu,
        }
    }
}

/// The memory that each task would need of each cluster, and the memory left there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryLimits {
    tasks: usize,
    needs: Vec<Memory>,
    left: Vec<Memory>,
}

impl MemoryLimits {
    /// Recomputes the needs, by task and cluster, and what is left, by cluster, into the existing buffers.
    pub fn refill(
        &mut self,
        (tasks, clusters): (usize, usize),
        mut need: impl FnMut(usize, usize) -> Memory,
        left: impl FnMut(usize) -> Memory,
    ) {
        self.tasks = tasks;
        self.needs.clear();
        for task in 0..tasks {
            self.needs
                .extend((0..clusters).map(|cluster| need(task, cluster)));
        }
        self.left.clear();
        self.left.extend((0..clusters).map(left));
    }

    /// Reduces what is left of each cluster by `less(cluster)`.
    pub fn withhold(&mut self, mut less: impl FnMut(usize) -> Memory) {
        for (cluster, left) in self.left.iter_mut().enumerate() {
            *left = *left - less(cluster);
        }
    }

    /// Whether the table has `tasks` rows of `clusters` columns.
    pub(super) fn check(&self, tasks: usize, clusters: usize) -> Result<(), ProblemError> {
        for (what, given, wanted) in [
            ("rows of needs", self.tasks, tasks),
            ("columns of needs", self.left.len(), clusters),
        ] {
            if given != wanted {
                return Err(ProblemError::Size {
                    what,
                    given,
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// The memory left of a cluster before anything of this job is placed.
    pub(super) fn left(&self, cluster: usize) -> Memory {
        self.left[cluster]
    }

    /// The memory that a task needs on a cluster; zero for a virtual entry.
    pub(super) fn need(&self, task: usize, cluster: usize) -> Memory {
        let at = task * self.left.len() + cluster;
        self.needs.get(at).copied().unwrap_or_default()
    }

    /// The exclusion of a task whose need does not fit into `left`; `None` if it fits.
    pub(super) fn crowded(&self, task: usize, cluster: usize, left: &Memory) -> Option<Exclusion> {
        let need = self.need(task, cluster);
        (!need.fits(left)).then(|| Exclusion::Crowded {
            wanted: need.whole(f64::ceil),
            left: left.whole(f64::floor),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(main: f64, gpu: f64) -> Memory {
        Memory { main, gpu }
    }

    #[test]
    fn both_kinds_must_fit_and_nothing_always_does() {
        assert!(memory(2.0, 1.0).fits(&memory(2.0, 1.0)));
        assert!(!memory(2.1, 0.0).fits(&memory(2.0, 1.0)));
        assert!(!memory(1.0, 1.1).fits(&memory(2.0, 1.0)));
        assert!(memory(0.0, 0.0).fits(&memory(-5.0, -1.0)));
        assert!(memory(0.0, 1.0).fits(&memory(-5.0, 1.0)));
        let beside = memory(1.0, 0.0).beside(memory(2.0, 3.0));
        assert_eq!(beside, memory(3.0, 0.0));
    }

    #[test]
    fn what_is_said_never_looks_as_if_it_fitted() {
        let mut memory_limits = MemoryLimits::default();
        memory_limits.refill((1, 1), |_, _| memory(64.2, 0.0), |_| memory(64.1, 0.0));
        let why = memory_limits
            .crowded(0, 0, &memory_limits.left(0))
            .expect("too little");
        assert_eq!(
            why.to_string(),
            "has its memory promised to others: wants 65 MiB memory, 64 MiB free"
        );
        memory_limits.withhold(|_| memory(100.0, 0.0));
        let why = memory_limits
            .crowded(0, 0, &memory_limits.left(0))
            .expect("too little");
        assert!(why.to_string().ends_with("wants 65 MiB memory, 0 MiB free"));
        assert_eq!(
            memory_limits.crowded(1, 0, &memory_limits.left(0)),
            None,
            "a virtual entry"
        );
    }
}
