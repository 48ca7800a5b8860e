//! Metrics of the signatures.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntGauge, Registry};

/// How many signatures are made and kept. Clones count together.
#[derive(Clone, Debug)]
pub struct SigningMetrics {
    /// Signatures made.
    pub made: IntCounter,
    /// Answers over UDP that needed a signature beyond the second's limit.
    pub over_limit: IntCounter,
    /// Signatures kept of sets that exist.
    pub answers: IntGauge,
    /// Signatures kept of denials and of records made of wildcards.
    pub denials: IntGauge,
    /// Looks at the key file that failed.
    pub unread: IntCounter,
}

impl SigningMetrics {
    /// Makes the metrics and registers them.
    ///
    /// # Errors
    /// When a name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let metrics = Self {
            made: IntCounter::new("fdn_dns_signatures_total", "DNSSEC signatures made.")?,
            over_limit: IntCounter::new(
                "fdn_dns_signatures_limited_total",
                "Answers over UDP that needed a signature beyond the limit of this second.",
            )?,
            answers: IntGauge::new(
                "fdn_dns_signatures_held",
                "DNSSEC signatures kept of sets that exist.",
            )?,
            denials: IntGauge::new(
                "fdn_dns_denial_signatures_held",
                "DNSSEC signatures kept of denials and of records made of wildcards.",
            )?,
            unread: IntCounter::new(
                "fdn_dns_key_file_errors_total",
                "Looks at the DNSSEC key file that failed; the keys held go on.",
            )?,
        };
        for counter in [&metrics.made, &metrics.over_limit, &metrics.unread] {
            registry.register(Box::new(counter.clone()))?;
        }
        for gauge in [&metrics.answers, &metrics.denials] {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(metrics)
    }
}
