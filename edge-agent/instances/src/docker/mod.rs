//! The runtime for containers of a Docker engine on this node, through the Docker Engine API (v1.40 and later).
//!
//! One container per instance: an OCI image that listens for HTTP on `$PORT`. It gets the CPU, memory and processes of its
//! specification and no more, a read-only root with a small in-memory `/tmp`, no capabilities, no new privileges, the engine's
//! default system call filter, and by default no network at all ([`Network`] explains how it is reached then).
//!
//! The container outlives the agent. Its labels name its owner and its description (never a secret), so that a restarted agent
//! adopts it. The engine restarts nothing by itself.
//!
//! The modules: `create` builds requests (pure), `image` makes images available, `network` connects containers, `image_cache` evicts unneeded
//! images, `events` follows output and ends, `instance` is the handle, `freeze` and `cgroup` pause it, `precreated` keeps created containers,
//! `start` and `adopt` do what their names say.

mod adopt;
pub(crate) mod archive;
mod cgroup;
mod create;
mod events;
mod failure;
mod freeze;
mod image;
mod image_cache;
mod instance;
mod network;
mod options;
mod precreated;
mod signals;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bollard::Docker;
use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptionsBuilder;
use fdn_core::InstanceId;
use futures::StreamExt;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio::time::Instant;

pub use options::{DockerOptions, Network};

use crate::error::{RuntimeError, StartError};
use crate::instance::Instance;
use crate::link::health;
use crate::runtime::{Capabilities, Collected, Expectation, Kind, Owner, Runtime};
use crate::spec::{Image, StartSpec};
use crate::startup;
use image::{Images, LocalImage, Presence};
use image_cache::Names;
use instance::DockerInstance;
use network::Networks;
use precreated::PrecreatedPool;

/// How many containers an adoption inspects at the same time.
const ADOPT_AT_ONCE: usize = 16;

/// A runtime on one Docker engine.
#[derive(Debug)]
pub struct DockerRuntime {
    shared: Arc<Shared>,
}

/// State shared by the runtime, its instances and its tasks.
#[derive(Debug)]
struct Shared {
    owner: Owner,
    docker: Docker,
    options: DockerOptions,
    images: Images,
    networks: Networks,
    starts: Semaphore,
    precreated: PrecreatedPool,
    registry: Mutex<Registry>,
    /// Allows one adoption at a time; otherwise two would each make a handle for one container.
    adopting: AsyncMutex<()>,
    /// Closed when the runtime is dropped, which ends the tasks.
    alive: watch::Sender<()>,
}

/// The instances of this runtime. One lock, held only briefly.
#[derive(Debug, Default)]
struct Registry {
    /// The instances, by the engine's id of their container.
    instances: BTreeMap<String, Arc<DockerInstance>>,
    /// Instances being started, adopted or running.
    ids: BTreeSet<InstanceId>,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, container: &str) -> Option<Arc<DockerInstance>> {
        self.registry().instances.get(container).cloned()
    }

    fn all(&self) -> Vec<Arc<DockerInstance>> {
        self.registry().instances.values().cloned().collect()
    }

    fn register(&self, instance: &Arc<DockerInstance>) {
        let mut registry = self.registry();
        registry.ids.insert(instance.description.id);
        let before = registry
            .instances
            .insert(instance.container.clone(), instance.clone());
        if before.is_none() {
            self.options.metrics.alive(Kind::Docker, 1);
        }
    }

    fn forget(&self, container: &str) {
        let mut registry = self.registry();
        if let Some(instance) = registry.instances.remove(container) {
            registry.ids.remove(&instance.description.id);
            self.options.metrics.alive(Kind::Docker, -1);
        }
    }

    fn scope(&self) -> Option<&str> {
        self.options.scope.as_deref()
    }

    /// The containers of this owner; with `all`, including those that do not run.
    async fn list(&self, all: bool) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let options = ListContainersOptionsBuilder::default()
            .all(all)
            .filters(&create::filters(&self.owner, self.scope()))
            .build();
        let listed = self.docker.list_containers(Some(options)).await;
        let mut listed = listed.map_err(|e| failure::engine("list the containers", &e))?;
        // An engine that does not know a filter ignores it. Nothing that is not ours may pass this line.
        listed.retain(|container| {
            create::is_of(container.labels.as_ref(), &self.owner, self.scope())
        });
        Ok(listed)
    }

    /// Makes sure that an image is on the engine.
    async fn image(self: &Arc<Self>, image: &Image) -> Result<LocalImage, StartError> {
        let bounds = self.options.image_bounds();
        let (local, presence) = self.images.prepare(&self.docker, image, bounds).await?;
        if presence == Presence::Fetched {
            self.evict_images();
        }
        Ok(local)
    }

    fn monitor_health(&self, instance: &Arc<DockerInstance>) {
        let (instance, checks) = (instance.clone(), self.options.health);
        tokio::spawn(async move {
            if let Some(link) = instance.link() {
                let readiness = &instance.description.readiness;
                health::watch(&instance.state, link, readiness, checks).await;
            }
        });
    }
}

impl DockerRuntime {
    /// Connects to the engine behind the socket in `options`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When there is no socket, the engine does not answer, or the agent lacks a right that the network mode needs.
    pub async fn connect(owner: Owner, options: DockerOptions) -> Result<Self, RuntimeError> {
        let path = options.socket.display().to_string();
        let seconds = options.engine_timeout.as_secs().max(1);
        let docker = Docker::connect_with_unix(&path, seconds, bollard::API_DEFAULT_VERSION)
            .map_err(|e| failure::engine("connect", &e))?;
        let docker = docker
            .negotiate_version()
            .await
            .map_err(|e| failure::engine("agree on a version", &e))?;
        if let Some(folder) = &options.folder {
            create::write_hosts(folder).map_err(|error| RuntimeError::Unusable {
                kind: Kind::Docker,
                reason: format!("{} cannot be written: {error}", folder.display()),
            })?;
        }
        let shared = Arc::new(Shared {
            networks: Networks::new(owner.clone(), options.network, options.trusted)?,
            images: Images::new(Names::of(options.scope.as_deref())),
            starts: Semaphore::new(options.parallel_starts.max(1)),
            precreated: PrecreatedPool::default(),
            registry: Mutex::default(),
            adopting: AsyncMutex::new(()),
            alive: watch::Sender::new(()),
            owner,
            docker,
            options,
        });
        tokio::spawn(events::follow(Arc::downgrade(&shared), events::now()));
        Ok(Self { shared })
    }
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn kind(&self) -> Kind {
        Kind::Docker
    }

    fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            survives_agent: self.shared.options.outlive_agent,
            devices: true,
        }
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        let answer = self.shared.docker.ping().await;
        answer
            .map(drop)
            .map_err(|e| failure::engine("answer a ping", &e))
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.shared.image(image).await.map(drop)
    }

    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        let began = Instant::now();
        let started = startup::start(self.shared.clone(), spec).await;
        self.shared.refill();
        let outcome = started.as_ref().map(|_| began.elapsed());
        self.shared.options.metrics.started(Kind::Docker, outcome);
        started.map(|instance| instance as Arc<dyn Instance>)
    }

    fn expect(&self, spec: &StartSpec) -> Expectation {
        let needed = self.shared.pin_image(spec.image.digest);
        Some(Box::new((self.shared.expect(spec), needed)))
    }

    fn take_precreated(&self, spec: &StartSpec) -> Option<InstanceId> {
        let found = self.shared.precreated.take(spec)?;
        let metrics = &self.shared.options.metrics;
        metrics.precreated_start(if found.is_some() { "used" } else { "none" });
        self.shared.update_precreated_metric();
        found
    }

    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        let _one = self.shared.adopting.lock().await;
        let running = self.shared.list(false).await?;
        let adopted = futures::stream::iter(running)
            .map(|container| self.shared.clone().adopt(container))
            .buffer_unordered(ADOPT_AT_ONCE)
            .filter_map(|instance| async { instance })
            .collect::<Vec<_>>();
        let mut adopted = adopted.await;
        adopted.sort_by_key(|instance| instance.description.id);
        Ok(adopted
            .into_iter()
            .map(|instance| instance as Arc<dyn Instance>)
            .collect())
    }

    async fn collect(&self) -> Result<Collected, RuntimeError> {
        // After this, everything that can be adopted is held, and so left alone below.
        self.adopt().await?;
        let mut collected = Collected::default();
        for container in self.shared.list(true).await? {
            self.shared.collect(&container, &mut collected).await;
        }
        let count = collected.removed.len();
        self.shared.options.metrics.collected(Kind::Docker, count);
        Ok(collected)
    }
}

#[cfg(test)]
mod tests;
