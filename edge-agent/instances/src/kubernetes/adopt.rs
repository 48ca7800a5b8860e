//! Cleaning up after a restart of the agent: adopts what runs, and removes what serves nobody.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::InstanceId;
use k8s_openapi::api::core::v1::Pod;

use super::instance::PodInstance;
use super::logs::LogHistory;
use super::status::{self, Stage};
use super::tracked::TrackedPod;
use super::{Shared, end, pod};
use crate::link::health;
use crate::log::LogLimits;
use crate::spec::Description;
use crate::state::InstanceState;

impl Shared {
    /// Adopts a running pod, or returns its present handle.
    pub(super) async fn adopt(self: Arc<Self>, pod: Pod) -> Option<Arc<PodInstance>> {
        let view = status::view(&pod)?;
        let name = pod.metadata.name.clone()?;
        if let Some(known) = self.instance(&name) {
            let serving = !matches!(
                known.state.get(),
                InstanceState::Starting | InstanceState::Exited(_)
            );
            return serving.then_some(known);
        }
        let Stage::Running(address) = view.stage else {
            return None;
        };
        let description = describe(&pod)?;
        // One that is being started by this runtime has no handle yet.
        if view.deleting || !self.registry().ids.insert(description.id) {
            return None;
        }
        let timeout = self.options.engine_timeout;
        let instance = Arc::new(PodInstance::new(
            description,
            Arc::new(TrackedPod::new(name, self.server.clone(), timeout)),
            LogLimits::default(),
            self.options.sink.clone(),
            timeout,
        ));
        instance.pod.set_identity(view);
        self.register(&instance);
        let link = instance.connect(address, self.options.link);
        let readiness = &instance.description.readiness;
        let state = match health::check(link, readiness, self.options.health.timeout).await {
            Ok(()) => InstanceState::Ready,
            Err(failed) => InstanceState::Unresponsive {
                reason: failed.reason,
            },
        };
        instance.state.set(state);
        let history = LogHistory::Tail(LogLimits::default().lines);
        tokio::spawn(end::follow(
            Arc::downgrade(&self),
            instance.clone(),
            history,
        ));
        self.monitor_health(&instance);
        Some(instance)
    }

    /// Removes a pod that serves nobody; `None` if it must not be touched (now).
    pub(super) async fn clear(
        self: Arc<Self>,
        pod: Pod,
    ) -> Option<(InstanceId, Result<(), String>)> {
        let view = status::view(&pod)?;
        let name = pod.metadata.name.clone()?;
        let id = instance_id(&pod);
        let mine = {
            let registry = self.registry();
            registry.tracked.contains_key(&name) || id.is_some_and(|id| registry.ids.contains(&id))
        };
        if mine {
            return None;
        }
        let tracked = Arc::new(TrackedPod::new(
            name,
            self.server.clone(),
            self.options.engine_timeout,
        ));
        tracked.set_identity(view);
        let _guard = self.track(&tracked);
        let removed = tracked.remove(Duration::ZERO).await;
        let id = id.unwrap_or(InstanceId::from_uuid(uuid::Uuid::nil()));
        Some((id, removed.map_err(|error| error.to_string())))
    }
}

fn instance_id(pod: &Pod) -> Option<InstanceId> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(pod::INSTANCE)?.parse().ok()
}

fn describe(pod: &Pod) -> Option<Description> {
    let annotations = pod.metadata.annotations.as_ref()?;
    serde_json::from_str(annotations.get(pod::DESCRIPTION)?).ok()
}
