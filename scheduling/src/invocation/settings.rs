//! How the scheduler of invocations is set.

use super::learn::LearnSettings;
use super::order::Order;
use super::queue::QueueLimits;
use super::refusal::Refusal;
use super::starvation::Guard;

/// The settings of the scheduler, all but the keep-alive policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// In which order waiting invocations start.
    pub order: Order,
    /// Whether an invocation waits for a busy container of its function, where that is likely free before a new one is
    /// loaded, rather than have an idle one of another function released.
    pub queue_or_cold: bool,
    /// Whether an idle container for whose function invocations wait serves them before it is evicted for one that is ahead
    /// of them.
    pub use_before_evicting: bool,
    /// Whether invocations that waited too long go first.
    pub starvation: Option<Guard>,
    /// Whether profiles follow what is seen.
    pub learn: Option<LearnSettings>,
    /// How many invocations may wait.
    pub queue: QueueLimits,
    /// How many functions and workers may be known.
    pub tables: TableLimits,
}

/// How much may be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Function versions.
    pub functions: usize,
    /// Workers.
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

/// More rows than any table may have.
const ROWS_MAX: usize = 1 << 31;

impl Settings {
    /// # Errors
    /// When a bound is none, or a quantum is no time.
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
