//! What makes the apps of a node callable: the artifact cache, where artifacts and machine code come from, and the loop that follows desired state.

use std::sync::Arc;

use fdn_service::reach::Reach;
use fdn_service::seal::NetworkKey;
use fdn_service::secret;
use tokio::task::JoinHandle;
use tracing::warn;

use super::Shared;
use crate::apps::{Apps, AppsParts};
use crate::artifacts::{ArtifactCache, CacheParts, CompiledSource, Fetcher};
use crate::error::Error;
use crate::invocations::instances::Instances;
use crate::join::Controller;

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
                client: self.client.clone(),
                url: settings.controller.url.clone(),
                token: self.token.clone(),
                attempts: settings.cache.fetch_attempts,
            },
            compiled: self.compiled_source()?,
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
            policy: settings.policy.clone(),
            reach: Reach::new(settings.runtime.private_networks.clone()),
        };
        Apps::start(parts, self.stop.clone())
    }

    /// Where machine code comes from, if it may. Which authorities count is told by the controller as well: over a way that others can write to, whoever
    /// writes there could name one of their own and run native code.
    fn compiled_source(&self) -> Result<Option<CompiledSource>, Error> {
        let settings = &self.settings;
        if !settings.compile.from_controller {
            return Ok(None);
        }
        let controller = Controller::new(&settings.controller.url)?;
        if controller.check_safety(false).is_err() {
            warn!(
                controller = controller.url(),
                "machine code is not taken from a controller that is asked without TLS on another machine; components are compiled here"
            );
            return Ok(None);
        }
        Ok(Some(CompiledSource {
            client: self.client.clone(),
            url: settings.controller.url.clone(),
            token: self.token.clone(),
            fleet: Arc::clone(&self.fleet),
            limit: settings.cache.artifact_limit,
            timeout: settings.compile.timeout.as_duration(),
        }))
    }
}
