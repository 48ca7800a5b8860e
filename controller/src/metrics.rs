//! Prometheus metrics, in a registry of their own.

mod console;
mod edge;
mod packs;

use fdn_service::ServiceError;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use console::ConsoleMetrics;
use edge::EdgeMetrics;
use packs::PackMetrics;

/// The controller's metrics. Labels are routes, statuses, codes and message kinds: all from fixed sets.
pub struct Metrics {
    /// The registry of all metrics.
    pub registry: Registry,
    /// Requests by method, route and status.
    pub requests: IntCounterVec,
    /// The duration of requests, by route.
    pub request_seconds: HistogramVec,
    /// Deploys by result: `accepted`, `unchanged`, or the error's code.
    pub deploys: IntCounterVec,
    /// Logins by result: `ok`, `wrong`, `throttled`; with an identity provider `oidc`, `oidc_refused`.
    pub logins: IntCounterVec,
    /// Usage records that nodes delivered, by result.
    pub usage_records: IntCounterVec,
    /// Metrics of billing.
    pub billing: BillingMetrics,
    /// Metrics of jobs.
    pub jobs: JobMetrics,
    /// Metrics of event streams.
    pub events: EventMetrics,
    /// Metrics of the console.
    pub console: ConsoleMetrics,
    /// Metrics of machines at the edge.
    pub edge: EdgeMetrics,
    /// Metrics of secrets, rollouts, domains and TXT records.
    pub apps: AppMetrics,
    /// Metrics of the collector of artifacts.
    pub artifacts: ArtifactMetrics,
    /// Metrics of the compile cache.
    pub packs: PackMetrics,
    /// Failed checks of the certificates of API and console.
    pub certificate_errors: IntCounter,
    /// Enrolments of machines, by result: `ok`, `refused`, `failed`.
    pub enrolments: IntCounterVec,
    /// Renewals of certificates, by result: `ok`, `refused`, `failed`.
    pub renewals: IntCounterVec,
    /// The number of messages in the outbox.
    pub outbox_depth: IntGauge,
    /// The age of the oldest of them, in ms.
    pub outbox_age: IntGauge,
    /// Messages published, by kind.
    pub published: IntCounterVec,
    /// Failures to publish messages.
    pub publish_failures: IntCounter,
    /// Changes and reports taken in, by kind and result: `used`, `stale`, `removed`, `refused`.
    pub consumed: IntCounterVec,
    /// The age of the last change when it was received, in ms, by the sender's clock.
    pub consumer_lag: IntGauge,
    /// Demand reports dropped for lack of room.
    pub demand_dropped: IntGauge,
    /// Links between clusters with a measured round trip time.
    pub links: IntGauge,
    /// Metrics of the plan loop.
    pub plans: PlanMetrics,
    /// Work that one controller does for all: 1 if this controller has its lease.
    pub singletons: IntGaugeVec,
    /// Database connections by state: `open`, `idle`.
    pub connections: IntGaugeVec,
    /// Nodes by state: `alive`, `known`.
    pub nodes: IntGaugeVec,
    /// The number of dead letters of the channel of changes.
    pub dead_letters: IntGauge,
}

/// The metrics of the plan loop.
pub struct PlanMetrics {
    /// Plans made.
    pub made: IntCounter,
    /// Bindings whose clients were moved.
    pub moved: IntCounter,
    /// Node statuses read from the database: in most passes those written since the previous pass.
    pub statuses: IntCounter,
    /// Moves for a gain that were deferred because enough bindings had been moved.
    pub deferred: IntCounter,
    /// Client groups that no cluster can take.
    pub unplaced: IntGauge,
    /// Memory in bytes as of the last planning pass: `needed` by the plans, `there` in the clusters.
    pub memory: IntGaugeVec,
    /// The error of corrected predictions of run times, relative to what calls took.
    pub error: Histogram,
    /// Corrections that changed by more than a tenth at once.
    pub drifted: IntCounter,
    /// The number of stages of apps in clusters whose predictions are corrected.
    pub learnt: IntGauge,
    /// The duration of a planning pass.
    pub seconds: Histogram,
    /// Metrics of the recorder of passes.
    pub records: RecordMetrics,
}

/// The metrics of the recorder of planning passes.
#[derive(Clone)]
pub struct RecordMetrics {
    /// Records by result: `written`, `dropped` (the disk was too slow), `failed`.
    pub made: IntCounterVec,
    /// The size of the records on disk, in bytes.
    pub bytes: IntGauge,
    /// Segments deleted to make room for newer ones.
    pub removed: IntCounter,
}

impl RecordMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            made: make.counters(
                "fdn_controller_plan_records_total",
                "Records of planning passes, by what became of them",
                &["result"],
            )?,
            bytes: make.gauge(
                "fdn_controller_plan_record_bytes",
                "Bytes of records of planning passes on the disk",
            )?,
            removed: make.counter(
                "fdn_controller_plan_record_segments_removed_total",
                "Segments of records of planning passes that made room for newer ones",
            )?,
        })
    }
}

impl PlanMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        let times = seconds("fdn_controller_plan_seconds", "Time of a planning pass");
        Ok(Self {
            made: make.counter("fdn_controller_plans_total", "Plans made")?,
            statuses: make.counter(
                "fdn_controller_statuses_read_total",
                "Statuses of nodes that were read from the database",
            )?,
            deferred: make.counter(
                "fdn_controller_moves_deferred_total",
                "Moves of client groups for a gain that were put off because enough had been moved",
            )?,
            unplaced: make.gauge(
                "fdn_controller_groups_unplaced",
                "Client groups that no cluster can take; they stay where they were",
            )?,
            memory: make.add(IntGaugeVec::new(
                Opts::new(
                    "fdn_controller_plan_memory_bytes",
                    "Memory that the plans need, and memory that there is in the clusters",
                ),
                &["what"],
            ))?,
            moved: make.counter(
                "fdn_controller_bindings_moved_total",
                "Bindings whose clients were moved",
            )?,
            error: make.add(Histogram::with_opts(
                HistogramOpts::new(
                    "fdn_controller_prediction_error_ratio",
                    "How far predictions of run times were off, as a share of what calls took",
                )
                .buckets(ERRORS.to_vec()),
            ))?,
            drifted: make.counter(
                "fdn_controller_predictions_drifted_total",
                "Corrections of predictions that changed by more than a tenth at once",
            )?,
            learnt: make.gauge(
                "fdn_controller_predictions_learnt",
                "Stages of apps in clusters whose predictions are corrected by what calls took",
            )?,
            seconds: make.add(Histogram::with_opts(times))?,
            records: RecordMetrics::new(make)?,
        })
    }
}

/// The bucket bounds of prediction errors, as ratios.
const ERRORS: [f64; 9] = [0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0];

/// The metrics of the collector of artifacts. The gauges are set by the controller that has the collector's lease.
pub struct ArtifactMetrics {
    /// The number of artifacts.
    pub kept: IntGauge,
    /// Their total size in bytes.
    pub bytes: IntGauge,
    /// The number of objects marked for deletion.
    pub trash: IntGauge,
    /// Objects deleted.
    pub collected: IntCounter,
    /// Failed rounds and deletions.
    pub failures: IntCounter,
    /// Components whose machine code could not be stored.
    pub compiled_failures: IntCounter,
    /// Components, and inputs and results of jobs, that could not be written.
    pub write_failures: IntCounter,
}

impl ArtifactMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            kept: make.gauge("fdn_controller_artifacts", "Artifacts kept")?,
            bytes: make.gauge("fdn_controller_artifact_bytes", "Bytes of artifacts kept")?,
            trash: make.gauge(
                "fdn_controller_artifacts_trash",
                "Objects of the artifact store that wait to be removed",
            )?,
            collected: make.counter(
                "fdn_controller_artifacts_collected_total",
                "Objects removed from the artifact store because nobody used them",
            )?,
            failures: make.counter(
                "fdn_controller_artifact_collect_failures_total",
                "Rounds of the collector and removals that failed",
            )?,
            compiled_failures: make.counter(
                "fdn_controller_compiled_failures_total",
                "Components whose machine code could not be kept for the nodes",
            )?,
            write_failures: make.counter(
                "fdn_controller_artifact_write_failures_total",
                "Components, and inputs and results of jobs, that the artifact store did not take",
            )?,
        })
    }
}

/// The metrics of billing.
pub struct BillingMetrics {
    /// Statements issued.
    pub statements: IntCounter,
    /// Budget alerts raised.
    pub alerts: IntCounter,
    /// Webhook requests of budget alerts, by result: `ok`, `failed`, `given_up`.
    pub webhooks: IntCounterVec,
    /// Failed rounds.
    pub failures: IntCounter,
    /// Calls of apps that have no known owner.
    pub unowned: IntGauge,
}

impl BillingMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            statements: make.counter(
                "fdn_controller_billing_statements_total",
                "Statements issued",
            )?,
            alerts: make.counter("fdn_controller_billing_alerts_total", "Budget alerts given")?,
            webhooks: make.counters(
                "fdn_controller_budget_webhooks_total",
                "Requests to those who are told of alerts of budgets",
                &["result"],
            )?,
            failures: make.counter(
                "fdn_controller_billing_failures_total",
                "Rounds of the billing centre that failed",
            )?,
            unowned: make.gauge(
                "fdn_controller_billing_unowned_calls",
                "Calls of apps that nobody is known to have owned",
            )?,
        })
    }
}

/// The metrics of jobs.
pub struct JobMetrics {
    /// Jobs accepted from callers.
    pub submitted: IntCounter,
    /// Jobs accepted from schedules.
    pub scheduled: IntCounter,
    /// Jobs that ended, by state.
    pub ended: IntCounterVec,
    /// Attempts by how they ended: `succeeded`, `refused`, `never_begun`, `cut_short`.
    pub attempts: IntCounterVec,
    /// Jobs by state, in the store.
    pub states: IntGaugeVec,
    /// Jobs that wait in this controller's memory.
    pub buffered: IntGauge,
    /// Attempts that this controller runs.
    pub running: IntGauge,
    /// Tickets received, by result: `kept`, `left` to the store, `known`, `past`, `failed`.
    pub tickets: IntCounterVec,
    /// Webhook requests, by result: `ok`, `failed`, `given_up`.
    pub webhooks: IntCounterVec,
    /// Failed sweeps.
    pub failures: IntCounter,
}

impl JobMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            submitted: make.counter(
                "fdn_controller_jobs_submitted_total",
                "Jobs accepted from callers",
            )?,
            scheduled: make.counter(
                "fdn_controller_jobs_scheduled_total",
                "Jobs accepted from schedules",
            )?,
            ended: make.counters(
                "fdn_controller_jobs_ended_total",
                "Jobs that ended",
                &["state"],
            )?,
            attempts: make.counters(
                "fdn_controller_job_attempts_total",
                "Attempts at jobs, by how they ended",
                &["ending"],
            )?,
            states: make.gauges("fdn_controller_jobs", "Jobs in the store")?,
            buffered: make.gauge(
                "fdn_controller_jobs_buffered",
                "Jobs that wait in this controller's memory",
            )?,
            running: make.gauge(
                "fdn_controller_jobs_running",
                "Attempts that this controller runs",
            )?,
            tickets: make.counters(
                "fdn_controller_job_tickets_total",
                "Tickets of jobs taken from the broker",
                &["result"],
            )?,
            webhooks: make.counters(
                "fdn_controller_job_webhooks_total",
                "Requests to those who are told of the end of jobs",
                &["result"],
            )?,
            failures: make.counter(
                "fdn_controller_job_sweep_failures_total",
                "Sweeps over jobs that failed",
            )?,
        })
    }
}

/// The metrics of event streams.
#[derive(Clone)]
pub struct EventMetrics {
    /// Readers connected now.
    pub readers: IntGauge,
    /// Events sent to readers.
    pub sent: IntCounter,
    /// Streams that ended, by reason: `done`, `gone`, `slow`, `revoked`, `lifetime`, `stopping`, `store`.
    pub ended: IntCounterVec,
    /// Failures to collect or read events.
    pub failures: IntCounter,
}

impl EventMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            readers: make.gauge("fdn_controller_event_readers", "Readers of events")?,
            sent: make.counter("fdn_controller_events_sent_total", "Events sent to readers")?,
            ended: make.counters(
                "fdn_controller_event_readers_ended_total",
                "Readers of events that are served no longer, by why",
                &["why"],
            )?,
            failures: make.counter(
                "fdn_controller_event_failures_total",
                "Looks for events that failed",
            )?,
        })
    }
}

/// The metrics of secrets, rollouts, domains and TXT records.
pub struct AppMetrics {
    /// Secrets that could not be decrypted when they were to be sent to nodes.
    pub secrets_unreadable: IntCounter,
    /// Versions that are watched against an objective now.
    pub rollouts: IntGauge,
    /// Versions whose watch ended, by result: `held`, `broken`.
    pub rollouts_ended: IntCounterVec,
    /// Checks of proofs of host names, by result: `proof`, `missing`, `unknown`.
    pub domain_checks: IntCounterVec,
    /// Changes of TXT records, by result: `set`, `added`, `removed`, `expired`, `full`.
    pub txt_changes: IntCounterVec,
}

impl AppMetrics {
    fn new(make: &MetricFactory) -> Result<Self, ServiceError> {
        Ok(Self {
            secrets_unreadable: make.counter(
                "fdn_controller_secrets_unreadable_total",
                "Secrets that could not be opened when nodes were to be told",
            )?,
            rollouts: make.gauge(
                "fdn_controller_rollouts",
                "Versions that are held to an objective now",
            )?,
            rollouts_ended: make.counters(
                "fdn_controller_rollouts_ended_total",
                "Versions whose watch ended; those that broke their objective were taken back",
                &["result"],
            )?,
            domain_checks: make.counters(
                "fdn_controller_domain_checks_total",
                "Looks at proofs of host names",
                &["result"],
            )?,
            txt_changes: make.counters(
                "fdn_controller_txt_changes_total",
                "Changes of text records; full: refused, because there are as many as may be",
                &["result"],
            )?,
        })
    }
}

/// Creates metrics and registers them.
struct MetricFactory(Registry);

impl MetricFactory {
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

/// Options of a histogram of durations from a millisecond to a minute.
fn seconds(name: &str, help: &str) -> HistogramOpts {
    let buckets = vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
    HistogramOpts::new(name, help).buckets(buckets)
}

impl Metrics {
    /// Creates all metrics.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new() -> Result<Self, ServiceError> {
        let make = MetricFactory(Registry::new());
        let request_seconds = seconds("fdn_controller_request_seconds", "Time of requests");
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
                "Records of calls that nodes handed over, as sums or one by one",
                &["result"],
            )?,
            billing: BillingMetrics::new(&make)?,
            jobs: JobMetrics::new(&make)?,
            events: EventMetrics::new(&make)?,
            console: ConsoleMetrics::new(&make)?,
            edge: EdgeMetrics::new(&make)?,
            apps: AppMetrics::new(&make)?,
            artifacts: ArtifactMetrics::new(&make)?,
            packs: PackMetrics::new(&make)?,
            certificate_errors: make.counter(
                "fdn_controller_certificate_errors_total",
                "Looks at the certificates of API and console that failed",
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
            links: make.gauge(
                "fdn_controller_links",
                "Links between clusters whose round trip was measured",
            )?,
            plans: PlanMetrics::new(&make)?,
            singletons: make.add(IntGaugeVec::new(
                Opts::new(
                    "fdn_controller_singleton",
                    "Work that one controller does for all: 1 where this one does it",
                ),
                &["work"],
            ))?,
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
