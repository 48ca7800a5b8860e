//! What is counted, in a registry of its own.

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
    /// Of the billing centre.
    pub billing: BillingMetrics,
    /// Of jobs.
    pub jobs: JobMetrics,
    /// Of events that readers follow.
    pub events: EventMetrics,
    /// Of what the console shows.
    pub console: ConsoleMetrics,
    /// Of machines at the edge.
    pub edge: EdgeMetrics,
    /// Of secrets, rollouts, domains and text records.
    pub apps: AppMetrics,
    /// Of the collector of artifacts.
    pub artifacts: ArtifactMetrics,
    /// Of the compile cache.
    pub packs: PackMetrics,
    /// Looks at the certificates of API and console that failed.
    pub certificate_errors: IntCounter,
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
    /// Changes and reports taken in, by kind and result: `used`, `stale`, `removed`, `refused`.
    pub consumed: IntCounterVec,
    /// Age of the last change when it was taken in, in milliseconds, by the sender's clock.
    pub consumer_lag: IntGauge,
    /// Reports of demand for which there was no room.
    pub demand_dropped: IntGauge,
    /// Links between clusters whose round trip was measured.
    pub links: IntGauge,
    /// Of the plan loop.
    pub plans: PlanMetrics,
    /// Work that one controller does for all: 1 where this one does it.
    pub singletons: IntGaugeVec,
    /// Database connections by state: `open`, `idle`.
    pub connections: IntGaugeVec,
    /// Nodes by state: `alive`, `known`.
    pub nodes: IntGaugeVec,
    /// Dead letters of the channel of changes.
    pub dead_letters: IntGauge,
}

/// What the plan loop counts.
pub struct PlanMetrics {
    /// Plans made.
    pub made: IntCounter,
    /// Bindings whose clients were moved.
    pub moved: IntCounter,
    /// Statuses of nodes that were read from the database: of most passes those that were written since the one before.
    pub statuses: IntCounter,
    /// Moves for a gain that were put off because enough had been moved.
    pub deferred: IntCounter,
    /// Client groups that no cluster can take.
    pub unplaced: IntGauge,
    /// Memory in bytes by the last planning pass: `needed` by the plans, `there` in the clusters.
    pub memory: IntGaugeVec,
    /// How far corrected predictions of run times were off, as a share of what calls took.
    pub error: Histogram,
    /// Places whose correction changed much.
    pub drifted: IntCounter,
    /// Places of which a correction is known.
    pub learnt: IntGauge,
    /// Time of a planning pass.
    pub seconds: Histogram,
    /// What became of records of passes.
    pub records: RecordMetrics,
}

/// What the recorder of planning passes counts.
#[derive(Clone)]
pub struct RecordMetrics {
    /// Records by what became of them: `written`, `dropped` (the disk was too slow), `failed`.
    pub made: IntCounterVec,
    /// Bytes of records on the disk.
    pub bytes: IntGauge,
    /// Segments that made room for newer ones.
    pub removed: IntCounter,
}

impl RecordMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// Bounds of the errors of predictions, as shares.
const ERRORS: [f64; 9] = [0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0];

/// What the collector of artifacts counts. The gauges are set by the controller whose turn it is.
pub struct ArtifactMetrics {
    /// Artifacts kept.
    pub kept: IntGauge,
    /// Their bytes.
    pub bytes: IntGauge,
    /// Objects that wait to be removed.
    pub trash: IntGauge,
    /// Objects removed.
    pub collected: IntCounter,
    /// Rounds and removals that failed.
    pub failures: IntCounter,
    /// Components whose machine code could not be kept.
    pub compiled_failures: IntCounter,
    /// Components, and inputs and results of jobs, that could not be written.
    pub write_failures: IntCounter,
}

impl ArtifactMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// What the billing centre counts.
pub struct BillingMetrics {
    /// Statements that were issued.
    pub statements: IntCounter,
    /// Budget alerts that were given.
    pub alerts: IntCounter,
    /// Requests to those who are told of alerts, by result: `ok`, `failed`, `given_up`.
    pub webhooks: IntCounterVec,
    /// Rounds that failed.
    pub failures: IntCounter,
    /// Calls of apps that nobody is known to have owned.
    pub unowned: IntGauge,
}

impl BillingMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// What is counted of jobs.
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
    /// Tickets taken, by result: `kept`, `left` to the store, `known`, `past`, `failed`.
    pub tickets: IntCounterVec,
    /// Requests of webhooks by result: `ok`, `failed`, `given_up`.
    pub webhooks: IntCounterVec,
    /// Sweeps that failed.
    pub failures: IntCounter,
}

impl JobMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// What is counted of events.
#[derive(Clone)]
pub struct EventMetrics {
    /// Readers that are served now.
    pub readers: IntGauge,
    /// Events sent to readers.
    pub sent: IntCounter,
    /// Readers that are served no longer, by why: `done`, `gone`, `slow`, `lifetime`, `stopping`, `store`.
    pub ended: IntCounterVec,
    /// Looks for events that failed.
    pub failures: IntCounter,
}

impl EventMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// What is counted of secrets, rollouts, domains and text records.
pub struct AppMetrics {
    /// Secrets that could not be opened when nodes were to be told.
    pub secrets_unreadable: IntCounter,
    /// Versions that are held to an objective now.
    pub rollouts: IntGauge,
    /// Versions whose watch ended, by result: `held`, `broken`.
    pub rollouts_ended: IntCounterVec,
    /// Looks at proofs of host names, by result: `proof`, `missing`, `unknown`.
    pub domain_checks: IntCounterVec,
    /// Changes of text records, by result: `set`, `added`, `removed`, `expired`, `full`.
    pub txt_changes: IntCounterVec,
}

impl AppMetrics {
    fn new(make: &Maker) -> Result<Self, ServiceError> {
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

/// A histogram of times from a millisecond to a minute.
fn seconds(name: &str, help: &str) -> HistogramOpts {
    let buckets = vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
    HistogramOpts::new(name, help).buckets(buckets)
}

impl Metrics {
    /// Makes all metrics.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new() -> Result<Self, ServiceError> {
        let make = Maker(Registry::new());
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
