//! Starts what makes apps callable: the artifact cache, the sources of artifacts and machine code, and the task that owns the apps' state.

use std::sync::Arc;

use fdn_service::address_policy::AddressPolicy;
use fdn_service::seal::SealKey;
use tokio::task::JoinHandle;

use super::Shared;
use crate::apps::{Apps, AppsParts};
use crate::artifacts::{ArtifactCache, CacheParts, CompiledSource, Fetcher};
use crate::error::Error;
use crate::invocations::instances::Instances;

impl Shared {
    pub(super) fn start_apps(
        &self,
        instances: Option<Instances>,
    ) -> Result<(Apps, JoinHandle<()>), Error> {
        let settings = &self.settings;
        let cache = ArtifactCache::open(CacheParts {
            folder: settings.data.join("cache"),
            limit: settings.cache.size,
            artifact_limit: settings.cache.artifact_limit,
            fetcher: Fetcher {
                centre: Arc::clone(&self.centre),
                silence: settings.centre.answer_timeout.as_duration(),
                attempts: settings.cache.fetch_attempts,
            },
            compiled: settings.compile.from_controller.then(|| CompiledSource {
                centre: Arc::clone(&self.centre),
                silence: settings.centre.answer_timeout.as_duration(),
                fleet: Arc::clone(&self.fleet),
                limit: settings.cache.artifact_limit,
                timeout: settings.compile.timeout.as_duration(),
            }),
            compiler: settings.compile.compiler(),
            compile_parallel: settings.compile.parallel,
            compile_cache: settings.compile.cache,
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
            key: SealKey::from_secret(&self.seal)?,
            cache,
            engine: self.machine.engine.clone(),
            ledger: Arc::clone(&self.ledger),
            instances,
            hub: Arc::clone(&self.hub),
            metrics: self.metrics.clone(),
            routes: Arc::clone(&self.routes),
            phase_changed: Arc::clone(&self.changed),
            readiness: self.readiness.clone(),
            policy: settings.policy.clone(),
            reach: AddressPolicy::new(settings.runtime.private_networks.clone()),
        };
        Apps::start(parts, self.stop.clone())
    }
}
