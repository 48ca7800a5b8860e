//! What is counted of the compile cache.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::Maker;

/// Of functions that need not be compiled again, and the packs that they lie in.
pub struct PackMetrics {
    /// Functions of components that were compiled here, by result: `hit`, `miss`.
    pub functions: IntCounterVec,
    /// Bytes of packs in the artifact store, as this controller saw them last.
    pub bytes: IntGauge,
    /// Packs there, likewise.
    pub packs: IntGauge,
    /// Packs that this controller removed because others needed their room.
    pub evictions: IntCounter,
    /// Packs that were removed because they were damaged, of another compiler, or not signed by an authority of the network.
    pub refused: IntCounter,
    /// Exchanges with the artifact store that failed or took too long.
    pub failures: IntCounter,
}

impl PackMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, ServiceError> {
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
