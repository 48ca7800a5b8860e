//! The agent as a whole: starts from settings, connects to the controllers, stops without losing a call.

mod apps;
mod calls;
mod containers;
mod controller_link;
mod standing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix_web::web::Data;
use fdn_core::{MessageId, NodeId};
use fdn_devices::Devices;
use fdn_instances::Runtime;
use fdn_link::{Connection, Feed, SharedControllerLink};
use fdn_service::admin::{AdminServer, Load, NotAccepting};
use fdn_service::health::Readiness;
use fdn_service::seal::SealKey;
use fdn_service::secret::Secret;
use fdn_service::{BoxedFuture, CancellationToken, listen, secret};
use fdn_spool::{Shipper, Spool, SpoolMetrics};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use uuid::Uuid;

use crate::apps::{Apps, CONDITION_APPS, CONDITION_STATE};
use crate::artifacts::Machine;
use crate::error::Error;
use crate::fleet::{Fleet, restore_devices};
use crate::gateway::GatewayServer;
use crate::gateway::routes::Routes;
use crate::invocations::{Admission, Ledger};
use crate::logs::LogHub;
use crate::metrics::{Metrics, show_held};
use crate::peers::Peers;
use crate::rtt::RttTable;
use crate::rtt::links::Nearness;
use crate::settings::Settings;
use crate::status::{Identity, ReportOutage, Reporter};
use crate::sync::Sync;
use crate::traces::{Exporter, Sample, Traces};
use crate::usage;
use crate::workflows::{RunChanges, StageServer};
use containers::Containers;
use controller_link::{connect, own_key, own_key_file};

/// The readiness condition that fails once the agent is stopping.
const CONDITION_ACCEPTING: &str = "accepting";
/// The setting that an error names when another program has the port. The agent listens on this port even where it is not configured, so two
/// agents on one machine collide there: the bare name of the setting would not explain that.
const CONTROLLERS_LISTEN: &str =
    "workflows.listen, the port for controllers, of which each agent on a machine needs its own";

/// A running agent.
pub struct Agent {
    node: NodeId,
    gateway: GatewayServer,
    stage_server: Option<StageServer>,
    endpoints: Endpoints,
    admin: AdminServer,
    readiness: Readiness,
    draining: Arc<AtomicBool>,
    changed: Arc<Notify>,
    drain: Duration,
    /// Cancelled to end every task; the gateway is stopped separately.
    stop: CancellationToken,
    /// Cancelled to end the connection to controllers and the reports sent over it.
    centre_stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    usage: Spool,
    _devices: fdn_devices::WatchGuard,
    containers: Option<Containers>,
    grace: Duration,
    _machine: Machine,
}

/// How other machines reach this node's mutual-TLS listener.
#[derive(Clone, Copy, Debug, Default)]
struct Endpoints {
    /// The address for gateways of other clusters, if this node takes their stage calls.
    stage_calls: Option<SocketAddr>,
    /// The port for controllers, if the node has certificates.
    controller_port: Option<u16>,
}

/// State shared by the parts of one agent.
struct Shared {
    settings: Settings,
    centre: SharedControllerLink,
    feed: Option<Feed>,
    machine: Machine,
    metrics: Metrics,
    readiness: Readiness,
    token: Secret,
    seal: Secret,
    routes: Arc<Routes>,
    hub: Arc<LogHub>,
    ledger: Arc<Ledger>,
    admission: Arc<Admission>,
    rtt: Arc<RttTable>,
    run_changes: Arc<RunChanges>,
    nearness: Arc<Nearness>,
    usage: Spool,
    traces: Option<Traces>,
    devices: Devices,
    fleet: Arc<Fleet>,
    draining: Arc<AtomicBool>,
    changed: Arc<Notify>,
    stop: CancellationToken,
    centre_stop: CancellationToken,
}

impl Agent {
    /// Starts an agent; returns once it listens. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When a setting is not valid, an address is taken, or the data directory cannot be used.
    pub fn start(settings: Settings) -> BoxedFuture<Result<Self, Error>> {
        Box::pin(async move {
            let machine = Machine::new(&settings.runtime)?;
            Self::begin(settings, None, machine, None).await
        })
    }

    /// Like [`Agent::start`], but with an engine that several agents of this process may share, so that they compile each component only once;
    /// optionally also with a connection to controllers and a container runtime instead of those that the settings describe.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn start_with(
        settings: Settings,
        connection: Option<Connection>,
        machine: Machine,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> BoxedFuture<Result<Self, Error>> {
        Box::pin(Self::begin(settings, connection, machine, runtime))
    }

    async fn begin(
        settings: Settings,
        connection: Option<Connection>,
        machine: Machine,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Result<Self, Error> {
        settings.check()?;
        let gateway_listener = listen::tcp(settings.gateway.listen, "gateway.listen")?;
        let secure = settings.gateway.tls.open()?;
        let admin_listener = listen::tcp(settings.admin.listen, "admin.listen")?;
        let stages = &settings.workflows;
        let listens = stages.listens(&settings.tls).then_some(stages.listen);
        let stage_listener = listens.map(|at| listen::tcp(at, CONTROLLERS_LISTEN));
        let stage_listener = stage_listener.transpose()?;
        let mut shared = Shared::new(settings, connection, machine)?;
        if let Some(warning) = shared.machine.engine.warning() {
            warn!("{warning}");
        }
        let stop = shared.stop.clone();
        // If a later step fails, the guard stops everything started so far.
        let guard = stop.clone().drop_guard();
        let (containers, mut tasks) = Box::pin(shared.start_containers(runtime)).await?;
        let instances = containers.as_ref().map(|all| all.instances.clone());
        tasks.extend(shared.export_traces()?);
        let (apps, shell) = shared.start_apps(instances.clone())?;
        let calls = shared.gateway(apps.clone(), instances)?;
        let stage_server = shared.take_stage_calls(&calls, stage_listener)?;
        let endpoints = shared.endpoints(stage_server.as_ref());
        if let (Some(at), Some(client)) = (endpoints.stage_calls, &calls.workflows.client) {
            client.set_own_address(at);
        }
        let gateway = GatewayServer::start(
            gateway_listener,
            secure,
            calls,
            Arc::clone(&shared.rtt),
            &shared.settings.gateway,
            &shared.settings.reports,
            &shared.settings.stop,
        )?;
        let (load, not_accepting) = (shared.load(), shared.not_accepting());
        let admin = AdminServer::start(
            admin_listener,
            shared.metrics.registry.clone(),
            shared.readiness.clone(),
            move |config| {
                config.app_data(Data::new(load.clone()));
                config.app_data(Data::new(not_accepting.clone()));
            },
        )?;
        let addresses = (gateway.address(), admin.address(), endpoints);
        let reporter = shared.reporter(apps.clone(), containers.as_ref(), addresses);
        let renewer = shared.renewer(&reporter.identity)?;
        let sync = shared.sync(apps)?;
        tasks.extend(
            shared
                .feed
                .take()
                .map(|feed| tokio::spawn(sync.run(feed, stop.clone()))),
        );
        let centre_stop = &shared.centre_stop;
        tasks.extend([
            shell,
            tokio::spawn(shared.follow_fleet()),
            tokio::spawn(Arc::clone(&reporter).run_status(centre_stop.clone())),
            tokio::spawn(Arc::clone(&reporter).run_runs(centre_stop.clone())),
            tokio::spawn(Arc::clone(&reporter).run_links(centre_stop.clone())),
            tokio::spawn(reporter.run_rtt(centre_stop.clone())),
            tokio::spawn(shared.shipper().run(centre_stop.clone())),
        ]);
        tasks.extend(renewer.map(|renewer| tokio::spawn(renewer.run(centre_stop.clone()))));
        let watch = shared.watch_devices(containers.as_ref().map(|all| all.local.clone()))?;
        tasks.push(tokio::spawn(restore_devices(
            Arc::clone(&shared.fleet),
            shared.devices.clone(),
            shared.settings.data.join("state"),
            Arc::clone(&shared.changed),
            stop,
        )));
        let node = &shared.settings.node;
        info!(%node, gateway = %gateway.address(), admin = %admin.address(), "the agent listens");
        Ok(Self {
            node: node.clone(),
            gateway,
            stage_server,
            endpoints,
            admin,
            readiness: shared.readiness,
            draining: shared.draining,
            changed: shared.changed,
            drain: shared.settings.stop.drain.as_duration(),
            stop: guard.disarm(),
            centre_stop: shared.centre_stop,
            tasks,
            usage: shared.usage,
            _devices: watch,
            containers,
            grace: shared.settings.stop.grace.as_duration(),
            _machine: shared.machine,
        })
    }

    /// The node's name.
    #[must_use]
    pub const fn node(&self) -> &NodeId {
        &self.node
    }

    /// This node's handle on its cluster; `None` if it does not take part in one.
    #[must_use]
    pub fn peers(&self) -> Option<&Peers> {
        self.containers.as_ref()?.peers.as_ref()
    }

    /// The address at which clients are served.
    #[must_use]
    pub const fn gateway_address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// The address at which clients are served with TLS, if there is one.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.gateway.secure_address()
    }

    /// The address at which gateways of other clusters call stages, if this node takes such calls.
    #[must_use]
    pub const fn stage_address(&self) -> Option<SocketAddr> {
        self.endpoints.stage_calls
    }

    /// The port at which controllers send requests to this node; `None` if it has no certificates to authenticate them.
    #[must_use]
    pub const fn controller_port(&self) -> Option<u16> {
        self.endpoints.controller_port
    }

    /// The address of the health and metrics endpoints.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Whether the agent can serve, by condition.
    #[must_use]
    pub const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Ends the connection to controllers and the reports over it; calls are still served. For a process that stops together with its
    /// controllers, so that their end is not logged as an outage.
    pub fn disconnect(&self) {
        self.centre_stop.cancel();
    }

    /// Stops the agent: reports that it is draining, keeps accepting calls for the drain time, lets running calls end, then stops everything
    /// else.
    pub fn stop(self) -> BoxedFuture<()> {
        Box::pin(self.end())
    }

    async fn end(mut self) {
        self.readiness
            .set(CONDITION_ACCEPTING, false, "the agent is stopping");
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        if let Some(peers) = self.peers() {
            peers.drain().await;
        }
        tokio::time::sleep(self.drain).await;
        let stage_server = self.stage_server.take();
        let stages = async {
            if let Some(server) = stage_server {
                server.stop(self.grace).await;
            }
        };
        tokio::join!(self.gateway.stop(), stages);
        if let Some(containers) = &self.containers {
            containers.stop(self.grace).await;
        }
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            if let Err(failure) = task.await {
                warn!(%failure, "a task of the agent ended badly");
            }
        }
        // All calls have ended, so no further usage record arrives.
        let usage = self.usage.clone();
        if let Err(failure) = tokio::task::spawn_blocking(move || usage.close()).await {
            warn!(%failure, "the usage spool was not closed; the next start mends it");
        }
        self.admin.stop().await;
        info!("the agent has stopped");
    }
}

impl Shared {
    fn new(
        settings: Settings,
        connection: Option<Connection>,
        machine: Machine,
    ) -> Result<Self, Error> {
        let metrics = Metrics::new(&settings.node)?;
        let stop = CancellationToken::new();
        let centre_stop = stop.child_token();
        let readiness = Readiness::waiting_for(&[CONDITION_STATE, CONDITION_APPS]);
        readiness.set(CONDITION_ACCEPTING, true, "");
        let spool_metrics = SpoolMetrics::new(&metrics.registry, &settings.node)?;
        let folder = settings.data.join("usage");
        let state = settings.data.join("state");
        let fleet = Fleet::open(state, settings.node.clone(), settings.tls.clone())?;
        let ledger = Ledger::new(settings.capacity.resolve(), settings.admission.slots);
        show_held(&metrics.registry, &settings.node, Arc::clone(&ledger))?;
        let seal = own_key(&settings)?;
        let connection = match connection {
            Some(connection) => connection,
            None => connect(&settings, &metrics, centre_stop.clone())?,
        };
        let (engine, sandboxes) = (machine.engine.clone(), Arc::clone(&ledger));
        let admission = Admission::new(
            &settings.admission,
            &settings.queue,
            Arc::clone(&ledger),
            Box::new(move |lacking| {
                engine.drop_idle_holding(lacking.get(), |held| sandboxes.held_by(held).get())
            }),
            &metrics,
        )?;
        Ok(Self {
            traces: None,
            usage: Spool::open(&folder, settings.usage.clone(), spool_metrics)?,
            devices: containers::devices(&settings, &metrics)?,
            fleet: Arc::new(fleet),
            token: secret::read(&settings.network.token_file)?,
            seal,
            routes: Arc::default(),
            hub: Arc::new(LogHub::new(
                settings.logs.clone(),
                settings.node.clone(),
                metrics.clone(),
            )),
            ledger,
            admission: Arc::new(admission),
            rtt: Arc::new(RttTable::new(
                settings.reports.rtt_prefixes,
                metrics.rtt_dropped.clone(),
            )),
            run_changes: Arc::new(RunChanges::new(
                settings.reports.runs,
                metrics.workflows.unreported.clone(),
            )),
            nearness: Arc::new(Nearness::new(&settings.workflows.emulate_delay)),
            draining: Arc::default(),
            changed: Arc::default(),
            settings,
            centre: connection.controllers,
            feed: Some(connection.feed),
            machine,
            metrics,
            readiness,
            stop,
            centre_stop,
        })
    }

    /// Starts the export of spans, if a collector is configured.
    fn export_traces(&mut self) -> Result<Option<JoinHandle<()>>, Error> {
        let settings = &self.settings.traces;
        let Some(url) = settings.endpoint()? else {
            return Ok(None);
        };
        let metrics = self.metrics.traces.clone();
        let sample = Sample::of(settings.sample);
        let (traces, calls) = Traces::new(settings.queue, sample, metrics.clone());
        let exporter = Exporter::new(&self.settings, url, calls, metrics)?;
        self.traces = Some(traces);
        Ok(Some(tokio::spawn(exporter.run(self.stop.clone()))))
    }

    /// The node's load, for DNS servers: the number of running and waiting calls divided by the number that can run at once.
    fn load(&self) -> Load {
        let (ledger, waiting) = (
            Arc::clone(self.admission.ledger()),
            self.metrics.waiting.clone(),
        );
        Load(Arc::new(move || {
            let waiting = u32::try_from(waiting.get()).unwrap_or(0);
            f64::from(ledger.running().saturating_add(waiting)) / f64::from(ledger.places().max(1))
        }))
    }

    /// Why the node refuses calls now, for DNS servers and operators: the usage spool cannot record them.
    fn not_accepting(&self) -> NotAccepting {
        let spool = self.usage.clone();
        NotAccepting {
            condition: "usage",
            why: Arc::new(move || spool.refusal().map(|why| why.to_string())),
        }
    }

    fn reporter(
        &self,
        apps: Apps,
        containers: Option<&Containers>,
        (gateway, admin, endpoints): (SocketAddr, SocketAddr, Endpoints),
    ) -> Arc<Reporter> {
        let settings = &self.settings;
        Arc::new(Reporter {
            identity: Identity {
                node: settings.node.clone(),
                cluster: settings.cluster.clone(),
                region: settings.region.clone(),
                location: settings.location,
                gateway: settings.gateway.advertise.unwrap_or(gateway),
                admin: settings.admin.advertise.unwrap_or(admin),
                stage_calls: endpoints.stage_calls,
                controller_port: endpoints.controller_port,
                weight: settings.gateway.weight,
                speed: settings.speed,
                capacity: settings.capacity.resolve(),
                boot: MessageId::from_uuid(Uuid::now_v7()),
                runtimes: containers::runtimes(containers.map(|all| all.local.kind())),
            },
            settings: settings.reports.clone(),
            centre: Arc::clone(&self.centre),
            apps,
            admission: Arc::clone(&self.admission),
            engine: self.machine.engine.clone(),
            devices: self.devices.clone(),
            metrics: self.metrics.clone(),
            rtt: Arc::clone(&self.rtt),
            nearness: Arc::clone(&self.nearness),
            run_changes: Arc::clone(&self.run_changes),
            draining: Arc::clone(&self.draining),
            fleet: Arc::clone(&self.fleet),
            peers: containers.and_then(|all| all.peers.clone()),
            changed: Arc::clone(&self.changed),
            sequence: AtomicU64::new(0),
            outage: ReportOutage::default(),
        })
    }

    fn shipper(&self) -> Shipper<usage::Controller> {
        Shipper {
            spool: self.usage.clone(),
            sink: usage::Controller::new(
                Arc::clone(&self.centre),
                self.settings.centre.answer_timeout.as_duration(),
            ),
            node: self.settings.node.clone(),
        }
    }

    fn sync(&self, apps: Apps) -> Result<Sync, Error> {
        Ok(Sync {
            apps,
            fleet: Arc::clone(&self.fleet),
            key: SealKey::from_secret(&self.seal)?,
            key_file: own_key_file(&self.settings),
            retry: (
                self.settings.centre.retry_first.as_duration(),
                self.settings.centre.retry_max.as_duration(),
            ),
            metrics: self.metrics.clone(),
        })
    }
}
