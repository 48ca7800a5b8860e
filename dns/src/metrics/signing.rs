//! Metrics of DNSSEC signatures.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntGauge, Registry};

/// The number of signatures made and cached. Clones share their counters.
#[derive(Clone, Debug)]
pub struct SigningMetrics {
    /// Signatures made.
    pub made: IntCounter,
    /// Answers over UDP that needed a signature beyond the limit of their second.
    pub over_limit: IntCounter,
    /// Cached signatures of record sets that exist.
    pub answers: IntGauge,
    /// Cached signatures of denials and of wildcard expansions.
    pub denials: IntGauge,
    /// Failures to read the key file.
    pub unread: IntCounter,
}

impl SigningMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
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
