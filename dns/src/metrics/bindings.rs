//! Metrics of the bindings held.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntGauge, Registry};

/// The number of bindings, and failures to receive or save them.
#[derive(Debug)]
pub struct BindingMetrics {
    /// Changes that could not be applied because an earlier one is missing.
    pub gaps: IntCounter,
    /// Bindings of prefixes to clusters, over all apps.
    pub held: IntGauge,
    /// Distinct tables of bindings.
    pub tables: IntGauge,
    /// Failures to write the state to disk.
    pub unsaved: IntCounter,
}

impl BindingMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let gaps = IntCounter::new(
            "fdn_dns_gaps_total",
            "Changes not taken because one before them is missing; a snapshot is asked for.",
        )?;
        let held = IntGauge::new(
            "fdn_dns_bindings",
            "Bindings of prefixes to clusters, of all apps.",
        )?;
        let tables = IntGauge::new(
            "fdn_dns_binding_tables",
            "Different tables of bindings; apps with the same one share it.",
        )?;
        let unsaved = IntCounter::new(
            "fdn_dns_state_write_errors_total",
            "Times that the state could not be written to the data directory.",
        )?;
        registry.register(Box::new(gaps.clone()))?;
        registry.register(Box::new(unsaved.clone()))?;
        registry.register(Box::new(held.clone()))?;
        registry.register(Box::new(tables.clone()))?;
        Ok(Self {
            gaps,
            held,
            tables,
            unsaved,
        })
    }
}
