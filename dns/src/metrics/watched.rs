//! Metrics of the queries that are looked at more closely than others.

use fdn_core::ClientPrefix;
use fdn_service::ServiceError;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, Registry};

/// What was seen of them.
#[derive(Debug)]
pub struct WatchedMetrics {
    /// Lengths of bound prefixes, for IPv4 and IPv6.
    matched: [Histogram; 2],
    /// Lines of the log of queries that had no room in its queue.
    pub log_dropped: IntCounter,
}

impl WatchedMetrics {
    /// Makes the metrics and registers them.
    ///
    /// # Errors
    /// When a name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let lengths = [
            0u8, 8, 12, 16, 18, 20, 21, 22, 23, 24, 28, 32, 36, 40, 44, 48, 52, 56, 64,
        ];
        let matched = HistogramVec::new(
            HistogramOpts::new(
                "fdn_dns_matched_prefix_length",
                "Length of the bound prefix around the client, of one query for an app in 16; 0: none.",
            )
            .buckets(lengths.map(f64::from).to_vec()),
            &["family"],
        )?;
        let log_dropped = IntCounter::new(
            "fdn_dns_query_log_dropped_total",
            "Lines of the query log that had no room in its queue.",
        )?;
        registry.register(Box::new(matched.clone()))?;
        registry.register(Box::new(log_dropped.clone()))?;
        Ok(Self {
            matched: ["ipv4", "ipv6"].map(|family| matched.with_label_values(&[family])),
            log_dropped,
        })
    }

    /// Records the length of the prefix that was bound for a client, 0 if none was.
    pub fn matched(&self, client: ClientPrefix, len: u8) {
        let family = usize::from(client.addr().is_ipv6());
        self.matched[family].observe(f64::from(len));
    }
}
