//! Metrics of the spool.

use fdn_core::NodeId;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of a node's usage spool.
#[derive(Clone, Debug)]
pub struct SpoolMetrics {
    /// Records written.
    pub records: IntCounter,
    /// Calls refused because there was no room for their records.
    pub refused: IntCounter,
    /// Failed writes and syncs.
    pub failures: IntCounterVec,
    /// Bytes on disk that are not handed over yet, or were set aside.
    pub bytes: IntGauge,
    /// The limit of `bytes`.
    pub limit: IntGauge,
    /// Bytes of records that were handed over and are kept for searches.
    pub log_bytes: IntGauge,
    /// The limit of `log_bytes`.
    pub log_limit: IntGauge,
    /// Segments that wait to be handed over.
    pub waiting: IntGauge,
    /// How long a sync took.
    pub sync_seconds: Histogram,
    /// The number of records that shared a sync.
    pub sync_records: Histogram,
    /// Batches handed over, by result.
    pub batches: IntCounterVec,
    /// Segments that were set aside for an operator.
    pub set_aside: IntCounter,
}

const SYNC_SECONDS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5,
];
const SYNC_RECORDS: [f64; 10] = [
    1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1000.0, 5000.0,
];

impl SpoolMetrics {
    /// Registers the metrics of `node`.
    ///
    /// # Errors
    /// When one of the names is already registered.
    pub fn new(registry: &Registry, node: &NodeId) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| {
            Opts::new(format!("fdn_agent_usage_{name}"), help).const_label("node", node.as_str())
        };
        let counter = |name, help| {
            let counter = IntCounter::with_opts(opts(name, help))?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let counters = |name, help, label| {
            let counters = IntCounterVec::new(opts(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let gauge = |name, help| {
            let gauge = IntGauge::with_opts(opts(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let histogram = |name, help, bounds: &[f64]| {
            let opts = HistogramOpts::from(opts(name, help)).buckets(bounds.to_vec());
            let histogram = Histogram::with_opts(opts)?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        Ok(Self {
            records: counter("records_total", "Records of calls written.")?,
            refused: counter(
                "refused_total",
                "Calls refused for want of room in the spool.",
            )?,
            failures: counters(
                "disk_failures_total",
                "Writes and syncs that the disk failed.",
                "what",
            )?,
            bytes: gauge("spool_bytes", "Bytes in the spool.")?,
            limit: gauge("spool_limit_bytes", "The bound of the spool.")?,
            log_bytes: gauge(
                "log_bytes",
                "Bytes of calls that were handed over and are kept to be searched.",
            )?,
            log_limit: gauge("log_limit_bytes", "The bound of what is kept of calls.")?,
            waiting: gauge(
                "segments_waiting",
                "Whole segments that wait to be handed over.",
            )?,
            sync_seconds: histogram("sync_seconds", "How long a sync took.", &SYNC_SECONDS)?,
            sync_records: histogram("sync_records", "Records that shared a sync.", &SYNC_RECORDS)?,
            batches: counters("batches_total", "Batches handed over.", "result")?,
            set_aside: counter("set_aside_total", "Segments set aside for a person.")?,
        })
    }
}
