//! What an agent runs containers with: the engine, the pool of instances, GPU devices, and the other nodes of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::Resources;
use fdn_core::serving::NodeRuntime;
use fdn_devices::{DeviceMetrics, Devices, Event};
use fdn_instances::{Kind, Owner, Runtime};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::Shared;
use crate::error::Error;
use crate::invocations::containers;
use crate::invocations::instances::{Instances, InstancesParts};
use crate::invocations::placer::{LocalPlacer, Placer};
use crate::metrics::Metrics;
use crate::peers::{Elsewhere, PeerParts, Peers};
use crate::settings::Settings;

/// How long an agent waits for its engine to tell what runs from before: until then it serves nothing, components included.
const ADOPT_PATIENCE: Duration = Duration::from_secs(120);

/// The runtimes of a node whose instances are of this kind.
pub(super) fn runtimes(kind: Option<Kind>) -> BTreeSet<NodeRuntime> {
    let instances = match kind {
        Some(Kind::Docker | Kind::Fake) => Some(NodeRuntime::Docker),
        Some(Kind::Kubernetes) => Some(NodeRuntime::Kubernetes),
        Some(Kind::Elsewhere | Kind::Wasm) | None => None,
    };
    instances.into_iter().chain([NodeRuntime::Wasm]).collect()
}

/// The instances of containers, and what starts them.
pub(super) struct Containers {
    pub(super) instances: Instances,
    pub(super) local: Arc<LocalPlacer>,
    pub(super) peers: Option<Peers>,
    /// Whether the instances end with the agent.
    ends_with_us: bool,
}

impl Containers {
    /// Leaves running what can outlive the agent and ends the rest; calls of other nodes may end within `grace`.
    pub(super) async fn stop(&self, grace: Duration) {
        self.local.close(self.ends_with_us).await;
        if self.ends_with_us {
            self.instances.stop_all().await;
        } else {
            self.instances.detach();
        }
        if let Some(peers) = &self.peers {
            peers.stop(grace).await;
        }
    }
}

impl Shared {
    /// Starts the engine for container images, if this node has one, and the tasks around it.
    pub(super) async fn start_containers(
        &self,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Result<(Option<Containers>, Vec<JoinHandle<()>>), Error> {
        let runtime = match runtime {
            Some(runtime) => Some(runtime),
            None => containers::engine(&self.settings, &self.hub, &self.metrics.registry).await?,
        };
        let runtime = match runtime {
            Some(runtime) => runtime,
            None if self.settings.peers.enabled => {
                info!("this node runs no containers itself; those of its cluster serve its calls");
                Arc::new(Elsewhere(Owner {
                    cluster: self.settings.cluster.clone(),
                    node: self.settings.node.clone(),
                }))
            }
            None => return Ok((None, Vec::new())),
        };
        let is_gateway_only = runtime.kind() == Kind::Elsewhere;
        let ends_with_us = !runtime.capabilities().survives_agent;
        let start_timeout = self.settings.instances.start_timeout.as_duration();
        let ledger = Arc::clone(&self.ledger);
        let local = LocalPlacer::new(runtime, ledger, start_timeout);
        let instances = &self.settings.instances;
        let admission = &self.settings.admission;
        let local = local.with_shares(admission.app_share, admission.tenant_share);
        let local = local.with_devices(self.devices.clone()).with_standby(
            instances.standby,
            instances.resume_timeout.as_duration(),
            self.metrics.instances.clone(),
        );
        let local = Arc::new(local);
        local.adopt_once_told(ADOPT_PATIENCE).await?;
        let mut tasks = Vec::new();
        let peers = if self.settings.peers.enabled {
            let (peers, task) = Box::pin(Peers::start(
                self.peer_parts(&local, is_gateway_only),
                self.stop.clone(),
            ))
            .await?;
            tasks.push(task);
            Some(peers)
        } else {
            None
        };
        let placer: Arc<dyn Placer> = match &peers {
            Some(peers) => peers.placer(),
            None => Arc::clone(&local) as Arc<_>,
        };
        let parts = InstancesParts {
            placer,
            ledger: Arc::clone(&self.ledger),
            queue: self.settings.queue,
            settings: self.settings.instances,
            scale: self.settings.scale,
            app_share: self.settings.admission.app_share,
            tenant_share: self.settings.admission.tenant_share,
            metrics: self.metrics.instances.clone(),
        };
        let (instances, task) = Instances::start(parts, self.stop.clone())?;
        self.admission.on_wanted_memory(instances.memory_bell());
        local.add_idle_instances(Arc::new(instances.downgrade()));
        if let Some(peers) = &peers {
            peers.on_change(instances.memory_bell());
            peers.keep_in(instances.downgrade());
            local.add_idle_instances(peers.idle_instances());
        }
        tasks.extend([task, self.tidy(Arc::clone(&local))]);
        let containers = Containers {
            instances,
            local,
            peers,
            ends_with_us,
        };
        Ok((Some(containers), tasks))
    }

    /// Ends instances found at startup that belong to nothing deployed, which is known once all apps have settled.
    fn tidy(&self, local: Arc<LocalPlacer>) -> JoinHandle<()> {
        let (readiness, stop) = (self.readiness.clone(), self.stop.clone());
        tokio::spawn(async move {
            while !readiness.is_ready() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
            }
            local.stop_unclaimed();
        })
    }

    fn peer_parts(&self, local: &Arc<LocalPlacer>, is_gateway_only: bool) -> PeerParts {
        let settings = &self.settings;
        let (_, gpu) = self.devices.totals();
        PeerParts {
            node: settings.node.clone(),
            cluster: settings.cluster.clone(),
            settings: settings.peers.clone(),
            cluster_settings: settings.peers.cluster(&settings.tls, &settings.gateway),
            capacity: if is_gateway_only {
                Resources::default()
            } else {
                Resources {
                    gpu_memory_mib: gpu,
                    ..self.ledger.capacity()
                }
            },
            ledger: Arc::clone(&self.ledger),
            local: Arc::clone(local),
            start_timeout: settings.instances.start_timeout.as_duration(),
            stop_grace: settings.instances.stop_grace.as_duration(),
            fleet: Arc::clone(&self.fleet),
            folder: settings.data.join("state"),
            centre: Arc::clone(&self.centre),
            answer_timeout: settings.centre.answer_timeout.as_duration(),
            registry: self.metrics.registry.clone(),
            readiness: self.readiness.clone(),
        }
    }

    /// Reports at once when the devices have changed, and ends the instances on those that are gone or have failed.
    pub(super) fn watch_devices(
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
}

/// The GPU devices of this machine.
pub(super) fn devices(settings: &Settings, metrics: &Metrics) -> Result<Devices, Error> {
    // Without a boot id, the machine counts as not restarted: faults of devices are then cleared by operators only.
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
