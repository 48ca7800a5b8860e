//! Cleaning up after a restart of the agent: adopts what runs, and removes what serves nobody.

use std::sync::Arc;

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use fdn_core::InstanceId;

use super::cgroup::Cgroup;
use super::events::{self, LogHistory};
use super::instance::DockerInstance;
use super::{Shared, create, failure};
use crate::link::health;
use crate::log::LogLimits;
use crate::runtime::Collected;
use crate::spec::Description;
use crate::state::InstanceState;

impl Shared {
    /// Adopts a running container, or returns its present handle.
    pub(super) async fn adopt(
        self: Arc<Self>,
        container: ContainerSummary,
    ) -> Option<Arc<DockerInstance>> {
        let id = container.id.as_deref()?;
        if let Some(known) = self.instance(id) {
            let serving = !matches!(
                known.state.get(),
                InstanceState::Starting | InstanceState::Exited(_)
            );
            return serving.then_some(known);
        }
        let description = describe(&container)?;
        // One that is being started by this runtime has no handle yet.
        if self.registry().ids.contains(&description.id) {
            return None;
        }
        let access = self.access_to(id).await.ok()?;
        // A container frozen by an agent of this node; a requested freeze is enough, because it may be half-way.
        let frozen = |group: &Cgroup| group.freezing().unwrap_or(false);
        let paused = container.state == Some(ContainerSummaryStateEnum::PAUSED)
            || access.group.as_ref().is_some_and(frozen);
        let instance = Arc::new(DockerInstance::new(
            description,
            id.to_owned(),
            self.docker.clone(),
            LogLimits::default(),
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        let link = instance.connect(access);
        let state = if paused {
            InstanceState::Paused
        } else {
            let readiness = &instance.description.readiness;
            match health::check(link, readiness, self.options.health.timeout).await {
                Ok(()) => InstanceState::Ready,
                Err(failed) => InstanceState::Unresponsive {
                    reason: failed.reason,
                },
            }
        };
        instance.state.set(state);
        self.register(&instance);
        let history = LogHistory::Tail(LogLimits::default().lines);
        tokio::spawn(events::capture(instance.clone(), history));
        self.monitor_health(&instance);
        // The agent that started it may have ended before it had limited the CPU.
        if !instance.limit_cpu_by_group() {
            let limited = instance.clone();
            tokio::spawn(async move { limited.limit_cpu().await });
        }
        Some(instance)
    }

    /// Removes a container that serves nobody.
    pub(super) async fn collect(&self, container: &ContainerSummary, collected: &mut Collected) {
        let Some(engine_id) = container.id.as_deref() else {
            return;
        };
        let id = instance_id(container);
        let mine = {
            let registry = self.registry();
            registry.instances.contains_key(engine_id)
                || id.is_some_and(|id| registry.ids.contains(&id))
        };
        if mine {
            return;
        }
        self.thaw_before_removal(engine_id).await;
        let options = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        let id = id.unwrap_or(InstanceId::from_uuid(uuid::Uuid::nil()));
        match self.docker.remove_container(engine_id, Some(options)).await {
            Ok(()) => drop(collected.removed.insert(id)),
            Err(error) if matches!(failure::status(&error), Some(404 | 409)) => {}
            Err(error) => {
                let error = failure::engine("remove the container", &error);
                collected.failed.push((id, error.to_string()));
            }
        }
    }
}

impl Shared {
    /// Thaws the processes of a container that is to be removed, because on older kernels not even SIGKILL would reach them.
    async fn thaw_before_removal(&self, container: &str) {
        let Some(root) = self.options.cgroups.as_deref() else {
            return;
        };
        let found = self.docker.inspect_container(container, None).await;
        let group = found.ok().and_then(|found| Cgroup::of(&found, root));
        if let Some(group) = group {
            drop(group.thaw());
        }
    }
}

fn instance_id(container: &ContainerSummary) -> Option<InstanceId> {
    container
        .labels
        .as_ref()?
        .get(create::INSTANCE)?
        .parse()
        .ok()
}

fn describe(container: &ContainerSummary) -> Option<Description> {
    let text = container.labels.as_ref()?.get(create::DESCRIPTION)?;
    serde_json::from_str(text).ok()
}
