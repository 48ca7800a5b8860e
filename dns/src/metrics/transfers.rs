//! Metrics of signed requests, zone transfers, and notices of zone changes.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The counters of zone transfers and notices.
#[derive(Clone, Debug)]
pub struct TransferMetrics {
    /// Transfers of the whole zone.
    pub whole: IntCounter,
    /// Transfer requests from secondaries that already have the newest version.
    pub current: IntCounter,
    /// Notices that were answered.
    pub answered: IntCounter,
    /// Notices that were not answered after all attempts.
    pub unanswered: IntCounter,
    /// Signed requests that were rejected. The reasons are those in the code, and few.
    denied: IntCounterVec,
}

impl TransferMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let counters = |name: &str, help: &str, label| {
            let counters = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let transfers = counters(
            "fdn_dns_transfers_total",
            "Requests for a transfer of the zone that were answered, by answer.",
            "answer",
        )?;
        let notices = counters(
            "fdn_dns_notices_total",
            "Notices to secondaries of a changed zone, by whether they were answered.",
            "result",
        )?;
        Ok(Self {
            whole: transfers.with_label_values(&["whole"]),
            current: transfers.with_label_values(&["current"]),
            answered: notices.with_label_values(&["answered"]),
            unanswered: notices.with_label_values(&["unanswered"]),
            denied: counters(
                "fdn_dns_signed_requests_denied_total",
                "Signed requests (TSIG) that were not believed, by reason.",
                "reason",
            )?,
        })
    }

    /// Counts a signed request that was rejected.
    pub fn denied(&self, reason: &str) {
        self.denied.with_label_values(&[reason]).inc();
    }
}
