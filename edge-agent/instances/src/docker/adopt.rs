//! After the agent's restart: taking over what runs, removing what serves nobody.

use std::sync::Arc;

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use fdn_core::InstanceId;

use super::events::{self, Past};
use super::instance::DockerInstance;
use super::{Shared, create, failure};
use crate::link::health;
use crate::log::LogLimits;
use crate::runtime::Collected;
use crate::spec::Description;
use crate::state::InstanceState;

impl Shared {
    /// Takes over a running container, or finds it held already.
    pub(super) async fn adopt(
        self: Arc<Self>,
        container: ContainerSummary,
    ) -> Option<Arc<DockerInstance>> {
        let id = container.id.as_deref()?;
        if let Some(known) = self.held(id) {
            let serving = !matches!(
                known.state.get(),
                InstanceState::Starting | InstanceState::Exited(_)
            );
            return serving.then_some(known);
        }
        let description = describe(&container)?;
        // One that this object is starting has no handle yet.
        if self.book().ids.contains(&description.id) {
            return None;
        }
        let link = self.link_of(id).await.ok()?;
        let instance = Arc::new(DockerInstance::new(
            description,
            id.to_owned(),
            self.docker.clone(),
            LogLimits::default(),
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        let link = instance.connect(link);
        let state = if container.state == Some(ContainerSummaryStateEnum::PAUSED) {
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
        self.hold(&instance);
        let past = Past::Tail(LogLimits::default().lines);
        tokio::spawn(events::capture(instance.clone(), past));
        self.watch_over(&instance);
        Some(instance)
    }

    /// Removes a container that serves nobody.
    pub(super) async fn collect(&self, container: &ContainerSummary, collected: &mut Collected) {
        let Some(engine_id) = container.id.as_deref() else {
            return;
        };
        let id = instance_id(container);
        let mine = {
            let book = self.book();
            book.held.contains_key(engine_id) || id.is_some_and(|id| book.ids.contains(&id))
        };
        if mine {
            return;
        }
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
