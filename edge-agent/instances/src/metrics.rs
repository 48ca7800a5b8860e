//! Metrics of the runtimes.

use std::time::Duration;

use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::error::StartError;
use crate::runtime::Kind;
use crate::state::{Exit, ExitReason};

/// Metrics of all runtimes of a process; cheap to clone. They count whether or not they are registered.
#[derive(Clone, Debug)]
pub struct Metrics {
    starts: IntCounterVec,
    start_seconds: HistogramVec,
    exits: IntCounterVec,
    live: IntGaugeVec,
    collected: IntCounterVec,
    requests: IntCounterVec,
    watches: IntCounterVec,
    ahead: IntGauge,
    ahead_starts: IntCounterVec,
    images: IntGauge,
    images_removed: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("names and labels are fixed")
        };
        let buckets = vec![0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0, 15.0, 60.0];
        Self {
            starts: counter(
                "fdn_instance_starts_total",
                "Starts of instances by runtime and outcome.",
                &["runtime", "outcome"],
            ),
            start_seconds: HistogramVec::new(
                HistogramOpts::new(
                    "fdn_instance_start_seconds",
                    "From the order to the first answer, of starts that succeeded.",
                )
                .buckets(buckets),
                &["runtime"],
            )
            .expect("names and labels are fixed"),
            exits: counter(
                "fdn_instance_exits_total",
                "Ends of instances by runtime and reason.",
                &["runtime", "reason"],
            ),
            live: IntGaugeVec::new(
                Opts::new(
                    "fdn_instances_live",
                    "Instances that run now, paused ones included.",
                ),
                &["runtime"],
            )
            .expect("names and labels are fixed"),
            collected: counter(
                "fdn_instances_collected_total",
                "What crashed starts and lost agents had left behind and was removed.",
                &["runtime"],
            ),
            requests: counter(
                "fdn_kubernetes_requests_total",
                "Requests to the API server of Kubernetes by operation and outcome, each try counted.",
                &["operation", "outcome"],
            ),
            watches: counter(
                "fdn_kubernetes_watches_total",
                "Watches that ended by what came after: resumed, broken (resumed after a pause), relisted (410).",
                &["next"],
            ),
            ahead: IntGauge::new(
                "fdn_docker_containers_ahead",
                "Containers that were created ahead and wait for a start.",
            )
            .expect("names and labels are fixed"),
            ahead_starts: counter(
                "fdn_docker_starts_ahead_total",
                "Starts that were expected, by what was created ahead: used, none, failed (did not start and was made anew).",
                &["result"],
            ),
            images: IntGauge::new(
                "fdn_docker_images_bytes",
                "Size of the images that were brought to the engine, when one was brought last.",
            )
            .expect("names and labels are fixed"),
            images_removed: IntCounter::new(
                "fdn_docker_images_removed_total",
                "Images that were removed from the engine because nobody needed them.",
            )
            .expect("names and labels are fixed"),
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.starts.clone()))?;
        registry.register(Box::new(self.start_seconds.clone()))?;
        registry.register(Box::new(self.exits.clone()))?;
        registry.register(Box::new(self.live.clone()))?;
        registry.register(Box::new(self.collected.clone()))?;
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.watches.clone()))?;
        registry.register(Box::new(self.ahead.clone()))?;
        registry.register(Box::new(self.ahead_starts.clone()))?;
        registry.register(Box::new(self.images.clone()))?;
        registry.register(Box::new(self.images_removed.clone()))
    }

    pub(crate) fn started(&self, kind: Kind, outcome: Result<Duration, &StartError>) {
        let kind = label(kind);
        let word = match outcome {
            Ok(took) => {
                self.start_seconds
                    .with_label_values(&[kind])
                    .observe(took.as_secs_f64());
                "ok"
            }
            Err(error) => error.label(),
        };
        self.starts.with_label_values(&[kind, word]).inc();
    }

    pub(crate) fn alive(&self, kind: Kind, change: i64) {
        self.live.with_label_values(&[label(kind)]).add(change);
    }

    pub(crate) fn exited(&self, kind: Kind, exit: &Exit) {
        let reason = match exit.reason {
            ExitReason::Ended => "ended",
            ExitReason::OutOfMemory => "out_of_memory",
            ExitReason::Stopped => "stopped",
            ExitReason::Lost => "lost",
        };
        self.exits.with_label_values(&[label(kind), reason]).inc();
    }

    pub(crate) fn request_finished(&self, operation: &str, outcome: &str) {
        let labels = [operation, outcome];
        self.requests.with_label_values(&labels).inc();
    }

    pub(crate) fn watch_ended(&self, next: &str) {
        self.watches.with_label_values(&[next]).inc();
    }

    pub(crate) fn set_precreated(&self, count: usize) {
        self.ahead.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn precreated_start(&self, result: &str) {
        self.ahead_starts.with_label_values(&[result]).inc();
    }

    pub(crate) fn set_image_bytes(&self, bytes: u64) {
        self.images.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn image_removed(&self) {
        self.images_removed.inc();
    }

    pub(crate) fn collected(&self, kind: Kind, count: usize) {
        self.collected
            .with_label_values(&[label(kind)])
            .inc_by(count as u64);
    }
}

const fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Wasm => "wasm",
        Kind::Docker => "docker",
        Kind::Kubernetes => "kubernetes",
        Kind::Elsewhere => "elsewhere",
        Kind::Fake => "fake",
    }
}
