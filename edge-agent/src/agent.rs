//! The agent as a whole: started from settings and a broker, stopped without losing a call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix_http::header::HeaderValue;
use fdn_bus::{SharedBroker, Subscription};
use fdn_core::MessageId;
use fdn_core::enrol::NodeAddresses;
use fdn_core::message::Channel;
use fdn_devices::{DeviceMetrics, Devices, Event};
use fdn_instances::Runtime;
use fdn_service::admin::AdminServer;
use fdn_service::health::Readiness;
use fdn_service::seal::NetworkKey;
use fdn_service::secret::Secret;
use fdn_service::{CancellationToken, http_client, listen, secret};
use fdn_spool::{Shipper, Spool, SpoolMetrics};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use uuid::Uuid;

use crate::apps::{Apps, AppsParts, CONDITION_APPS, CONDITION_STATE};
use crate::artifacts::{ArtifactCache, CacheParts, Fetcher, Machine};
use crate::error::Error;
use crate::fleet::{Fleet, Work};
use crate::gateway::GatewayServer;
use crate::gateway::routes::Routes;
use crate::gateway::service::Gateway;
use crate::invocations::instances::{Instances, InstancesParts};
use crate::invocations::placer::LocalPlacer;
use crate::invocations::{Admission, Ledger, containers};
use crate::join::{Controller, RenewParts, Renewer};
use crate::logs::{self, LogAccess, LogHub};
use crate::metrics::Metrics;
use crate::rtt::RttTable;
use crate::settings::Settings;
use crate::status::{Identity, Reporter};
use crate::sync::{SnapshotPuller, consume};
use crate::usage;

/// The condition of readiness that fails once the agent stops.
const CONDITION_ACCEPTING: &str = "accepting";

/// A running agent.
pub struct Agent {
    gateway: GatewayServer,
    admin: AdminServer,
    readiness: Readiness,
    draining: Arc<AtomicBool>,
    changed: Arc<Notify>,
    drain: Duration,
    /// Ends everything but the gateway.
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    usage: Spool,
    _devices: fdn_devices::WatchGuard,
    /// Instances, and whether they end with the agent.
    instances: Option<(Instances, bool)>,
    _machine: Machine,
}

/// Instances of containers, where they are started, and what runs for them; nothing on a node without a runtime.
type Started = (
    Option<Instances>,
    Option<Arc<LocalPlacer>>,
    Vec<JoinHandle<()>>,
);

/// What the parts of one agent share.
struct Shared {
    settings: Settings,
    broker: SharedBroker,
    machine: Machine,
    metrics: Metrics,
    readiness: Readiness,
    token: Secret,
    client: reqwest::Client,
    routes: Arc<Routes>,
    hub: Arc<LogHub>,
    ledger: Arc<Ledger>,
    admission: Arc<Admission>,
    rtt: Arc<RttTable>,
    usage: Spool,
    devices: Devices,
    fleet: Arc<Fleet>,
    draining: Arc<AtomicBool>,
    changed: Arc<Notify>,
    stop: CancellationToken,
}

impl Agent {
    /// Starts an agent; returns when it listens. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When a setting is not valid, an address is taken, or the data directory cannot be used.
    pub async fn start(settings: Settings, broker: SharedBroker) -> Result<Self, Error> {
        let machine = Machine::new(&settings.runtime)?;
        Self::start_on(settings, broker, machine).await
    }

    /// As [`Agent::start`], on an engine that several agents of this process share; they also compile each component only once.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub async fn start_on(
        settings: Settings,
        broker: SharedBroker,
        machine: Machine,
    ) -> Result<Self, Error> {
        Self::start_with(settings, broker, machine, None).await
    }

    /// As [`Agent::start_on`], with what runs container images on this node.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub async fn start_with(
        settings: Settings,
        broker: SharedBroker,
        machine: Machine,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Result<Self, Error> {
        settings.check()?;
        let gateway_listener = listen::tcp(settings.gateway.listen, "gateway.listen")?;
        let admin_listener = listen::tcp(settings.admin.listen, "admin.listen")?;
        let shared = Shared::new(settings, broker, machine)?;
        if let Some(warning) = shared.machine.engine.warning() {
            warn!("{warning}");
        }
        let stop = shared.stop.clone();
        // Whatever was started ends again if a later step fails.
        let guard = stop.clone().drop_guard();
        let runtime = match runtime {
            Some(runtime) => Some(runtime),
            None => shared.engine().await?,
        };
        let ends_with_us = runtime
            .as_ref()
            .is_some_and(|runtime| !runtime.capabilities().survives_agent);
        let (instances, placer, mut tasks) = shared.start_instances(runtime).await?;
        let (apps, shell) = shared.start_apps(instances.clone())?;
        let deliveries = shared
            .broker
            .subscribe(Subscription {
                channel: Channel::Agents,
                consumer: shared.settings.node.to_string(),
                prefetch: shared.settings.broker.prefetch,
            })
            .await?;
        let gateway = GatewayServer::start(
            gateway_listener,
            shared.gateway(apps.clone(), instances.clone())?,
            Arc::clone(&shared.rtt),
            &shared.settings.gateway,
            &shared.settings.reports,
            &shared.settings.stop,
        )?;
        let access = LogAccess {
            hub: Arc::clone(&shared.hub),
            token: shared.token.clone(),
        };
        let admin = AdminServer::start(
            admin_listener,
            shared.metrics.registry.clone(),
            shared.readiness.clone(),
            move |config| logs::routes(config, &access),
        )?;
        let reporter = shared.reporter(apps.clone(), gateway.address(), admin.address());
        let fleet = Arc::clone(&shared.fleet);
        let renewer = shared.renewer(&reporter.identity)?;
        tasks.extend([
            shell,
            tokio::spawn(consume(deliveries, apps.clone(), fleet, stop.clone())),
            tokio::spawn(shared.follow_fleet()),
            tokio::spawn(shared.puller(apps).run(stop.clone())),
            tokio::spawn(Arc::clone(&reporter).run_status(stop.clone())),
            tokio::spawn(reporter.run_rtt(stop.clone())),
            tokio::spawn(shared.shipper().run(stop.clone())),
        ]);
        let watch = shared.watch_devices(placer)?;
        tasks.extend(renewer.map(|renewer| tokio::spawn(renewer.run(stop))));
        let node = &shared.settings.node;
        info!(%node, gateway = %gateway.address(), admin = %admin.address(), "the agent listens");
        Ok(Self {
            gateway,
            admin,
            readiness: shared.readiness,
            draining: shared.draining,
            changed: shared.changed,
            drain: shared.settings.stop.drain.as_duration(),
            stop: guard.disarm(),
            tasks,
            usage: shared.usage,
            _devices: watch,
            instances: instances.map(|instances| (instances, ends_with_us)),
            _machine: shared.machine,
        })
    }

    /// Where clients are served.
    #[must_use]
    pub const fn gateway_address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Where health, metrics and logs are served.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Whether the agent can serve, by condition.
    #[must_use]
    pub const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Stops: tells that it drains, goes on accepting for a moment, lets running calls end, then ends everything else.
    pub async fn stop(mut self) {
        self.readiness
            .set(CONDITION_ACCEPTING, false, "the agent is stopping");
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        tokio::time::sleep(self.drain).await;
        self.gateway.stop().await;
        match &self.instances {
            Some((instances, true)) => instances.stop_all().await,
            Some((instances, false)) => instances.detach(),
            None => {}
        }
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            if let Err(failure) = task.await {
                warn!(%failure, "a task of the agent ended badly");
            }
        }
        // All calls have ended, so no record comes any more.
        let usage = self.usage.clone();
        if let Err(failure) = tokio::task::spawn_blocking(move || usage.close()).await {
            warn!(%failure, "the usage spool was not closed; the next start mends it");
        }
        self.admin.stop().await;
        info!("the agent has stopped");
    }
}

impl Shared {
    fn new(settings: Settings, broker: SharedBroker, machine: Machine) -> Result<Self, Error> {
        let metrics = Metrics::new(&settings.node)?;
        let stop = CancellationToken::new();
        let readiness = Readiness::waiting_for(&[CONDITION_STATE, CONDITION_APPS]);
        readiness.set(CONDITION_ACCEPTING, true, "");
        let spool_metrics = SpoolMetrics::new(&metrics.registry, &settings.node)?;
        let folder = settings.data.join("usage");
        let state = settings.data.join("state");
        let fleet = Fleet::open(state, settings.node.clone(), settings.tls.clone())?;
        let ledger = Ledger::new(settings.capacity.resolve(), settings.admission.slots);
        let engine = machine.engine.clone();
        let admission = Admission::new(
            &settings.admission,
            &settings.queue,
            Arc::clone(&ledger),
            Box::new(move || engine.drop_idle()),
            &metrics,
        )?;
        Ok(Self {
            usage: Spool::open(&folder, settings.usage.clone(), spool_metrics)?,
            devices: devices(&settings, &metrics)?,
            fleet: Arc::new(fleet),
            token: secret::read(&settings.network.token_file)?,
            client: http_client::build(settings.controller.read_timeout.as_duration())?,
            routes: Arc::default(),
            hub: Arc::new(LogHub::new(
                settings.logs.clone(),
                settings.node.clone(),
                metrics.clone(),
                stop.clone(),
            )),
            ledger,
            admission: Arc::new(admission),
            rtt: Arc::new(RttTable::new(
                settings.reports.rtt_prefixes,
                metrics.rtt_dropped.clone(),
            )),
            draining: Arc::default(),
            changed: Arc::default(),
            settings,
            broker,
            machine,
            metrics,
            readiness,
            stop,
        })
    }

    async fn engine(&self) -> Result<Option<Arc<dyn Runtime>>, Error> {
        containers::engine(&self.settings, &self.hub, &self.metrics.registry).await
    }

    /// What runs container images, if this node has something that does.
    async fn start_instances(&self, runtime: Option<Arc<dyn Runtime>>) -> Result<Started, Error> {
        let Some(runtime) = runtime else {
            return Ok((None, None, Vec::new()));
        };
        let start_timeout = self.settings.instances.start_timeout.as_duration();
        let ledger = Arc::clone(&self.ledger);
        let placer = LocalPlacer::new(runtime, ledger, start_timeout);
        let placer = Arc::new(placer.with_devices(self.devices.clone()));
        if let Err(failure) = placer.adopt().await {
            warn!(%failure, "what runs from before cannot be told");
        }
        let parts = InstancesParts {
            placer: Arc::clone(&placer) as Arc<_>,
            ledger: Arc::clone(&self.ledger),
            queue: self.settings.queue,
            settings: self.settings.instances,
            scale: self.settings.scale,
            metrics: self.metrics.instances.clone(),
        };
        let (instances, task) = Instances::start(parts, self.stop.clone())?;
        self.admission.tell_wants(instances.memory_bell());
        let (readiness, stop) = (self.readiness.clone(), self.stop.clone());
        let here = Arc::clone(&placer);
        let tidy = tokio::spawn(async move {
            // What was found belongs to what is deployed, and that is known once all apps have settled.
            while !readiness.is_ready() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
            }
            placer.stop_unclaimed().await;
        });
        Ok((Some(instances), Some(here), vec![task, tidy]))
    }

    fn start_apps(&self, instances: Option<Instances>) -> Result<(Apps, JoinHandle<()>), Error> {
        let settings = &self.settings;
        let cache = ArtifactCache::open(CacheParts {
            folder: settings.data.join("cache"),
            limit: settings.cache.size,
            artifact_limit: settings.cache.artifact_limit,
            fetcher: Fetcher {
                client: self.client.clone(),
                url: settings.controller.url.clone(),
                token: self.token.clone(),
                attempts: settings.cache.fetch_attempts,
            },
            compiler: settings.compile.compiler(),
            compile_parallel: settings.compile.parallel,
            machine: self.machine.clone(),
            metrics: self.metrics.clone(),
        })?;
        let parts = AppsParts {
            settings: settings.apps.clone(),
            logs: settings.logs.clone(),
            body_limit: settings.gateway.body_limit,
            node: settings.node.clone(),
            cluster: settings.cluster.clone(),
            folder: settings.data.join("state"),
            key: NetworkKey::from_secret(&secret::read(&settings.network.key_file)?)?,
            cache,
            engine: self.machine.engine.clone(),
            ledger: Arc::clone(&self.ledger),
            instances,
            hub: Arc::clone(&self.hub),
            metrics: self.metrics.clone(),
            routes: Arc::clone(&self.routes),
            phase_changed: Arc::clone(&self.changed),
            readiness: self.readiness.clone(),
        };
        Apps::start(parts, self.stop.clone())
    }

    fn gateway(&self, apps: Apps, instances: Option<Instances>) -> Result<Arc<Gateway>, Error> {
        let header = |text: &str| {
            HeaderValue::from_str(text).map_err(|error| Error::Settings(error.to_string()))
        };
        Ok(Arc::new(Gateway {
            routes: Arc::clone(&self.routes),
            admission: Arc::clone(&self.admission),
            instances,
            apps,
            metrics: self.metrics.clone(),
            usage: self.usage.clone(),
            inline_body: self.settings.gateway.inline_body,
            node: header(self.settings.node.as_str())?,
            cluster: header(self.settings.cluster.as_str())?,
        }))
    }

    fn reporter(&self, apps: Apps, gateway: SocketAddr, admin: SocketAddr) -> Arc<Reporter> {
        let settings = &self.settings;
        Arc::new(Reporter {
            identity: Identity {
                node: settings.node.clone(),
                cluster: settings.cluster.clone(),
                region: settings.region.clone(),
                location: settings.location,
                gateway: settings.gateway.advertise.unwrap_or(gateway),
                admin: settings.admin.advertise.unwrap_or(admin),
                speed: settings.speed,
                capacity: settings.capacity.resolve(),
                boot: MessageId::from_uuid(Uuid::now_v7()),
            },
            settings: settings.reports.clone(),
            broker: Arc::clone(&self.broker),
            apps,
            admission: Arc::clone(&self.admission),
            engine: self.machine.engine.clone(),
            devices: self.devices.clone(),
            metrics: self.metrics.clone(),
            rtt: Arc::clone(&self.rtt),
            draining: Arc::clone(&self.draining),
            fleet: Arc::clone(&self.fleet),
            changed: Arc::clone(&self.changed),
            sequence: AtomicU64::new(0),
            connected: AtomicBool::new(true),
        })
    }

    fn shipper(&self) -> Shipper<usage::Controller> {
        Shipper {
            spool: self.usage.clone(),
            sink: usage::Controller {
                client: self.client.clone(),
                url: self.settings.controller.url.clone(),
                token: self.token.clone(),
                timeout: self.settings.controller.read_timeout.as_duration(),
            },
            node: self.settings.node.clone(),
        }
    }

    /// Tells at once when the devices are others than before, and ends the instances on those that are gone or have failed.
    fn watch_devices(
        &self,
        placer: Option<Arc<LocalPlacer>>,
    ) -> Result<fdn_devices::WatchGuard, Error> {
        let changed = Arc::clone(&self.changed);
        let runtime = tokio::runtime::Handle::current();
        let watch = self.devices.watch(move |event| {
            warn!(?event, "instances on GPU devices are concerned");
            changed.notify_one();
            let (Event::Lost(instances) | Event::Unhealthy { instances, .. }) = event;
            if let Some(placer) = placer.clone() {
                runtime.spawn(async move { placer.end(&instances).await });
            }
        });
        watch.map_err(|source| Error::Data {
            path: self.settings.data.clone(),
            source,
        })
    }

    /// Keeps the node's certificate valid, if it has one.
    fn renewer(&self, identity: &Identity) -> Result<Option<Renewer>, Error> {
        if self.settings.tls.certificate.is_none() {
            return Ok(None);
        }
        Ok(Some(Renewer::new(RenewParts {
            controller: Controller::new(&self.settings.controller.url)?,
            tls: self.settings.tls.clone(),
            token_file: self.settings.network.token_file.clone(),
            addresses: NodeAddresses {
                gateway: identity.gateway,
                admin: identity.admin,
                peer: None,
                names: Vec::new(),
            },
            fleet: Arc::clone(&self.fleet),
            expires: self.metrics.certificate_expires.clone(),
        })))
    }

    /// Shows whether the node takes new work, and tells the controller at once when that changes.
    fn follow_fleet(&self) -> impl Future<Output = ()> + use<> {
        let mut views = self.fleet.subscribe();
        let (readiness, changed) = (self.readiness.clone(), Arc::clone(&self.changed));
        let (stopping, stop) = (Arc::clone(&self.draining), self.stop.clone());
        let takes_work = self.metrics.takes_work.clone();
        async move {
            loop {
                let work = views.borrow_and_update().work();
                takes_work.set(i64::from(work == Work::Taken));
                if !stopping.load(Ordering::Relaxed) {
                    readiness.set(CONDITION_ACCEPTING, work == Work::Taken, why(work));
                }
                changed.notify_one();
                tokio::select! {
                    () = stop.cancelled() => return,
                    next = views.changed() => if next.is_err() { return },
                }
            }
        }
    }

    fn puller(&self, apps: Apps) -> SnapshotPuller {
        SnapshotPuller {
            client: self.client.clone(),
            settings: self.settings.controller.clone(),
            token: self.token.clone(),
            apps,
            fleet: Arc::clone(&self.fleet),
            broker: Arc::clone(&self.broker),
            metrics: self.metrics.clone(),
        }
    }
}

/// The GPU devices of this machine.
fn devices(settings: &Settings, metrics: &Metrics) -> Result<Devices, Error> {
    // A machine that does not say when it was started is taken for the same one: faults of devices are then forgotten by hand alone.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(Devices::open(fdn_devices::Parts {
        settings: settings.devices.clone(),
        folder: &settings.data.join("devices"),
        discovery: fdn_devices::discovery::from_settings(&settings.devices),
        metrics: DeviceMetrics::new(&metrics.registry, &settings.node)?,
        boot: boot.trim().to_owned(),
        now: fdn_service::now,
    })?)
}

/// Why a node does not take new work.
const fn why(work: Work) -> &'static str {
    match work {
        Work::Taken => "",
        Work::Cordoned => "an operator drains this node",
        Work::Removed => "this node was removed from the network",
    }
}
