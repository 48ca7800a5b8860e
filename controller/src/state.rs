//! What the parts of a controller share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_bus::SharedBroker;
use fdn_core::Timestamp;
use fdn_scheduling::place::Bandwidth;
use fdn_scheduling::steer::Margin;
use fdn_service::health::Readiness;
use fdn_service::seal::NetworkKey;
use fdn_service::secret::{self, Secret};
use tokio::sync::{Notify, Semaphore};

use crate::Error;
use crate::app::fleet::standing;
use crate::app::login::Logins;
use crate::artifacts::Artifacts;
use crate::geo::{Geo, RttTable};
use crate::metrics::Metrics;
use crate::reconcile::demand::Demand;
use crate::reconcile::live::Live;
use crate::reconcile::world::{Terms, World};
use crate::settings::Settings;
use crate::store::Store;
use crate::store::node::node_status_list;
use crate::store::rtt::rtt_list;
use crate::upload::Uploads;

/// What the parts of a controller share. Mutexes are held for a few instructions and never across an await.
pub struct State {
    /// The settings, checked.
    pub settings: Settings,
    /// The metadata store.
    pub store: Store,
    /// The artifact store.
    pub artifacts: Artifacts,
    /// The broker.
    pub broker: SharedBroker,
    /// The judge of uploads.
    pub uploads: Uploads,
    /// Failed logins.
    pub logins: Logins,
    /// What nodes say. The consumer writes, everybody reads.
    pub live: Mutex<Live>,
    /// Demand that waits for the planner. The consumer adds, the planner takes.
    pub demand: Mutex<Demand>,
    /// Measured round trips. The consumer writes, the planner reads.
    pub rtt: Mutex<RttTable>,
    /// Client locations.
    pub geo: Arc<Geo>,
    /// Seals secrets.
    pub key: NetworkKey,
    /// By which agents and DNS servers are known.
    pub token: Secret,
    /// For asking agents.
    pub http: reqwest::Client,
    /// Readers of function logs.
    pub log_readers: Arc<Semaphore>,
    /// One deploy, rollback or delete at a time in this process: artifacts and rows have no common transaction.
    pub changes: tokio::sync::Mutex<()>,
    /// Wakes the planner.
    pub planner_wake: Notify,
    /// Wakes the publisher.
    pub outbox_wake: Notify,
    /// Metrics.
    pub metrics: Metrics,
    /// Readiness.
    pub readiness: Readiness,
}

/// Locks a mutex whose holders cannot leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Opens everything that the settings name and brings the schema up to date.
    ///
    /// # Errors
    /// When a setting is not valid or what it names cannot be used.
    pub async fn open(
        settings: Settings,
        broker: SharedBroker,
        compiler: fdn_runtime::Compiler,
    ) -> Result<Self, Error> {
        settings.check()?;
        let key = NetworkKey::from_secret(&secret::read_or_create(&settings.network.key_file)?)?;
        let token = secret::read_or_create(&settings.network.token_file)?;
        let geo = Arc::new(Geo::open(&settings.geo)?);
        let artifacts = Artifacts::open(&settings.artifacts)?;
        let store = Store::connect(&settings.database).await?;
        store.migrate().await?;
        let now = fdn_service::now();
        let mut connection = store.read().await?;
        let statuses = node_status_list(&mut connection).await?;
        let standing = standing(&mut connection).await?;
        let rtts = rtt_list(&mut connection).await?;
        drop(connection);
        let mut live = Live::new(statuses, settings.planner.nodes_max, now);
        live.set_standing(standing);
        Ok(Self {
            uploads: Uploads::open(&settings, compiler)?,
            logins: Logins::new(&settings.accounts),
            live: Mutex::new(live),
            demand: Mutex::new(Demand::new(settings.planner.demand_pending)),
            rtt: Mutex::new(RttTable::new(&settings.geo, rtts)),
            http: fdn_service::http_client::build(Duration::from_secs(3600))?,
            log_readers: Arc::new(Semaphore::new(settings.function_logs.readers)),
            changes: tokio::sync::Mutex::new(()),
            planner_wake: Notify::new(),
            outbox_wake: Notify::new(),
            metrics: Metrics::new()?,
            readiness: Readiness::waiting_for(&["broker", "planner", "store"]),
            settings,
            store,
            artifacts,
            broker,
            geo,
            key,
            token,
        })
    }

    /// The network at this moment, as placement sees it.
    #[must_use]
    pub fn world(&self, now: Timestamp) -> World {
        self.world_of(&lock(&self.live), now)
    }

    /// The same from a view of the nodes that is locked already.
    #[must_use]
    pub fn world_of(&self, live: &Live, now: Timestamp) -> World {
        let planner = &self.settings.planner;
        let terms = Terms {
            margin: Margin::new(planner.margin).unwrap_or_default(),
            bandwidth: Bandwidth::from_mb_per_s(planner.bandwidth_mb_per_s)
                .unwrap_or(Bandwidth::UNLIMITED),
        };
        World::new(
            live,
            Arc::clone(&self.geo),
            lock(&self.rtt).list(),
            terms,
            now,
        )
    }

    /// The time to live of DNS answers in seconds.
    #[must_use]
    pub fn ttl_s(&self) -> u32 {
        u32::try_from(self.settings.planner.ttl.as_millis() / 1000).unwrap_or(u32::MAX)
    }
}
