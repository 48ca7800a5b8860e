//! The memory limit of one instance: all linear memories and tables of the store together.
//!
//! Wasmtime's own `StoreLimits` limits each memory separately, so that a component with ten memories could hold ten times its
//! limit. A refusal is remembered, because after a refused `memory.grow` a guest usually aborts, and the log
//! should then name the limit and not the abort.

use wasmtime::ResourceLimiter;

/// Bytes of a table element; wasmtime stores a pointer for each.
const TABLE_ELEMENT: u64 = std::mem::size_of::<usize>() as u64;
/// Components made of several modules have a handful; Python's has about 14.
const MAX_INSTANCES: usize = 64;

/// Counts what the store holds, in bytes.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: u64,
    held: u64,
    peak: u64,
    last_growth: u64,
    refused: bool,
}

impl Limiter {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            held: 0,
            peak: 0,
            last_growth: 0,
            refused: false,
        }
    }

    /// Prepares for another call: sets its limit and forgets a refusal of an earlier call.
    pub(crate) fn begin_call(&mut self, limit: u64) {
        self.limit = limit;
        self.refused = false;
    }

    /// Whether memory was refused to the running call.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    /// The most bytes held so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    fn grow(&mut self, by: u64, maximum_fits: bool) -> bool {
        let wanted = self.held.saturating_add(by);
        if wanted > self.limit || !maximum_fits {
            self.refused = true;
            return false;
        }
        self.held = wanted;
        self.peak = self.peak.max(wanted);
        self.last_growth = by;
        true
    }

    /// Takes back the growth that was just allowed, because it failed.
    fn undo(&mut self) {
        self.held = self.held.saturating_sub(self.last_growth);
        self.last_growth = 0;
        self.refused = true;
    }
}

fn bytes(from: usize, to: usize) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(u64::MAX)
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(self.grow(bytes(current, desired), fits))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(self.grow(bytes(current, desired).saturating_mul(TABLE_ELEMENT), fits))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_INSTANCES
    }

    fn memories(&self) -> usize {
        MAX_INSTANCES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_bound() {
        let mut limiter = Limiter::new(3 << 16);
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no trap"));
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no trap"));
        assert!(limiter.table_growing(0, 8192, None).expect("no trap"));
        assert!(!limiter.refused());
        assert!(
            !limiter
                .memory_growing(1 << 16, 2 << 16, None)
                .expect("no trap")
        );
        assert!(limiter.refused());
        assert_eq!(limiter.peak(), 3 << 16);
        limiter.begin_call(4 << 16);
        assert!(!limiter.refused());
        assert!(
            limiter
                .memory_growing(1 << 16, 2 << 16, None)
                .expect("no trap")
        );
    }

    #[test]
    fn a_growth_that_failed_is_not_counted() {
        let mut limiter = Limiter::new(1 << 16);
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no trap"));
        limiter
            .memory_grow_failed(wasmtime::Error::msg("no pages"))
            .expect("no trap");
        assert!(limiter.refused());
        limiter.begin_call(1 << 16);
        assert!(limiter.memory_growing(0, 1 << 16, None).expect("no trap"));
        assert!(
            !limiter
                .memory_growing(0, 1 << 16, Some(0))
                .expect("no trap")
        );
    }
}
