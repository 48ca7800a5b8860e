//! Metrics of the encrypted connections.

use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::handler::streams::ConnectionMetrics;

/// The metrics of one encrypted transport.
#[derive(Clone, Debug)]
pub struct TransportMetrics {
    /// Open connections.
    pub open: IntGauge,
    /// Connections closed at once because a limit was reached.
    pub refused: IntCounter,
    /// Handshakes that failed or took too long.
    pub failed: IntCounter,
}

impl TransportMetrics {
    /// The counters that the connection loop uses.
    #[must_use]
    pub fn connections(&self) -> ConnectionMetrics {
        ConnectionMetrics {
            open: self.open.clone(),
            refused: self.refused.clone(),
        }
    }
}

/// The encrypted connections and their certificate.
#[derive(Debug)]
pub struct EncryptedMetrics {
    /// DNS over TLS.
    pub tls: TransportMetrics,
    /// DNS over HTTPS.
    pub https: TransportMetrics,
    /// Failures to read the certificate's files.
    pub unread: IntCounter,
    /// Requests over HTTPS that got no DNS answer, by HTTP status. The statuses are those in the code, and few.
    statuses: IntCounterVec,
}

impl EncryptedMetrics {
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
        let open = IntGaugeVec::new(
            Opts::new(
                "fdn_dns_encrypted_open",
                "Encrypted connections open now, by transport.",
            ),
            &["transport"],
        )?;
        registry.register(Box::new(open.clone()))?;
        let refused = counters(
            "fdn_dns_encrypted_refused_total",
            "Encrypted connections closed at once because a cap was reached, by transport.",
            "transport",
        )?;
        let failed = counters(
            "fdn_dns_handshakes_failed_total",
            "TLS handshakes that failed or took too long, by transport.",
            "transport",
        )?;
        let unread = IntCounter::new(
            "fdn_dns_certificate_errors_total",
            "Looks at the certificate and its key that failed; the ones held go on.",
        )?;
        registry.register(Box::new(unread.clone()))?;
        let of = |transport| TransportMetrics {
            open: open.with_label_values(&[transport]),
            refused: refused.with_label_values(&[transport]),
            failed: failed.with_label_values(&[transport]),
        };
        Ok(Self {
            tls: of("tls"),
            https: of("https"),
            unread,
            statuses: counters(
                "fdn_dns_https_refused_total",
                "Requests over HTTPS without a DNS answer, by HTTP status.",
                "status",
            )?,
        })
    }

    /// Counts a request over HTTPS that was refused with this HTTP status.
    pub fn refused(&self, status: u16) {
        let status = status.to_string();
        self.statuses.with_label_values(&[status.as_str()]).inc();
    }
}
