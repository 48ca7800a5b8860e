//! Metrics of the compile cache.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::MetricFactory;

/// Metrics of compiled functions in the cache, and of the packs that hold them.
pub struct PackMetrics {
    /// Functions of components compiled here, by cache result: `hit`, `miss`.
    pub functions: IntCounterVec,
    /// Bytes of packs in the artifact store, as this controller last saw.
    pub bytes: IntGauge,
    /// The number of packs in the artifact store, as this controller last saw.
    pub packs: IntGauge,
    /// Packs that this controller evicted to make room for others.
    pub evictions: IntCounter,
    /// Packs removed because they were damaged, of another compiler, or not signed by an authority of the network.
    pub refused: IntCounter,
    /// Requests to the artifact store that failed or timed out.
    pub failures: IntCounter,
}

impl PackMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            functions: make.counters(
                "fdn_controller_compile_cache_functions_total",
                "Functions of components that were compiled, by whether they were in the compile cache",
                &["result"],
            )?,
            bytes: make.gauge(
                "fdn_controller_compile_cache_bytes",
                "Bytes of the compile cache in the artifact store",
            )?,
            packs: make.gauge(
                "fdn_controller_compile_cache_packs",
                "Packs of the compile cache in the artifact store",
            )?,
            evictions: make.counter(
                "fdn_controller_compile_cache_evictions_total",
                "Packs removed from the compile cache because others needed their room",
            )?,
            refused: make.counter(
                "fdn_controller_compile_cache_refused_total",
                "Packs of the compile cache removed because they could not be trusted or used",
            )?,
            failures: make.counter(
                "fdn_controller_compile_cache_failures_total",
                "Exchanges of the compile cache with the artifact store that failed",
            )?,
        })
    }
}
