//! Reports of a node to the controller: its status (every few seconds, and at once when an app's phase changes), round-trip times to its clients
//! and to other clusters, and the progress of workflow runs.
//!
//! Each kind of report has its own task, which sends one at a time and gives up after `SEND_TIMEOUT`, so that unreachable controllers cost
//! nothing but the report. Only reports of workflow runs are kept and sent again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fdn_core::figures::Tally;
use fdn_core::message::{AppObserved, Message, NodeStatus, RttReport};
use fdn_core::runs::RunReport;
use fdn_core::serving::NodeRuntime;
use fdn_core::{
    ClientPrefix, ClusterId, GatewayWeight, GeoPoint, MessageId, MilliCpu, Millis, NodeId,
    RegionName, Resources,
};
use fdn_devices::Devices;
use fdn_link::{SharedControllerLink, report};
use fdn_runtime::Engine;
use fdn_service::CancellationToken;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::apps::{Apps, Observed, Server};
use crate::fleet::{Fleet, Work};
use crate::invocations::instances::Degradation;
use crate::invocations::{Admission, Ledger};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::rtt::RttTable;
use crate::rtt::links::{Links, Nearness};
use crate::settings::ReportSettings;
use crate::workflows::RunChanges;

mod outage;

pub use outage::ReportOutage;

/// The timeout for sending a report.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// The minimum time between two statuses, so that a burst of deployments causes few reports.
const STATUS_GAP: Duration = Duration::from_millis(100);
/// The maximum length, in bytes, of the reason why an app is degraded.
const DEGRADED_MAX: usize = 4096;

/// The properties of a node that do not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Its geographic location.
    pub location: GeoPoint,
    /// The address at which clients reach it.
    pub gateway: SocketAddr,
    /// The address at which operators reach it.
    pub admin: SocketAddr,
    /// The address at which gateways of other clusters call stages of workflows, if it takes such calls.
    pub stage_calls: Option<SocketAddr>,
    /// The port at which controllers send requests, if it listens for them.
    pub controller_port: Option<u16>,
    /// The weight of its gateway: its share of clients relative to the other gateways of its cluster.
    pub weight: GatewayWeight,
    /// Its speed, relative to a node of speed 1.
    pub speed: f64,
    /// Its capacity.
    pub capacity: Resources,
    /// The id of this start of the agent.
    pub boot: MessageId,
    /// The runtimes in which it can run functions.
    pub runtimes: BTreeSet<NodeRuntime>,
}

/// Sends reports to the controllers.
pub struct Reporter {
    /// The node that reports.
    pub identity: Identity,
    /// The intervals and limits of reports.
    pub settings: ReportSettings,
    /// The connection to the controllers.
    pub centre: SharedControllerLink,
    /// The apps.
    pub apps: Apps,
    /// Admission, whose ledger knows places and free memory.
    pub admission: Arc<Admission>,
    /// The WebAssembly engine.
    pub engine: Engine,
    /// GPU devices.
    pub devices: Devices,
    /// The agent's counters, those of reports among them.
    pub metrics: Metrics,
    /// Measured round-trip times to clients.
    pub rtt: Arc<RttTable>,
    /// The measured distance to other clusters.
    pub nearness: Arc<Nearness>,
    /// Changes of workflow runs that are not reported yet.
    pub run_changes: Arc<RunChanges>,
    /// Whether the node is stopping.
    pub draining: Arc<AtomicBool>,
    /// What operators decided about the node.
    pub fleet: Arc<Fleet>,
    /// The node's handle on its cluster, if it takes part in one.
    pub peers: Option<Peers>,
    /// Notified when a status should be sent at once.
    pub changed: Arc<Notify>,
    /// The sequence number of the next status.
    pub sequence: AtomicU64,
    /// Whether reports are being accepted, and whether their loss was logged.
    pub outage: ReportOutage,
}

impl Reporter {
    /// Sends statuses until `stop` is cancelled.
    pub async fn run_status(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(self.settings.status_interval.as_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
                () = self.changed.notified() => {}
            }
            self.send(Message::NodeStatus(Box::new(self.status())))
                .await;
            tokio::time::sleep(STATUS_GAP).await;
        }
    }

    /// Sends the round-trip times to clients until `stop` is cancelled.
    pub async fn run_rtt(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(self.settings.rtt_interval.as_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let samples = self.rtt.take();
            if !samples.is_empty() {
                self.send(self.round_trips(samples, Vec::new())).await;
            }
        }
    }

    /// Measures the links to other clusters and reports them, until `stop` is cancelled.
    pub async fn run_links(self: Arc<Self>, stop: CancellationToken) {
        if self.settings.links == 0 {
            return;
        }
        let mut links = Links::new(
            self.identity.cluster.clone(),
            self.settings.links,
            self.settings.link_timeout.as_duration(),
            self.metrics.links.clone(),
        );
        let mut ticks = interval(self.settings.link_interval.as_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let fleet = self.fleet.view();
            let measured = tokio::select! {
                () = stop.cancelled() => return,
                measured = links.measure(&fleet) => measured,
            };
            self.nearness.note(&measured, &fleet);
            if !measured.is_empty() {
                self.send(self.round_trips(Vec::new(), measured)).await;
            }
        }
    }

    fn round_trips(
        &self,
        samples: Vec<(ClientPrefix, Millis, u32)>,
        links: Vec<(ClusterId, Millis)>,
    ) -> Message {
        Message::RttReport(RttReport {
            cluster: self.identity.cluster.clone(),
            node: self.identity.node.clone(),
            samples,
            links,
        })
    }

    /// Reports the progress of workflow runs, until `stop` is cancelled.
    pub async fn run_runs(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(self.settings.run_interval.as_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        while !stopping {
            stopping = tokio::select! {
                // One more pass: how the last runs ended is still reported.
                () = stop.cancelled() => true,
                _ = ticks.tick() => false,
            };
            let runs = self.run_changes.take();
            if runs.is_empty() {
                continue;
            }
            let report = RunReport { runs: runs.clone() };
            if !self.send(Message::RunReport(report)).await {
                self.run_changes.put_back(runs);
            }
        }
    }

    /// Sends a message; returns whether a controller accepted it.
    async fn send(&self, message: Message) -> bool {
        let kind = message.kind();
        let failure = match report(&*self.centre, message, SEND_TIMEOUT).await {
            Ok(()) => {
                self.metrics.reports_sent.with_label_values(&[kind]).inc();
                if self.outage.accepted() {
                    info!("reports are taken again");
                }
                return true;
            }
            Err(failure) => failure,
        };
        self.metrics
            .reports_dropped
            .with_label_values(&[kind])
            .inc();
        if self.outage.lost(Instant::now()) {
            warn!(%failure, "no controller takes reports; calls are served on");
        }
        false
    }

    fn status(&self) -> NodeStatus {
        let observed = self.apps.observed();
        self.show_engine();
        let identity = &self.identity;
        let (gpu_free, gpu) = self.devices.totals();
        let capacity = Resources {
            gpu_memory_mib: gpu,
            ..identity.capacity
        };
        NodeStatus {
            node: identity.node.clone(),
            cluster: identity.cluster.clone(),
            region: identity.region.clone(),
            location: identity.location,
            gateway: identity.gateway,
            admin: identity.admin,
            boot: identity.boot,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            speed: identity.speed,
            capacity,
            free: Resources {
                gpu_memory_mib: gpu_free,
                ..free(self.admission.ledger(), &observed)
            },
            slots: self.admission.ledger().places(),
            busy: running(&observed),
            waiting: self.waiting(),
            queued_work: queued_work(identity.speed, &observed),
            draining: self.draining.load(Ordering::Relaxed)
                || self.fleet.view().work() != Work::Taken,
            stages: self.peers.as_ref().and_then(Peers::stages),
            apps: observed.iter().map(app_observed).collect(),
            devices: self.devices.status(),
            stage_calls: identity.stage_calls,
            controller_port: identity.controller_port,
            weight: identity.weight,
            runtimes: Some(identity.runtimes.clone()),
        }
    }

    /// The number of calls that wait for a slot or for their app.
    fn waiting(&self) -> u32 {
        let waiting = self.metrics.waiting.get() + self.metrics.held.get();
        u32::try_from(waiting).unwrap_or(0)
    }

    fn show_engine(&self) {
        let stats = self.engine.stats();
        for (what, value) in [
            ("live", stats.live_instances),
            ("idle", stats.idle_instances),
            ("heavy", stats.heavy_calls),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            self.metrics.engine.with_label_values(&[what]).set(value);
        }
    }
}

fn app_observed(app: &Observed) -> AppObserved {
    let deployed = app.deployed.as_ref();
    AppObserved {
        app: app.app.clone(),
        revision: app.revision,
        phase: app.phase.clone(),
        invocations: app.metrics.invocations(),
        errors: app.metrics.errors(),
        execution_mean: app.metrics.execution_mean().unwrap_or(Millis::ZERO),
        instances: deployed.map_or(0, |deployed| deployed.instances()),
        degraded: deployed
            .and_then(|deployed| deployed.degradation())
            .map(degradation_text),
        versions: if app.split {
            app.metrics.versions()
        } else {
            Vec::new()
        },
        stages: app
            .staged
            .as_ref()
            .map(|staged| staged.observed())
            .unwrap_or_default(),
        figures: Some(Box::new(figures(app))),
        serves: Some(deployed.is_some()),
        phases: app.metrics.phases(),
        form: deployed
            .filter(|_| app.is_of_one_function())
            .and_then(|deployed| deployed.form.clone()),
    }
}

/// The figures of an app as its callers saw them, plus the cold starts of all its functions.
fn figures(app: &Observed) -> Tally {
    let mut tally = app.metrics.tally();
    if let Some(staged) = &app.staged {
        for stage in &staged.stages {
            tally.cold_starts += stage.stats.metrics.tally().cold_starts;
        }
    }
    for deployed in app.versions() {
        tally.cold_starts += deployed.starts();
    }
    tally
}

/// Describes what is wrong with the instances of an app, followed by the end of their output.
fn degradation_text(degradation: Degradation) -> String {
    let mut text = degradation.reason;
    if degradation.times > 1 {
        text.push_str(&format!(" ({} times in a row)", degradation.times));
    }
    for line in degradation.log {
        text.push('\n');
        text.push_str(&line);
    }
    if text.len() > DEGRADED_MAX {
        let cut = (0..=DEGRADED_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or(0));
    }
    text
}

/// The number of running calls, in sandboxes and in instances.
fn running(apps: &[Observed]) -> u32 {
    let calls = apps.iter().flat_map(Observed::counted);
    calls.map(|metrics| metrics.busy_now()).sum()
}

/// The free resources: memory that calls, idle sandboxes and instances do not hold, and CPU that instances do not hold and running calls in
/// sandboxes are not expected to use.
fn free(ledger: &Ledger, apps: &[Observed]) -> Resources {
    let mut free = ledger.capacity();
    free.memory_mib = free.memory_mib.saturating_sub(ledger.held());
    free.cpu_milli = free.cpu_milli.saturating_sub(ledger.cpu_held());
    for app in apps {
        for deployed in app.versions() {
            if !matches!(deployed.server, Server::Sandboxes(_)) {
                continue;
            }
            let busy = u64::from(deployed.metrics.busy_now());
            let cpu = MilliCpu(deployed.manifest.cpu_milli.get().saturating_mul(busy));
            free.cpu_milli = free.cpu_milli.saturating_sub(cpu);
        }
    }
    free
}

/// The expected work of the calls that run or wait, normalized to speed 1: their expected time on this node, times its speed.
fn queued_work(speed: f64, apps: &[Observed]) -> Millis {
    apps.iter().fold(Millis::ZERO, |sum, app| {
        let versions = app.versions().map(|deployed| {
            let calls = deployed.metrics.busy_now() + deployed.metrics.waiting_now();
            deployed.expected().execution * f64::from(calls)
        });
        let held = f64::from(app.held());
        let calls = versions.fold(app.expected() * held, |sum, one| sum + one);
        sum + calls * speed
    })
}
