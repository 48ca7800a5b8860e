//! The settings of the scheduler of invocations.

use super::learn::LearnSettings;
use super::order::Order;
use super::queue::QueueLimits;
use super::refusal::Refusal;
use super::starvation::Guard;

/// The settings of the scheduler, except the keep-alive policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// The order in which waiting invocations start.
    pub order: Order,
    /// Whether an invocation waits for a busy container of its function, where that is likely to be free before a new one is loaded,
    /// rather than evict an idle container of another function.
    pub queue_or_cold: bool,
    /// Whether an idle container for whose function invocations wait serves them before it is evicted for an invocation ahead of them.
    pub use_before_evicting: bool,
    /// The guard against starvation; `None` turns it off.
    pub starvation: Option<Guard>,
    /// How profiles follow observations; `None` keeps them as given.
    pub learn: Option<LearnSettings>,
    /// Bounds on waiting invocations.
    pub queue: QueueLimits,
    /// Bounds on functions and workers.
    pub tables: TableLimits,
}

/// Bounds of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// The most function versions.
    pub functions: usize,
    /// The most workers.
    pub workers: usize,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            functions: 100_000,
            workers: 10_000,
        }
    }
}

/// The largest bound of any table.
const ROWS_MAX: usize = 1 << 31;

impl Settings {
    /// # Errors
    /// When a bound is zero or above [`ROWS_MAX`], or a quantum is not positive.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let limits = [
            self.queue.total,
            self.queue.per_function,
            self.tables.functions,
            self.tables.workers,
        ];
        if limits.iter().any(|limit| !(1..=ROWS_MAX).contains(limit)) {
            let what = "a limit of a queue or table must be from 1 to 2^31";
            return Err(Refusal::InvalidSetting { what });
        }
        let quantum = self.order.quantum();
        if quantum.is_some_and(|quantum| quantum.get() <= 0.0 || !quantum.is_finite()) {
            let what = "a quantum must be above 0";
            return Err(Refusal::InvalidSetting { what });
        }
        Ok(())
    }
}
