//! Metrics of the compile cache, for a node that compiles by itself.

use prometheus::{IntCounterVec, IntGauge};

use super::Maker;

/// Metrics of the compile cache.
#[derive(Clone, Debug)]
pub struct CompileCacheMetrics {
    /// Functions of compiled components, by whether they were in the cache: `hit`, `miss`.
    pub functions: IntCounterVec,
    /// The size of the cache, in bytes.
    pub size: IntGauge,
    /// Packs evicted since the start to make room for others.
    pub evictions: IntGauge,
}

impl CompileCacheMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        Ok(Self {
            functions: make.counters(
                "compile_cache_functions_total",
                "Functions of components that were compiled, by whether they were in the compile cache.",
                &["result"],
            )?,
            size: make.gauge("compile_cache_bytes", "Bytes of the compile cache.")?,
            evictions: make.gauge(
                "compile_cache_evictions",
                "Packs removed from the compile cache since the start because others needed their room.",
            )?,
        })
    }
}
