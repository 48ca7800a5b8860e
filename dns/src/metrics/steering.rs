//! Metrics of how clients are steered.

use fdn_service::ServiceError;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

/// Registers the share of its clients that each cluster sends elsewhere.
///
/// # Errors
/// When the name is already registered.
pub(super) fn shed(registry: &Registry) -> Result<GaugeVec, ServiceError> {
    let shed = GaugeVec::new(
        Opts::new(
            "fdn_dns_shed_ratio",
            "Part of a cluster's clients that is sent elsewhere because of its load.",
        ),
        &["cluster"],
    )?;
    registry.register(Box::new(shed.clone()))?;
    Ok(shed)
}

/// Registers the health of each gateway.
///
/// # Errors
/// When the name is already registered.
pub(super) fn health(registry: &Registry) -> Result<IntGaugeVec, ServiceError> {
    let health = IntGaugeVec::new(
        Opts::new(
            "fdn_dns_gateway_up",
            "Whether a gateway passes its health checks.",
        ),
        &["cluster", "gateway"],
    )?;
    registry.register(Box::new(health.clone()))?;
    Ok(health)
}
