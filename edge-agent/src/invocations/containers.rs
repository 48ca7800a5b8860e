//! The runtime for container images on this node: the Docker engine, or the Kubernetes cluster that the node belongs to. Containers' output goes
//! to the logs of their apps.

use std::sync::Arc;

use fdn_core::api;
use fdn_instances::docker::DockerRuntime;
use fdn_instances::kubernetes::KubernetesRuntime;
use fdn_instances::{Description, LogLine, LogSink, Metrics, Owner, Runtime};
use prometheus::Registry;

use crate::error::Error;
use crate::logs::LogHub;
use crate::settings::Settings;

/// Connects to the engine, if this node is configured to use one.
///
/// # Errors
/// When the engine does not answer, or the agent lacks a permission that it needs.
pub async fn engine(
    settings: &Settings,
    hub: &Arc<LogHub>,
    registry: &Registry,
) -> Result<Option<Arc<dyn Runtime>>, Error> {
    // The settings allow at most one of the two.
    if !settings.docker.enabled && !settings.kubernetes.enabled {
        return Ok(None);
    }
    let owner = Owner {
        cluster: settings.cluster.clone(),
        node: settings.node.clone(),
    };
    let metrics = Metrics::default();
    metrics.register(registry)?;
    let sink = Arc::new(ToApps {
        hub: Arc::clone(hub),
        node: settings.node.clone(),
    });
    if settings.kubernetes.enabled {
        let options = settings.kubernetes.options(&settings.node, sink, metrics);
        // Boxed: its future is large, and most nodes do not use it.
        let runtime = Box::pin(KubernetesRuntime::connect(owner, options)).await?;
        return Ok(Some(Arc::new(runtime)));
    }
    let folder = std::path::absolute(settings.data.join("containers"));
    let folder = folder.map_err(|source| Error::Data {
        path: settings.data.clone(),
        source,
    })?;
    let options = settings.docker.options(folder, sink, metrics);
    let runtime = DockerRuntime::connect(owner, options).await?;
    Ok(Some(Arc::new(runtime)))
}

/// Passes each line of output to the log of its app.
struct ToApps {
    hub: Arc<LogHub>,
    node: fdn_core::NodeId,
}

impl LogSink for ToApps {
    fn line(&self, instance: &Description, line: &LogLine) {
        // The log of a deleted app no longer exists.
        let Some(log) = self.hub.get(&instance.app) else {
            return;
        };
        log.push(api::LogLine {
            at: fdn_service::now(),
            app: instance.app.clone(),
            function: instance.function.clone(),
            version: instance.version,
            node: self.node.clone(),
            instance: instance.id,
            // A container serves several calls at once: its lines cannot be attributed to one of them.
            request: String::new(),
            stage: None,
            stream: line.stream,
            text: line.text.clone(),
        });
    }
}
