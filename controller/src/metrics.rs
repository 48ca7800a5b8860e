//! What is counted, in a registry of its own.

use fdn_service::ServiceError;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// The controller's metrics. Labels are routes, statuses, codes and message kinds: all from fixed sets.
pub struct Metrics {
    /// Where they are registered.
    pub registry: Registry,
    /// Requests by method, route and status.
    pub requests: IntCounterVec,
    /// Time of requests by route.
    pub request_seconds: HistogramVec,
    /// Deploys by result: `accepted`, `unchanged`, or the error's code.
    pub deploys: IntCounterVec,
    /// Logins by result: `ok`, `wrong`, `throttled`.
    pub logins: IntCounterVec,
    /// Usage records that nodes handed over, by result.
    pub usage_records: IntCounterVec,
    /// Machines that asked to be let in, by result: `ok`, `refused`, `failed`.
    pub enrolments: IntCounterVec,
    /// Certificates renewed, by result: `ok`, `refused`, `failed`.
    pub renewals: IntCounterVec,
    /// Messages that wait in the outbox.
    pub outbox_depth: IntGauge,
    /// Age of the oldest of them in milliseconds.
    pub outbox_age: IntGauge,
    /// Messages published, by kind.
    pub published: IntCounterVec,
    /// Failures to publish.
    pub publish_failures: IntCounter,
    /// Reports consumed, by kind and result: `used`, `duplicate`, `stale`, `refused`.
    pub consumed: IntCounterVec,
    /// Age of the last report when it was consumed, in milliseconds, by the sender's clock.
    pub consumer_lag: IntGauge,
    /// Reports of demand for which there was no room.
    pub demand_dropped: IntGauge,
    /// Plans made.
    pub plans: IntCounter,
    /// Bindings whose clients were moved.
    pub moved: IntCounter,
    /// Time of a planning pass.
    pub plan_seconds: Histogram,
    /// Database connections by state: `open`, `idle`.
    pub connections: IntGaugeVec,
    /// Nodes by state: `alive`, `known`.
    pub nodes: IntGaugeVec,
    /// Dead letters of the controllers' channel.
    pub dead_letters: IntGauge,
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn add<T: prometheus::core::Collector + Clone + 'static>(
        &self,
        metric: prometheus::Result<T>,
    ) -> Result<T, ServiceError> {
        let metric = metric?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, ServiceError> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, ServiceError> {
        self.add(IntCounter::new(name, help))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, ServiceError> {
        self.add(IntGauge::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str) -> Result<IntGaugeVec, ServiceError> {
        self.add(IntGaugeVec::new(Opts::new(name, help), &["state"]))
    }
}

impl Metrics {
    /// Makes all metrics.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new() -> Result<Self, ServiceError> {
        let make = Maker(Registry::new());
        let buckets = vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
        let request_seconds =
            HistogramOpts::new("fdn_controller_request_seconds", "Time of requests")
                .buckets(buckets.clone());
        let plan_seconds =
            HistogramOpts::new("fdn_controller_plan_seconds", "Time of a planning pass")
                .buckets(buckets);
        Ok(Self {
            requests: make.counters(
                "fdn_controller_requests_total",
                "Requests",
                &["method", "route", "status"],
            )?,
            request_seconds: make.add(HistogramVec::new(request_seconds, &["route"]))?,
            deploys: make.counters(
                "fdn_controller_deploys_total",
                "Deploys by result",
                &["result"],
            )?,
            logins: make.counters(
                "fdn_controller_logins_total",
                "Logins by result",
                &["result"],
            )?,
            usage_records: make.counters(
                "fdn_controller_usage_records_total",
                "Usage records that nodes handed over",
                &["result"],
            )?,
            enrolments: make.counters(
                "fdn_controller_enrolments_total",
                "Machines that asked to be let in, by result",
                &["result"],
            )?,
            renewals: make.counters(
                "fdn_controller_renewals_total",
                "Certificates renewed, by result",
                &["result"],
            )?,
            outbox_depth: make.gauge(
                "fdn_controller_outbox_depth",
                "Messages that wait in the outbox",
            )?,
            outbox_age: make.gauge(
                "fdn_controller_outbox_age_milliseconds",
                "Age of the oldest message in the outbox",
            )?,
            published: make.counters(
                "fdn_controller_published_total",
                "Messages published",
                &["kind"],
            )?,
            publish_failures: make.counter(
                "fdn_controller_publish_failures_total",
                "Failures to publish",
            )?,
            consumed: make.counters(
                "fdn_controller_consumed_total",
                "Reports consumed",
                &["kind", "result"],
            )?,
            consumer_lag: make.gauge(
                "fdn_controller_consumer_lag_milliseconds",
                "Age of the last report when it was consumed",
            )?,
            demand_dropped: make.gauge(
                "fdn_controller_demand_dropped",
                "Reports of demand for which there was no room",
            )?,
            plans: make.counter("fdn_controller_plans_total", "Plans made")?,
            moved: make.counter(
                "fdn_controller_bindings_moved_total",
                "Bindings whose clients were moved",
            )?,
            plan_seconds: make.add(Histogram::with_opts(plan_seconds))?,
            connections: make.gauges(
                "fdn_controller_database_connections",
                "Database connections",
            )?,
            nodes: make.gauges("fdn_controller_nodes", "Nodes")?,
            dead_letters: make.gauge(
                "fdn_controller_dead_letters",
                "Dead letters of the controllers' channel",
            )?,
            registry: make.0,
        })
    }
}
