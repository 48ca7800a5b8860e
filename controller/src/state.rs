//! The state shared by the parts of a controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdn_bus::SharedBroker;
use fdn_core::message::NodeStatus;
use fdn_core::what_if::WhatIf;
use fdn_core::{ClusterId, Digest, Timestamp};
use fdn_service::health::Readiness;
use fdn_service::pki::pin::of_file;
use fdn_service::seal::SealKey;
use fdn_service::secret::{self, Secret};
use sqlx::AnyConnection;
use tokio::sync::{Notify, Semaphore};

use crate::Error;
use crate::app::fleet::admin_state;
use crate::app::login::Logins;
use crate::app::oidc::Provider;
use crate::app::preview::PREVIEWS_MAX;
use crate::app::runs::RunBuffer;
use crate::artifacts::Artifacts;
use crate::edge::Edge;
use crate::geo::{ClientTable, Geo, LinkTable};
use crate::metrics::Metrics;
use crate::proofs::Proofs;
use crate::reconcile::actual::Learner;
use crate::reconcile::demand::Demand;
use crate::reconcile::node_registry::NodeRegistry;
use crate::reconcile::what_if;
use crate::reconcile::world::{ClusterLoad, MeasuredRtts, Terms, World};
use crate::settings::Settings;
use crate::singleton::Singletons;
use crate::store::node::{StageCalls, Statuses, node_status_list};
use crate::store::rtt::{link_list, rtt_list};
use crate::store::{Store, StoreError};
use crate::upload::Uploads;
use crate::vault::Vault;

/// The state shared by the parts of a controller. Mutexes are held for a few instructions and never across an await.
pub struct State {
    /// The validated settings.
    pub settings: Settings,
    /// The part of the settings that placement needs.
    pub terms: Terms,
    /// The metadata store.
    pub store: Store,
    /// The artifact store.
    pub artifacts: Artifacts,
    /// The broker.
    pub broker: SharedBroker,
    /// Validates uploads.
    pub uploads: Uploads,
    /// Machines at the edge.
    pub edge: Edge,
    /// Failed logins.
    pub logins: Logins,
    /// The identity provider.
    pub oidc: Provider,
    /// The latest reports of nodes. The consumer writes, everybody reads.
    pub live: Mutex<NodeRegistry>,
    /// Node statuses as read from the database. The planner takes what is new. Locked during reads, by tasks that have a connection already:
    /// nobody waits for a connection while holding this lock.
    pub statuses: tokio::sync::Mutex<Statuses>,
    /// Demand reports for the planner. The consumer adds, the planner takes.
    pub demand: Mutex<Demand>,
    /// The load of each cluster as of the last planning pass. The planner writes, explanations read.
    pub cluster_loads: Mutex<BTreeMap<ClusterId, ClusterLoad>>,
    /// Measured round trip times of clients. The consumer writes, the planner reads.
    pub rtt: Mutex<ClientTable>,
    /// Round trip times between clusters.
    pub links: Mutex<LinkTable>,
    /// Corrections of predictions, learnt from what calls took.
    pub learner: Mutex<Learner>,
    /// Client locations.
    pub geo: Arc<Geo>,
    /// Seals what is sent to nodes.
    pub key: SealKey,
    /// Seals secrets at rest.
    pub vault: Vault,
    /// Looks for proofs of host names.
    pub proofs: Proofs,
    /// The secret that node tokens, CSRF tokens and similar proofs are derived from.
    pub token: Secret,
    /// The authority that join tokens refer to.
    pub authority: Option<Digest>,
    /// The key that the signing keys of webhooks are derived from.
    pub webhook_key: Secret,
    /// Limits the submissions of jobs that are read at the same time.
    pub submissions: Arc<Semaphore>,
    /// Wakes the sender of webhooks.
    pub webhook_wake: Notify,
    /// Limits the test calls of apps made at the same time.
    pub tries: Semaphore,
    /// Reported runs that are to be written. The consumer adds.
    pub runs: Mutex<RunBuffer>,
    /// Events for readers.
    pub events: crate::app::events::hub::Hub,
    /// Limits the readers of function logs.
    pub log_readers: Arc<Semaphore>,
    /// Limits the searches for calls at the same time: each holds the responses of many nodes.
    pub call_searches: Semaphore,
    /// Limits the previews of plans that are computed at the same time.
    pub previews: Arc<Semaphore>,
    /// Serializes deploys, rollbacks, deletions and other changes in this process: artifacts and rows have no common transaction.
    pub changes: tokio::sync::Mutex<()>,
    /// The leases of work that one controller does for all.
    pub singletons: Singletons,
    /// Wakes the planner.
    pub planner_wake: Notify,
    /// Wakes the publisher.
    pub outbox_wake: Notify,
    /// Metrics.
    pub metrics: Metrics,
    /// Readiness.
    pub readiness: Readiness,
}

/// Locks a mutex. Poisoning is ignored, since no holder can leave the value half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Opens everything that the settings name, and migrates the database.
    ///
    /// # Errors
    /// When a setting is not valid, or what it names cannot be used.
    pub async fn open(
        settings: Settings,
        broker: SharedBroker,
        compiler: fdn_runtime::Compiler,
    ) -> Result<Self, Error> {
        settings.check()?;
        let terms = settings.planner.terms()?;
        let network_key = secret::read_or_create(&settings.network.key_file)?;
        let key = SealKey::from_secret(&network_key)?;
        let token = secret::read_or_create(&settings.network.token_file)?;
        let geo = Arc::new(Geo::open(&settings.geo)?);
        let artifacts = Artifacts::open(&settings.artifacts)?;
        let store = Store::connect(&settings.database).await?;
        store.migrate().await?;
        let vault = Vault::open(&settings)?;
        let proofs = Proofs::open(&settings.domains);
        let now = fdn_service::now();
        let mut connection = store.read().await?;
        vault.check(&mut connection).await?;
        let statuses = node_status_list(&mut connection).await?;
        let admin_state = admin_state(&mut connection, 0).await?;
        let mut rtt = ClientTable::of_clients(&settings.geo);
        rtt.merge(rtt_list(&mut connection, Timestamp(0)).await?);
        let mut links = LinkTable::of_links(&settings.geo);
        links.merge(link_list(&mut connection, Timestamp(0)).await?);
        drop(connection);
        let mut live = NodeRegistry::new(statuses, settings.planner.nodes_max, now);
        live.enable_figures(settings.console.series);
        live.set_admin_state(admin_state);
        Ok(Self {
            uploads: Uploads::open(&settings, compiler)?,
            edge: Edge::new(&settings.edge),
            logins: Logins::new(&settings.accounts),
            oidc: Provider::new()?,
            live: Mutex::new(live),
            statuses: tokio::sync::Mutex::default(),
            demand: Mutex::new(Demand::new(settings.planner.demand_pending)),
            cluster_loads: Mutex::default(),
            learner: Mutex::new(Learner::new(settings.planner.learnt)),
            rtt: Mutex::new(rtt),
            links: Mutex::new(links),
            tries: Semaphore::new(settings.console.tries),
            runs: Mutex::default(),
            // Receivers have secrets derived from this key, so the context keeps its original name.
            webhook_key: network_key.derive("fdn-job-calls"),
            submissions: Arc::new(Semaphore::new(settings.jobs.submissions)),
            webhook_wake: Notify::new(),
            events: crate::app::events::hub::Hub::new(&settings.events),
            log_readers: Arc::new(Semaphore::new(settings.function_logs.readers)),
            call_searches: Semaphore::new(settings.function_logs.searches),
            previews: Arc::new(Semaphore::new(PREVIEWS_MAX)),
            changes: tokio::sync::Mutex::new(()),
            singletons: Singletons::default(),
            planner_wake: Notify::new(),
            outbox_wake: Notify::new(),
            metrics: Metrics::new()?,
            readiness: Readiness::waiting_for(&["broker", "planner", "store"]),
            authority: settings
                .enrolment
                .ca_file
                .as_deref()
                .map(of_file)
                .transpose()?,
            settings,
            terms,
            store,
            artifacts,
            broker,
            geo,
            key,
            vault,
            proofs,
            token,
        })
    }

    /// Reads the node statuses written since the last read, by whichever task. Returns where the nodes of each cluster accept stage calls, as
    /// `connection` sees it.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn read_statuses(
        &self,
        connection: &mut AnyConnection,
    ) -> Result<StageCalls, StoreError> {
        let mut statuses = self.statuses.lock().await;
        let read = statuses.read(connection).await?;
        self.metrics.plans.statuses.inc_by(read as u64);
        Ok(statuses.stage_calls())
    }

    /// The present network, as placement sees it.
    #[must_use]
    pub fn world(&self, now: Timestamp) -> World {
        self.world_of(&lock(&self.live), now)
    }

    /// The network as placement would see it after hypothetical changes.
    ///
    /// # Errors
    /// When a change names a cluster that does not exist.
    pub fn world_if(&self, changes: &[WhatIf], now: Timestamp) -> Result<World, Error> {
        let live = lock(&self.live);
        let places = live.clusters();
        for change in changes {
            if !places.contains_key(change.cluster()) {
                let told = format!("what-if {change}: there is no such cluster");
                return Err(Error::BadRequest(told));
            }
        }
        let alive = live.alive(now).map(|seen| seen.status.clone()).collect();
        drop(live);
        let nodes = what_if::nodes(alive, changes);
        let alive: Vec<&NodeStatus> = nodes.iter().collect();
        let measured = self.measured();
        let world = World::of(places, &alive, Arc::clone(&self.geo), measured, self.terms);
        Ok(world
            .with_loads(&lock(&self.cluster_loads))
            .with_shifts(what_if::shifts(changes)))
    }

    fn measured(&self) -> MeasuredRtts {
        MeasuredRtts {
            clients: lock(&self.rtt).list(),
            links: lock(&self.links).list(),
        }
    }

    /// Like [`Self::world`], from node reports that are locked already.
    #[must_use]
    pub fn world_of(&self, live: &NodeRegistry, now: Timestamp) -> World {
        World::new(
            live,
            Arc::clone(&self.geo),
            self.measured(),
            self.terms,
            now,
        )
        .with_loads(&lock(&self.cluster_loads))
    }

    /// The network's time to live of DNS answers, in seconds.
    #[must_use]
    pub fn ttl_s(&self) -> u32 {
        u32::try_from(self.settings.planner.ttl.as_millis() / 1000).unwrap_or(u32::MAX)
    }
}
