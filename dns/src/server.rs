//! The DNS server as one component: binds, loads what is on disk, and starts the tasks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{SharedBroker, Subscription};
use fdn_core::Revision;
use fdn_core::message::Channel;
use fdn_service::admin::AdminServer;
use fdn_service::health::Readiness;
use fdn_service::{ServiceError, http_client, listen, secret};
use prometheus::Registry;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::admin;
use crate::error::Error;
use crate::geo::GeoDatabase;
use crate::handler::{Responder, tcp, udp};
use crate::health::machine::Thresholds;
use crate::health::{self, Checks};
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::policy::atlas::Locate;
use crate::policy::zone::Names;
use crate::published::Published;
use crate::settings::Settings;
use crate::sync::demand::{self, Demand};
use crate::sync::{Keeper, Keeping, READY, pull};

/// How often a port that is free for both UDP and TCP is sought when any port will do.
const PORT_ATTEMPTS: u32 = 16;
/// The longest silence of the controller while it sends a snapshot.
const PULL_IDLE: Duration = Duration::from_secs(10);

/// A running DNS server.
pub struct Dns {
    address: SocketAddr,
    admin: AdminServer,
    /// A server that is dropped instead of stopped must not go on answering in the background.
    shutdown: DropGuard,
    tasks: TaskTracker,
}

/// Sockets of one address.
struct Bound {
    address: SocketAddr,
    tcp: tokio::net::TcpListener,
    udp: Vec<tokio::net::UdpSocket>,
}

impl Dns {
    /// Starts the server. It listens when this returns, and answers from the state on disk if there is one.
    ///
    /// # Errors
    /// When a setting cannot work, an address is taken, a file cannot be used, or the broker refuses the subscription. A broker or a
    /// controller that is away is no error.
    pub async fn start(settings: Settings, broker: SharedBroker) -> Result<Self, Error> {
        settings.validate()?;
        let bound = bind_all(&settings)?;
        let address = bound.first().map(|b| b.address).ok_or(Error::Setting {
            key: "listen",
            reason: "must name at least one address".to_owned(),
        })?;
        let admin_listener = listen::tcp(settings.admin, "admin")?;
        let registry = Registry::new();
        let metrics = Arc::new(Metrics::new(&registry)?);
        let readiness = Readiness::waiting_for(&[READY]);
        let zone = Arc::new(settings.zone_data(address.ip())?);
        let locate = settings
            .geo
            .database
            .as_deref()
            .map(GeoDatabase::open)
            .transpose()?;
        let locate = locate.map(|database| Box::new(database) as Box<dyn Locate>);
        let names = Names::new(&zone, [], Revision::NONE, false).map_err(|e| Error::Setting {
            key: "zone",
            reason: e.to_string(),
        })?;
        let published = Arc::new(Published::new(names, locate, Arc::clone(&metrics)));
        let keeper = open_keeper(&settings, zone, &published, &metrics, readiness.clone()).await?;
        let subscription = Subscription {
            channel: Channel::Dns,
            consumer: settings.server.clone(),
            prefetch: settings.sync.prefetch,
        };
        let deliveries = broker.subscribe(subscription).await?;
        let token = settings
            .network
            .token_file
            .as_deref()
            .map(secret::read)
            .transpose()?;

        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (snapshots, pulled) = mpsc::channel(1);
        tasks.spawn(keeper.run(deliveries, pulled, shutdown.clone()));
        if let Some(source) = source(&settings, token)? {
            let client = http_client::build(PULL_IDLE)?;
            tasks.spawn(pull::run(
                source,
                client,
                Arc::clone(&broker),
                snapshots,
                shutdown.clone(),
            ));
        }
        let checks = checks(&settings);
        let client = http_client::build(checks.timeout)?;
        let health = health::run(
            client,
            checks,
            Arc::clone(&published),
            Arc::clone(&metrics),
            shutdown.clone(),
        );
        tasks.spawn(health);
        let demand = Arc::new(Demand::new(settings.demand.capacity, Arc::clone(&metrics)));
        let every = settings.demand.interval.as_duration();
        tasks.spawn(demand::report(
            Arc::clone(&demand),
            settings.server.clone(),
            broker,
            every,
            shutdown.clone(),
        ));
        let policy = Policy {
            when_all_dead: settings.answer.when_all_dead,
            max_addresses: settings.answer.max_addresses,
        };
        let responder = Arc::new(Responder::new(
            Arc::clone(&published),
            policy,
            demand,
            metrics,
            settings.answer.udp_size,
        ));
        serve(bound, &responder, &settings, &tasks, &shutdown);
        let lookup = admin::Lookup { published, policy };
        let admin = AdminServer::start(admin_listener, registry, readiness, move |config| {
            lookup.route(config)
        })?;
        tasks.close();
        info!(%address, admin = %admin.address(), zone = %settings.zone.name, "answering");
        Ok(Self {
            address,
            admin,
            shutdown: shutdown.drop_guard(),
            tasks,
        })
    }

    /// Where it answers, over UDP and TCP: the first of the configured addresses.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves health, metrics and explanations.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Stops answering, writes the state to disk, and ends all tasks.
    pub async fn stop(self) {
        drop(self.shutdown);
        self.tasks.wait().await;
        self.admin.stop().await;
    }
}

async fn open_keeper(
    settings: &Settings,
    zone: Arc<crate::policy::zone::ZoneData>,
    published: &Arc<Published>,
    metrics: &Arc<Metrics>,
    readiness: Readiness,
) -> Result<Keeper, Error> {
    let keeping = Keeping {
        dir: settings.data_dir.clone(),
        coalesce: settings.sync.coalesce.as_duration(),
        save_after: settings.sync.save_after.as_duration(),
    };
    Keeper::open(
        keeping,
        zone,
        Arc::clone(published),
        Arc::clone(metrics),
        readiness,
    )
    .await
    .map_err(|source| Error::DataDirectory {
        path: settings.data_dir.clone(),
        source,
    })
}

fn source(
    settings: &Settings,
    token: Option<secret::Secret>,
) -> Result<Option<pull::Source>, Error> {
    let Some(base) = &settings.network.controller else {
        return Ok(None);
    };
    let mut url = base.clone();
    url.path_segments_mut()
        .map_err(|()| Error::Setting {
            key: "network.controller",
            reason: "must be an http address".to_owned(),
        })?
        .pop_if_empty()
        .extend(["dns", "v1", "snapshot"]);
    Ok(Some(pull::Source {
        url,
        token,
        every: settings.sync.pull_interval.as_duration(),
        limit: settings.sync.snapshot_limit.as_usize(),
    }))
}

fn checks(settings: &Settings) -> Checks {
    let health = &settings.health;
    Checks {
        interval: health.interval.as_duration(),
        timeout: health.timeout.as_duration(),
        thresholds: Thresholds {
            fall: health.fall,
            rise: health.rise,
        },
        concurrency: health.concurrency,
    }
}

fn serve(
    bound: Vec<Bound>,
    responder: &Arc<Responder>,
    settings: &Settings,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let limits = tcp::Limits {
        connections: settings.tcp.connections,
        per_client: settings.tcp.per_client,
        idle: settings.tcp.idle.as_duration(),
    };
    for Bound { tcp, udp, .. } in bound {
        tasks.spawn(tcp::serve(
            tcp,
            Arc::clone(responder),
            limits,
            shutdown.clone(),
        ));
        for socket in udp {
            tasks.spawn(udp::serve(socket, Arc::clone(responder), shutdown.clone()));
        }
    }
}

fn bind_all(settings: &Settings) -> Result<Vec<Bound>, Error> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sockets = if settings.udp.sockets == 0 {
        cores
    } else {
        settings.udp.sockets
    };
    let buffer = settings.udp.receive_buffer.as_usize();
    settings
        .listen
        .iter()
        .map(|address| bind(*address, sockets, buffer))
        .collect()
}

/// Binds one address for TCP and UDP. With port 0 the port is the same for both.
fn bind(address: SocketAddr, sockets: usize, buffer: usize) -> Result<Bound, Error> {
    let mut attempt = 1;
    loop {
        // TCP first: unlike the UDP sockets it shares its port with nobody, so a second server on this address is noticed here.
        let listener = listen::tcp(address, "listen")?;
        let bound = listener.local_addr().map_err(Error::Socket)?;
        let udp: Result<Vec<_>, _> = (0..sockets).map(|_| shared_udp(bound, buffer)).collect();
        match udp {
            Ok(udp) => {
                let tcp = tokio::net::TcpListener::from_std(listener).map_err(Error::Socket)?;
                let udp = udp
                    .into_iter()
                    .map(tokio::net::UdpSocket::from_std)
                    .collect::<Result<_, _>>();
                return Ok(Bound {
                    address: bound,
                    tcp,
                    udp: udp.map_err(Error::Socket)?,
                });
            }
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => attempt += 1,
            Err(source) if source.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(ServiceError::AddressTaken {
                    address: bound,
                    setting: "listen".to_owned(),
                }
                .into());
            }
            Err(source) => {
                return Err(ServiceError::Listen {
                    address: bound,
                    setting: "listen".to_owned(),
                    source,
                }
                .into());
            }
        }
    }
}

/// A UDP socket that shares its address with the other sockets of this server.
fn shared_udp(address: SocketAddr, buffer: usize) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_recv_buffer_size(buffer)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
