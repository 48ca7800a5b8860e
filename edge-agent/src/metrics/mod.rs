//! Prometheus metrics of one node.
//!
//! The number of label values is bounded: `app` is the name of a deployed app, `app/stage` for stages of workflows, or `_other`; the series of an
//! app that is removed are removed too. What a request touches is resolved once for each app ([`AppMetrics`]), so that counting costs a few
//! atomic additions.

mod app;
mod compile_cache;
mod forward;
mod held;
mod instances;
mod tally;
mod traces;
mod version;
mod workflows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fdn_core::usage::PlanUse;
use fdn_core::{AppName, NodeId, StageName, TenantTag};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

pub use app::{AppMetrics, CountGuard, Outcome};
pub use compile_cache::CompileCacheMetrics;
pub use forward::ForwardMetrics;
pub use held::show_held;
pub use instances::InstanceMetrics;
pub use traces::TraceMetrics;
pub use version::VersionCounts;
pub use workflows::WorkflowMetrics;

use crate::invocations::share::{AppPlaces, TenantPlaces};
use crate::policy::PolicyMetrics;

/// The label of requests that belong to no deployed app. Not a valid app name, because those have no underscore.
const OTHER: &str = "_other";

/// All metrics of the node.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The registry behind `/metrics`.
    pub registry: Registry,
    /// The places of every app on this node. Locked when an app is added, never for a call.
    places: Arc<Mutex<BTreeMap<AppName, Weak<AppPlaces>>>>,
    /// The places of every tenant with an app on this node, alike.
    tenants: Arc<Mutex<BTreeMap<TenantTag, Weak<TenantPlaces>>>>,
    requests: IntCounterVec,
    duration: HistogramVec,
    start: HistogramVec,
    /// Requests that belong to no deployed app.
    pub other: Arc<AppMetrics>,
    /// Running calls.
    pub busy: IntGauge,
    /// Calls waiting for a slot.
    pub waiting: IntGauge,
    /// Calls waiting for a place of their app's or their tenant's share.
    pub waiting_for_share: IntGaugeVec,
    /// Calls held for an app that is being made ready.
    pub held: IntGauge,
    /// Whether the node takes new work (1), or is drained or removed (0).
    pub takes_work: IntGauge,
    /// When the node's certificate expires, in seconds since 1970; 0 without one.
    pub certificate_expires: IntGauge,
    /// Instances in containers and pods.
    pub instances: InstanceMetrics,
    /// Runs of workflows and calls of their stages.
    pub workflows: WorkflowMetrics,
    /// Calls handed on between gateways.
    pub forward: ForwardMetrics,
    /// Spans of calls that are exported.
    pub traces: TraceMetrics,
    /// Clients' calls that arrived although no current plan sends clients to this cluster, by how the plans use it.
    off_plan: IntCounterVec,
    /// Calls refused because the node, their app, tenant or function has too many, by reason.
    pub refused: IntCounterVec,
    /// Policies of apps.
    pub policy: PolicyMetrics,
    /// Client connections accepted.
    pub connections: IntCounter,
    /// Failed checks of the certificate files.
    pub certificate_errors: IntCounter,
    /// The time to load a version at its first call.
    pub cold_start: Histogram,
    /// Bytes in the artifact cache.
    pub cache_size: IntGauge,
    /// Bytes of the cache that deployed apps need.
    pub cache_needed: IntGauge,
    /// Artifacts evicted.
    pub cache_evictions: IntCounter,
    /// Artifacts refused because what deployed apps need fills the cache.
    pub cache_full: IntCounter,
    /// Artifacts fetched, by result.
    pub fetches: IntCounterVec,
    /// Components compiled, by result.
    pub compiles: IntCounterVec,
    /// The compile cache.
    pub compile_cache: CompileCacheMetrics,
    /// Requests to the controller for machine code, by result: `taken`, `absent`, `distrusted`, `failed`.
    pub compiled_taken: IntCounterVec,
    /// Apps by phase.
    pub apps: IntGaugeVec,
    /// Log lines that slow followers lost.
    pub log_lines_dropped: IntCounter,
    /// Log lines captured.
    pub log_lines: IntCounter,
    /// Reports sent, by kind.
    pub reports_sent: IntCounterVec,
    /// Reports that no controller accepted in time, by kind.
    pub reports_dropped: IntCounterVec,
    /// Round-trip samples dropped because there were too many prefixes.
    pub rtt_dropped: IntCounter,
    /// Measurements of links to other clusters, by result.
    pub links: IntCounterVec,
    /// Whether the node is connected to a controller (1) or not (0).
    pub controller_up: IntGauge,
    /// Instances by state (`live`, `idle`) and background calls (`heavy`).
    pub engine: IntGaugeVec,
}

/// The bounds of the latency histograms, in seconds.
const LATENCY: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 60.0,
];

/// The bounds of the histograms of starts, in seconds.
const STARTS: [f64; 12] = [
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.05,
    0.5,
];

struct Maker {
    registry: Registry,
    node: NodeId,
}

impl Maker {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("fdn_agent_{name}"), help).const_label("node", self.node.as_str())
    }

    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        collector: Result<C, prometheus::Error>,
    ) -> Result<C, prometheus::Error> {
        let collector = collector?;
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(self.opts(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.add(IntGauge::with_opts(self.opts(name, help)))
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.add(IntGaugeVec::new(self.opts(name, help), labels))
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(bounds.to_vec());
        self.add(HistogramVec::new(opts, labels))
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(bounds.to_vec());
        self.add(Histogram::with_opts(opts))
    }
}

fn waiting_for_share(make: &Maker) -> Result<IntGaugeVec, prometheus::Error> {
    make.gauges(
        "calls_waiting_for_share",
        "Calls that wait for a slot of their app's or their tenant's share.",
        &["share"],
    )
}

fn refused(make: &Maker) -> Result<IntCounterVec, prometheus::Error> {
    make.counters(
        "calls_refused_total",
        "Calls not let in: queue_full, function_full, app_full, tenant_full, late, too_large.",
        &["reason"],
    )
}

fn off_plan(make: &Maker) -> Result<IntCounterVec, prometheus::Error> {
    make.counters(
        "calls_off_plan_total",
        "Clients' calls that were taken in although no plan sends anybody to this cluster: leaving (any more), unused.",
        &["plan"],
    )
}

impl Metrics {
    /// Registers all metrics of `node` in a new registry.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new(node: &NodeId) -> Result<Self, prometheus::Error> {
        let make = Maker {
            registry: Registry::new(),
            node: node.clone(),
        };
        let requests = make.counters(
            "requests_total",
            "Requests by app and outcome.",
            &["app", "outcome"],
        )?;
        let duration = make.histograms(
            "request_seconds",
            "From a request's head to the last byte of its answer.",
            &LATENCY,
            &["app"],
        )?;
        let start = make.histograms(
            "instance_start_seconds",
            "Until a call had its instance.",
            &STARTS,
            &["app"],
        )?;
        let series = (&requests, &duration, &start);
        let other = Arc::new(AppMetrics::new(series, OTHER, Arc::default()));
        Ok(Self {
            places: Arc::default(),
            tenants: Arc::default(),
            other,
            busy: make.gauge("calls_busy", "Calls that run.")?,
            waiting: make.gauge("calls_waiting", "Calls that wait for a slot.")?,
            waiting_for_share: waiting_for_share(&make)?,
            held: make.gauge("calls_held", "Calls held for an app that is made ready.")?,
            takes_work: make.gauge("takes_work", "1 unless it is drained or was removed.")?,
            certificate_expires: make.gauge(
                "certificate_expires_seconds",
                "When the node's certificate ends, since 1970; 0 without one.",
            )?,
            instances: InstanceMetrics::new(&make)?,
            workflows: WorkflowMetrics::new(&make)?,
            forward: ForwardMetrics::new(&make)?,
            traces: TraceMetrics::new(&make)?,
            off_plan: off_plan(&make)?,
            refused: refused(&make)?,
            policy: PolicyMetrics::new(&make.registry, node)?,
            connections: make.counter("connections_total", "Client connections accepted.")?,
            certificate_errors: make.counter(
                "certificate_errors_total",
                "Looks at the files of the gateway's certificates that failed.",
            )?,
            cold_start: make.histogram(
                "cold_start_seconds",
                "Loading a function for its first call.",
                &LATENCY,
            )?,
            cache_size: make.gauge("cache_bytes", "Bytes in the artifact cache.")?,
            cache_needed: make.gauge("cache_needed_bytes", "Bytes that deployed apps need.")?,
            cache_evictions: make.counter("cache_evictions_total", "Artifacts evicted.")?,
            cache_full: make.counter(
                "cache_full_total",
                "Artifacts refused because what deployed apps need fills the cache.",
            )?,
            fetches: make.counters("fetches_total", "Artifacts fetched.", &["result"])?,
            compiles: make.counters("compiles_total", "Components compiled.", &["result"])?,
            compile_cache: CompileCacheMetrics::new(&make)?,
            compiled_taken: make.counters(
                "compiled_taken_total",
                "Machine code asked of the controller.",
                &["result"],
            )?,
            apps: make.gauges("apps", "Apps by phase.", &["phase"])?,
            log_lines: make.counter("log_lines_total", "Lines that functions wrote.")?,
            log_lines_dropped: make
                .counter("log_lines_dropped_total", "Lines that slow followers lost.")?,
            reports_sent: make.counters("reports_sent_total", "Reports sent.", &["kind"])?,
            reports_dropped: make.counters(
                "reports_dropped_total",
                "Reports that no controller took in time.",
                &["kind"],
            )?,
            rtt_dropped: make.counter(
                "rtt_samples_dropped_total",
                "Round-trip samples of too many prefixes.",
            )?,
            links: make.counters(
                "link_measurements_total",
                "Measurements of the round trip to another cluster.",
                &["result"],
            )?,
            controller_up: make.gauge("controller_up", "Whether a controller is connected.")?,
            engine: make.gauges(
                "engine",
                "Instances (live, idle) and background calls (heavy).",
                &["what"],
            )?,
            registry: make.registry,
            requests,
            duration,
            start,
        })
    }

    /// Counts a client's call that is accepted here although no current plan sends clients here.
    pub fn routed(&self, plan: PlanUse) {
        if !plan.is_used() {
            self.off_plan.with_label_values(&[plan.as_str()]).inc();
        }
    }

    /// The metrics of one app.
    #[must_use]
    pub fn app(&self, app: &AppName) -> Arc<AppMetrics> {
        let places = self.places(app);
        Arc::new(AppMetrics::new(
            (&self.requests, &self.duration, &self.start),
            app.as_str(),
            places,
        ))
    }

    /// The metrics of one stage of a workflow; its label is `app/stage`.
    #[must_use]
    pub fn stage(&self, app: &AppName, stage: &StageName) -> Arc<AppMetrics> {
        let label = format!("{app}/{stage}");
        let series = (&self.requests, &self.duration, &self.start);
        Arc::new(AppMetrics::new(series, &label, self.places(app)))
    }

    /// The app's share of the node's places, the same for all its stages.
    fn places(&self, app: &AppName) -> Arc<AppPlaces> {
        one_of(&self.places, app, AppPlaces::default)
    }

    /// Sets the tenant of an app: the app shares the tenant's part of the node's places with the tenant's other apps.
    pub fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        let places = one_of(&self.tenants, &tenant, || TenantPlaces::of(tenant));
        self.places(app).set_tenant(places);
    }

    /// Removes the series of a stage that no longer exists.
    pub fn forget_stage(&self, app: &AppName, stage: &StageName) {
        self.forget_label(&format!("{app}/{stage}"));
    }

    /// Removes the series of an app that no longer exists.
    pub fn forget(&self, app: &AppName) {
        self.forget_label(app.as_str());
    }

    fn forget_label(&self, app: &str) {
        for (_, outcome) in Outcome::ALL {
            // It fails only if the series does not exist.
            drop(self.requests.remove_label_values(&[app, outcome]));
        }
        drop(self.duration.remove_label_values(&[app]));
        drop(self.start.remove_label_values(&[app]));
    }
}

/// Returns the value of this key that is still in use, or a new one. Values no longer in use are removed from the map.
fn one_of<K: Ord + Clone, V>(
    all: &Mutex<BTreeMap<K, Weak<V>>>,
    key: &K,
    make: impl FnOnce() -> V,
) -> Arc<V> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, one| one.strong_count() > 0);
    if let Some(known) = all.get(key).and_then(Weak::upgrade) {
        return known;
    }
    let fresh = Arc::new(make());
    all.insert(key.clone(), Arc::downgrade(&fresh));
    fresh
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fdn_core::ErrorCode;
    use prometheus::TextEncoder;

    use super::*;

    fn text(metrics: &Metrics) -> String {
        TextEncoder::new()
            .encode_to_string(&metrics.registry.gather())
            .expect("text")
    }

    #[test]
    fn outcomes_are_indexed_by_their_place() {
        for (i, (outcome, _)) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, i);
        }
    }

    #[test]
    fn series_come_and_go_with_the_app() {
        let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
        let hello = "hello".parse().expect("app");
        let app = metrics.app(&hello);
        app.ended(Outcome::Ok, Duration::from_millis(2));
        app.ended(Outcome::FunctionEnded, Duration::from_millis(2));
        let shown = text(&metrics);
        assert!(
            shown.contains(r#"fdn_agent_requests_total{app="hello",node="n-1",outcome="ok"} 1"#)
        );
        assert_eq!(app.errors(), 1);
        metrics.forget(&hello);
        assert!(!text(&metrics).contains("hello"));
    }

    #[test]
    fn the_mean_follows_the_calls_and_guards_count_down() {
        let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
        let app = metrics.app(&"hello".parse().expect("app"));
        assert_eq!(app.execution_mean(), None);
        let ran = |exec| app.ran(Duration::from_millis(3), Duration::ZERO, exec);
        ran(Duration::from_millis(10));
        ran(Duration::from_millis(20));
        let phases = app.phases().expect("two calls");
        assert_eq!(phases.queue, fdn_core::Millis::new(3.0));
        assert_eq!(phases.execution, fdn_core::Millis::new(15.0));
        assert_eq!(phases.mean_ratio, Some(1.0));
        let mean = app.execution_mean().expect("measured").get();
        assert!((mean - 11.0).abs() < 1e-9, "{mean}");
        let guard = app.running();
        assert_eq!(app.busy_now(), 1);
        drop(guard);
        assert_eq!((app.busy_now(), app.waiting_now()), (0, 0));
        assert_eq!(app.invocations(), 2);
        // In another form calls have the times of that form, not a mixture; counters continue.
        app.reset_phases();
        assert_eq!((app.phases(), app.invocations()), (None, 2));
        // A call that began earlier belongs to the previous form.
        ran(Duration::from_secs(70));
        assert_eq!((app.phases(), app.invocations()), (None, 3));
        ran(Duration::ZERO);
        let phases = app.phases().expect("a call");
        assert_eq!(phases.execution, fdn_core::Millis::ZERO);
        assert_eq!((phases.mean_ratio, app.invocations()), (Some(1.0), 4));
    }

    #[test]
    fn load_is_counted_with_what_calls_take_on_average_whatever_the_first_one_took() {
        let long = |calls: &mut dyn Iterator<Item = u64>| {
            let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
            let app = metrics.app(&"hello".parse().expect("app"));
            for ms in calls {
                app.ran(
                    Duration::ZERO,
                    Duration::ZERO,
                    Duration::from_micros(ms * 1000 + 100),
                );
            }
            let phases = app.phases().expect("calls");
            (
                phases.execution.get(),
                phases.execution.get() * phases.mean_ratio.expect("known"),
            )
        };
        // A probe that is answered at once, then a function that takes 600 ms.
        let (typical, mean) = long(&mut std::iter::once(0).chain([600; 40]));
        assert!(
            (500.0..660.0).contains(&typical) && (540.0..660.0).contains(&mean),
            "{typical} {mean}"
        );
        // One call in ten takes twenty times as long: it hardly affects the typical time, but counts in full for the mean.
        let (typical, mean) = long(&mut (0..300).map(|n| if n % 10 == 9 { 200 } else { 10 }));
        assert!(
            typical < 20.0 && (27.0..31.0).contains(&mean),
            "{typical} {mean}"
        );
        // Calls become five times as long, and the load with them.
        let (typical, mean) = long(&mut [10; 300].into_iter().chain([50; 50]));
        assert!(
            (45.0..51.0).contains(&typical) && mean >= typical,
            "{typical} {mean}"
        );
    }

    #[test]
    fn codes_have_their_class() {
        assert_eq!(
            Outcome::of_code(ErrorCode::FunctionTrapped),
            Outcome::FunctionEnded
        );
        assert_eq!(Outcome::of_code(ErrorCode::Overloaded), Outcome::Overloaded);
        assert_eq!(Outcome::of_code(ErrorCode::BodyTooLarge), Outcome::Client);
        assert_eq!(Outcome::of_code(ErrorCode::Internal), Outcome::Internal);
    }
}
