//! Metrics of how clients are steered.

use fdn_service::ServiceError;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

/// What part of its clients each cluster gives away.
///
/// # Errors
/// When the name is registered already.
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

/// Which gateways pass their health checks.
///
/// # Errors
/// When the name is registered already.
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
