//! The runtime for pods of a Kubernetes cluster, through its API server: one pod for each instance, bound to this node by `spec.nodeName`.
//!
//! A pod gets the CPU and memory of its specification and no more, a read-only root with a small in-memory `/tmp`, no
//! capabilities, no new privileges, the engine's default system call filter and no token of the cluster. It is reached at its own
//! address; the kubelet's probes are not used, so that readiness means the same for every runtime.
//!
//! The pod outlives the agent. Its labels name its owner and an annotation holds its description (never a secret), so that a
//! restarted agent adopts it. Kubernetes restarts nothing by itself.
//!
//! The modules: `pod` builds pods and `status` interprets their status (both pure), `server` sends requests to the API server,
//! `watch` receives its news, `tracked` is one pod as the API server reports it, `instance` is the handle, `start`, `end`, `adopt`,
//! `image` and `logs` do what their names say.

mod adopt;
mod end;
mod failure;
mod image;
mod instance;
mod logs;
mod options;
mod pod;
mod server;
mod start;
mod status;
mod tracked;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fdn_core::InstanceId;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Mutex as AsyncMutex, watch as tell};
use tokio::time::Instant;

pub use options::{Access, KubernetesOptions};

use crate::error::{RuntimeError, StartError};
use crate::instance::Instance;
use crate::link::health;
use crate::runtime::{Capabilities, Collected, Kind, Owner, Runtime};
use crate::spec::{Image, StartSpec};
use crate::startup;
use image::FetchedImages;
use instance::PodInstance;
use server::Server;
use tracked::TrackedPod;

/// How many pods an adoption inspects, or a collection removes, at the same time.
const AT_ONCE: usize = 16;

/// A runtime on one node of a Kubernetes cluster.
#[derive(Debug)]
pub struct KubernetesRuntime {
    shared: Arc<Shared>,
}

/// State shared by the runtime, its instances and its tasks.
struct Shared {
    owner: Owner,
    server: Arc<Server>,
    options: KubernetesOptions,
    fetched: FetchedImages,
    registry: Mutex<Registry>,
    /// Allows one adoption at a time; otherwise two would each make a handle for one pod.
    adopting: AsyncMutex<()>,
    /// Closed when the runtime is dropped, which ends the tasks.
    alive: tell::Sender<()>,
}

/// The pods and instances of this runtime. One lock, held only briefly.
#[derive(Default)]
struct Registry {
    /// Pods whose news are followed, by name.
    tracked: BTreeMap<String, Arc<TrackedPod>>,
    /// Pods that are instances, by name.
    instances: BTreeMap<String, Arc<PodInstance>>,
    /// Instances being started, adopted or running.
    ids: BTreeSet<InstanceId>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("owner", &self.owner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Keeps a pod in the list of tracked ones for as long as it lives.
struct TrackGuard<'a> {
    shared: &'a Shared,
    pod: Arc<TrackedPod>,
}

impl Drop for TrackGuard<'_> {
    fn drop(&mut self) {
        self.shared.untrack(&self.pod);
    }
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, name: &str) -> Option<Arc<PodInstance>> {
        self.registry().instances.get(name).cloned()
    }

    fn tracked(&self) -> Vec<Arc<TrackedPod>> {
        self.registry().tracked.values().cloned().collect()
    }

    #[must_use]
    fn track(&self, pod: &Arc<TrackedPod>) -> TrackGuard<'_> {
        let mut registry = self.registry();
        registry.tracked.insert(pod.name.clone(), pod.clone());
        TrackGuard {
            shared: self,
            pod: pod.clone(),
        }
    }

    fn untrack(&self, pod: &Arc<TrackedPod>) {
        let mut registry = self.registry();
        let same = registry.tracked.get(&pod.name);
        if same.is_some_and(|same| Arc::ptr_eq(same, pod)) {
            registry.tracked.remove(&pod.name);
        }
    }

    fn register(&self, instance: &Arc<PodInstance>) {
        let mut registry = self.registry();
        let name = instance.pod.name.clone();
        registry.ids.insert(instance.description.id);
        registry.tracked.insert(name.clone(), instance.pod.clone());
        if registry.instances.insert(name, instance.clone()).is_none() {
            self.options.metrics.alive(Kind::Kubernetes, 1);
        }
    }

    fn forget(&self, instance: &PodInstance) {
        self.untrack(&instance.pod);
        let mut registry = self.registry();
        let name = &instance.pod.name;
        let same = registry.instances.get(name);
        if same.is_some_and(|same| Arc::ptr_eq(&same.pod, &instance.pod)) {
            registry.instances.remove(name);
            registry.ids.remove(&instance.description.id);
            self.options.metrics.alive(Kind::Kubernetes, -1);
        }
    }

    /// The pods of this owner.
    async fn list(&self) -> Result<Vec<Pod>, RuntimeError> {
        let listed = self.server.list().await;
        let (mut pods, _) = listed.map_err(|fault| failure::engine("list the pods", &fault))?;
        // A server that does not know the selector ignores it. Nothing that is not ours may pass this line.
        pods.retain(|pod| pod::is_owned(pod, &self.owner));
        Ok(pods)
    }

    fn monitor_health(&self, instance: &Arc<PodInstance>) {
        let (instance, checks) = (instance.clone(), self.options.health);
        let mut dropped = self.alive.subscribe();
        tokio::spawn(async move {
            let Some(link) = instance.link() else { return };
            let readiness = &instance.description.readiness;
            tokio::select! {
                () = health::watch(&instance.state, link, readiness, checks) => {}
                _ = dropped.changed() => {}
            }
        });
    }
}

impl KubernetesRuntime {
    /// Connects to the API server in `options`. Must be called within a tokio runtime, on which its tasks then run.
    ///
    /// # Errors
    /// When the access is not configured correctly, or the API server does not answer or does not let this process list its pods.
    pub async fn connect(owner: Owner, options: KubernetesOptions) -> Result<Self, RuntimeError> {
        if options.node.is_empty() {
            return Err(RuntimeError::Unusable {
                kind: Kind::Kubernetes,
                reason: "kubernetes.node is empty; give the name that this node has in Kubernetes"
                    .to_owned(),
            });
        }
        let server = Server::new(&options, pod::selector(&owner)).await?;
        let checked = server.check().await;
        checked.map_err(|fault| failure::engine("list the pods", &fault))?;
        let shared = Arc::new(Shared {
            owner,
            server: Arc::new(server),
            options,
            fetched: FetchedImages::default(),
            registry: Mutex::default(),
            adopting: AsyncMutex::new(()),
            alive: tell::Sender::new(()),
        });
        tokio::spawn(watch::follow(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }
}

#[async_trait]
impl Runtime for KubernetesRuntime {
    fn kind(&self) -> Kind {
        Kind::Kubernetes
    }

    fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: false,
            survives_agent: true,
            devices: true,
        }
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        let checked = self.shared.server.check().await;
        checked.map_err(|fault| failure::engine("list the pods", &fault))
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        // On a separate task: if this future were dropped half-way, the fetching pod would stay until the next collection.
        let (shared, image) = (self.shared.clone(), image.clone());
        let fetching = tokio::spawn(async move { shared.fetch(&image).await });
        fetching.await.unwrap_or_else(|_| {
            Err(StartError::Engine(RuntimeError::Unusable {
                kind: Kind::Kubernetes,
                reason: "fetching the image failed in itself".to_owned(),
            }))
        })
    }

    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        let began = Instant::now();
        let started = startup::start(self.shared.clone(), spec).await;
        let outcome = started.as_ref().map(|_| began.elapsed());
        let metrics = &self.shared.options.metrics;
        metrics.started(Kind::Kubernetes, outcome);
        started.map(|instance| instance as Arc<dyn Instance>)
    }

    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        let _one = self.shared.adopting.lock().await;
        let pods = self.shared.list().await?;
        let adopted = futures::stream::iter(pods)
            .map(|pod| self.shared.clone().adopt(pod))
            .buffer_unordered(AT_ONCE)
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
        let pods = self.shared.list().await?;
        let cleared = futures::stream::iter(pods)
            .map(|pod| self.shared.clone().clear(pod))
            .buffer_unordered(AT_ONCE)
            .filter_map(|cleared| async { cleared })
            .collect::<Vec<_>>();
        let mut collected = Collected::default();
        for (id, outcome) in cleared.await {
            match outcome {
                Ok(()) => drop(collected.removed.insert(id)),
                Err(reason) => collected.failed.push((id, reason)),
            }
        }
        let count = collected.removed.len();
        self.shared
            .options
            .metrics
            .collected(Kind::Kubernetes, count);
        Ok(collected)
    }
}

#[cfg(test)]
mod tests;
