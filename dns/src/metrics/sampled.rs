//! Metrics of sampled queries.

use fdn_core::ClientPrefix;
use fdn_service::ServiceError;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, Registry};

use crate::query_log::SteeringNote;

/// Upper bounds of the buckets for prefix lengths, in bits.
const LENGTHS: [u8; 19] = [
    0, 8, 12, 16, 18, 20, 21, 22, 23, 24, 28, 32, 36, 40, 44, 48, 52, 56, 64,
];

/// The metrics of sampled queries.
#[derive(Debug)]
pub struct SampledMetrics {
    /// Lengths of bound prefixes, for IPv4 and IPv6.
    matched: [Histogram; 2],
    /// Lengths of scopes, for IPv4 and IPv6.
    scopes: [Histogram; 2],
    /// Lines of the query log that were dropped because its queue was full.
    pub log_dropped: IntCounter,
}

impl SampledMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let lengths = |name: &str, help: &str| {
            let histogram = HistogramVec::new(
                HistogramOpts::new(name, help).buckets(LENGTHS.map(f64::from).to_vec()),
                &["family"],
            )?;
            registry.register(Box::new(histogram.clone()))?;
            let each = ["ipv4", "ipv6"].map(|family| histogram.with_label_values(&[family]));
            Ok::<_, prometheus::Error>(each)
        };
        let log_dropped = IntCounter::new(
            "fdn_dns_query_log_dropped_total",
            "Lines of the query log that had no room in its queue.",
        )?;
        registry.register(Box::new(log_dropped.clone()))?;
        Ok(Self {
            matched: lengths(
                "fdn_dns_matched_prefix_length",
                "Length of the bound prefix around the client, of one query for an app in 16; 0: none.",
            )?,
            scopes: lengths(
                "fdn_dns_scope_length",
                "Scope of the answer, of one query for an app in 16 that tells a client subnet; 0: for everybody.",
            )?,
            log_dropped,
        })
    }

    /// Records what the answer for a client of an app was based on: the length of the bound prefix, 0 if there is none, and the scope if the
    /// answer carries one.
    pub fn observe(&self, client: ClientPrefix, note: &SteeringNote) {
        let family = usize::from(client.addr().is_ipv6());
        self.matched[family].observe(f64::from(note.matched()));
        if let Some(scope) = note.sent_scope() {
            self.scopes[family].observe(f64::from(scope));
        }
    }
}
