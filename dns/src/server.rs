//! The DNS server as one component: binds the sockets, loads the state on disk, and starts the tasks.

mod encrypted;
mod listeners;

use std::net::SocketAddr;
use std::sync::Arc;

use fdn_core::{ErrorCode, Revision};
use fdn_link::Connection;
use fdn_service::BoxedFuture;
use fdn_service::admin::AdminServer;
use fdn_service::health::Readiness;
use prometheus::Registry;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use self::encrypted::Encrypted;
use self::listeners::BoundAddress;
pub use self::listeners::Listeners;
use crate::admin;
use crate::dnssec::{Signer, keeper};
use crate::error::Error;
use crate::geo::GeoDatabase;
use crate::handler::transfer::Transfers;
use crate::handler::{Responder, streams, tcp, udp};
use crate::health::shed::{self, Shedding};
use crate::health::{self, Checks};
use crate::member::Member;
use crate::metrics::Metrics;
use crate::notify::Notices;
use crate::policy::Policy;
use crate::policy::nearest_clusters::Locate;
use crate::policy::zone::Names;
use crate::published::Published;
use crate::settings::{HealthSettings, Settings};
use crate::sync::demand::{self, Demand};
use crate::sync::{AuthoritiesHandler, READY, StateStore, StoreSettings};

/// A running DNS server.
pub struct Dns {
    address: SocketAddr,
    /// The first address of TLS, and that of HTTPS.
    encrypted: [Option<SocketAddr>; 2],
    admin: AdminServer,
    /// Cancels the tasks on drop, so that a server that is dropped without `stop` does not go on answering in the background.
    shutdown: DropGuard,
    tasks: TaskTracker,
}

impl Dns {
    /// Binds the sockets and starts the server on them ([`Dns::start_on`]).
    ///
    /// # Errors
    /// When a setting is invalid, an address is taken, or [`Dns::start_on`] fails.
    pub fn start(
        settings: Settings,
        connection: Option<Connection>,
    ) -> BoxedFuture<Result<Self, Error>> {
        Box::pin(async move {
            settings.validate()?;
            let listeners = Listeners::bind(&settings)?;
            Self::begin(listeners, settings, connection).await
        })
    }

    /// Starts the server on sockets that were bound for these settings, which must be valid. The server listens when this returns, and answers
    /// from the state on disk if there is one.
    ///
    /// # Errors
    /// When a file cannot be used, or this machine is not a DNS server of a network. An unreachable controller is not an error.
    pub fn start_on(
        listeners: Listeners,
        settings: Settings,
        connection: Option<Connection>,
    ) -> BoxedFuture<Result<Self, Error>> {
        Box::pin(Self::begin(listeners, settings, connection))
    }

    async fn begin(
        listeners: Listeners,
        settings: Settings,
        connection: Option<Connection>,
    ) -> Result<Self, Error> {
        let Listeners {
            plain: bound,
            tls,
            https,
            admin: admin_listener,
        } = listeners;
        let address = bound.first().map(|b| b.address).ok_or(Error::Setting {
            key: "listen",
            reason: "must name at least one address".to_owned(),
        })?;
        let encrypted = Encrypted::open(&settings, (tls, https))?;
        let encrypted_addresses = encrypted.as_ref().map_or([None; 2], Encrypted::addresses);
        let registry = Registry::new();
        let metrics = Metrics::new(&registry)?.naming_apps(settings.metrics.apps);
        let metrics = Arc::new(metrics);
        let readiness = Readiness::waiting_for(&[READY]);
        let zone = Arc::new(settings.zone_data(address.ip())?);
        let guard = settings.guard()?;
        let transfers = guard.transfers.clone();
        let locate = locate(&settings)?;
        let names = Names::new(&zone, [], Revision::NONE, false).map_err(|e| Error::Setting {
            key: "zone",
            reason: e.to_string(),
        })?;
        let published = Arc::new(Published::new(names, locate, Arc::clone(&metrics)));
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let member = Member::of(&settings, connection, &registry, &shutdown)?;
        let again = Arc::clone(&member.connection.feed.resync);
        let callbacks = (readiness.clone(), (again, member.on_authorities));
        let store = open_store(&settings, zone, &published, &metrics, callbacks).await?;
        let Connection { controllers, feed } = member.connection;
        let stop = shutdown.clone();
        tasks.spawn_blocking(move || store.run_blocking(feed, stop));
        if let Some(renewer) = member.renewer {
            tasks.spawn(renewer.run(shutdown.clone()));
        }
        start_health_checks(&settings, &published, &metrics, &tasks, &shutdown)?;
        start_notifying(
            &settings,
            &transfers,
            &published,
            &metrics,
            (&tasks, &shutdown),
        );
        let demand = Arc::new(Demand::new(settings.demand.capacity, Arc::clone(&metrics)));
        tasks.spawn(demand::report(
            Arc::clone(&demand),
            member.name,
            controllers,
            settings.demand.clone(),
            shutdown.clone(),
        ));
        let policy = policy(&settings);
        let responder = Responder::new(
            Arc::clone(&published),
            policy,
            demand,
            metrics,
            settings.answer.udp_size,
        );
        let signer = sign(&settings, responder.metrics(), &tasks, &shutdown)?;
        let query_log = settings.start_query_log(responder.metrics())?;
        let responder = responder.guarded(guard).signing(signer.clone());
        let responder = Arc::new(responder.logging(query_log));
        serve(bound, &responder, &settings, &tasks, &shutdown)?;
        if let Some(encrypted) = encrypted {
            encrypted.serve(&responder, &settings, &tasks, &shutdown);
        }
        let lookup = admin::Lookup {
            published,
            policy,
            signer,
        };
        let admin = AdminServer::start(admin_listener, registry, readiness, move |config| {
            lookup.route(config)
        })?;
        tasks.close();
        info!(%address, admin = %admin.address(), zone = %settings.zone.name, "answering");
        Ok(Self {
            address,
            encrypted: encrypted_addresses,
            admin,
            shutdown: shutdown.drop_guard(),
            tasks,
        })
    }

    /// The first configured address of UDP and TCP.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The first configured address of DNS over TLS, if there is one.
    #[must_use]
    pub const fn tls_address(&self) -> Option<SocketAddr> {
        self.encrypted[0]
    }

    /// The first configured address of DNS over HTTPS, if there is one.
    #[must_use]
    pub const fn https_address(&self) -> Option<SocketAddr> {
        self.encrypted[1]
    }

    /// The address of health, metrics and explanations.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Stops answering, writes the state to disk, and waits for all tasks.
    pub fn stop(self) -> BoxedFuture<()> {
        Box::pin(async move {
            drop(self.shutdown);
            self.tasks.wait().await;
            self.admin.stop().await;
        })
    }
}

async fn open_store(
    settings: &Settings,
    zone: Arc<crate::policy::zone::ZoneData>,
    published: &Arc<Published>,
    metrics: &Arc<Metrics>,
    (readiness, callbacks): (Readiness, (Arc<Notify>, AuthoritiesHandler)),
) -> Result<StateStore, Error> {
    let store_settings = StoreSettings {
        dir: settings.data_dir.clone(),
        coalesce: settings.sync.coalesce.as_duration(),
        save_after: settings.sync.save_after.as_duration(),
    };
    StateStore::open(
        store_settings,
        zone,
        Arc::clone(published),
        Arc::clone(metrics),
        readiness,
        callbacks,
    )
    .await
    .map_err(|source| Error::DataDirectory {
        path: settings.data_dir.clone(),
        source,
    })
}

/// Reads the zone's keys, if it is signed, and starts the task that maintains them.
fn sign(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Result<Option<Arc<Signer>>, Error> {
    let zone = &settings.zone;
    let Some(source) = zone.dnssec.source(&zone.name)? else {
        return Ok(None);
    };
    let ring = source.ring(fdn_service::now())?;
    let signing = zone.dnssec.signing();
    let signer = Arc::new(Signer::new(ring, signing, metrics.signing.clone()));
    tasks.spawn(keeper::run(source, Arc::clone(&signer), shutdown.clone()));
    Ok(Some(signer))
}

/// Starts the tasks of health checks and load shedding.
fn start_health_checks(
    settings: &Settings,
    published: &Arc<Published>,
    metrics: &Arc<Metrics>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let checks = checks(settings);
    let HealthSettings {
        scheme, ca_file, ..
    } = &settings.health;
    let client = health::client::Client::new(checks.schedule.timeout, *scheme, ca_file.as_deref())?;
    tasks.spawn(health::run(
        client,
        checks,
        Arc::clone(published),
        Arc::clone(metrics),
        shutdown.clone(),
    ));
    if settings.shed.enabled {
        tasks.spawn(shed::run(
            shedding(settings),
            checks.schedule.interval,
            Arc::clone(published),
            Arc::clone(metrics),
            shutdown.clone(),
        ));
    }
    Ok(())
}

/// Starts the tasks that notify secondaries of the zone's serial number.
fn start_notifying(
    settings: &Settings,
    transfers: &Transfers,
    published: &Arc<Published>,
    metrics: &Arc<Metrics>,
    (tasks, shutdown): (&TaskTracker, &CancellationToken),
) {
    let (Some(apex), Some(first)) = (transfers.apex(), settings.listen.first()) else {
        return;
    };
    let notices = Notices {
        apex: apex.clone(),
        from: first.ip(),
        timing: settings.notify_timing(),
        published: Arc::clone(published),
        metrics: metrics.transfers.clone(),
    };
    for secondary in settings.secondaries(transfers) {
        tasks.spawn(notices.clone().run(secondary, shutdown.clone()));
    }
}

fn checks(settings: &Settings) -> Checks {
    Checks {
        schedule: settings.health.schedule(),
        concurrency: settings.health.concurrency,
    }
}

/// Opens the geographic database, if one is configured.
fn locate(settings: &Settings) -> Result<Option<Box<dyn Locate>>, Error> {
    let file = settings.geo.database.as_deref();
    let database = file.map(GeoDatabase::open).transpose()?;
    Ok(database.map(|database| Box::new(database) as Box<dyn Locate>))
}

const fn policy(settings: &Settings) -> Policy {
    Policy {
        when_all_dead: settings.answer.when_all_dead,
        max_addresses: settings.answer.max_addresses,
    }
}

const fn shedding(settings: &Settings) -> Shedding {
    let shed = &settings.shed;
    Shedding {
        above: shed.above,
        below: shed.below,
        speed: shed.speed,
        max: shed.most,
    }
}

fn serve(
    addresses: Vec<BoundAddress>,
    responder: &Arc<Responder>,
    settings: &Settings,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let limits = streams::Limits {
        connections: settings.tcp.connections,
        per_client: settings.tcp.per_client,
        idle: settings.tcp.idle.as_duration(),
        request: settings.tcp.request.as_usize(),
    };
    for BoundAddress { tcp, udp, .. } in addresses {
        let tcp = tokio::net::TcpListener::from_std(tcp).map_err(Error::Socket)?;
        tasks.spawn(tcp::serve(
            tcp,
            Arc::clone(responder),
            limits,
            shutdown.clone(),
        ));
        for socket in udp {
            let (responder, shutdown) = (Arc::clone(responder), shutdown.clone());
            tasks.spawn_blocking(move || {
                if let Err(cause) = udp::serve(&socket, &responder, &shutdown) {
                    error!(code = %ErrorCode::Internal, %cause, "a UDP socket cannot be served");
                }
            });
        }
    }
    Ok(())
}
