//! Starts a container: creates one or takes one created ahead, starts it, and waits until it answers; or undoes everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bollard::query_parameters::CreateContainerOptionsBuilder;
use fdn_core::InstanceId;
use tokio::sync::{AcquireError, SemaphorePermit};

use super::cgroup::Cgroup;
use super::events::{self, LogHistory};
use super::image::LocalImage;
use super::instance::{ContainerAccess, DockerInstance};
use super::network::Attachment;
use super::{Shared, create, failure};
use crate::error::{RuntimeError, StartError};
use crate::link::HttpLink;
use crate::runtime::Kind;
use crate::spec::StartSpec;
use crate::startup::{self, StartWaiter, Starter};
use crate::state::{Exit, InstanceState};

/// One of the starts that are passed to the engine at the same time. The semaphore is never closed.
type StartPermit<'a> = Result<SemaphorePermit<'a>, AcquireError>;

/// What must exist before a container can be created.
struct Prerequisites {
    image: LocalImage,
    attachment: Attachment,
}

impl Starter for Shared {
    type Instance = DockerInstance;
    const KIND: Kind = Kind::Docker;

    fn begin(&self, spec: &StartSpec) -> bool {
        // The id of one created ahead was registered at its creation.
        self.precreated.begin(spec) || self.registry().ids.insert(spec.description.id)
    }

    async fn launch(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<DockerInstance>>,
        waiter: &mut StartWaiter<Arc<DockerInstance>>,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let started = match self.precreated.claim(spec.description.id) {
            Some(container) => self.start_ahead(spec, container, made).await?,
            None => None,
        };
        let instance = match started {
            Some(instance) => instance,
            None => self.create_and_start(spec, made, waiter).await?,
        };
        tokio::spawn(events::capture(instance.clone(), LogHistory::FromStart));
        waiter.run_while_waiting(self.ready(&instance)).await?;
        self.monitor_health(&instance);
        Ok(instance)
    }

    async fn roll_back(
        &self,
        id: InstanceId,
        made: Option<&DockerInstance>,
    ) -> Result<(), RuntimeError> {
        if let Some(instance) = made {
            instance.stopping.store(true, Ordering::SeqCst);
            instance.remove().await?;
            instance.state.set(InstanceState::Exited(Exit::lost()));
            self.forget(&instance.container);
        }
        self.registry().ids.remove(&id);
        Ok(())
    }
}

impl Shared {
    /// Starts a container that was created ahead. If that fails it is removed: it may be gone, or something that it needs may be. It fails if the
    /// container cannot be removed, because it may run all the same.
    async fn start_ahead(
        self: &Arc<Self>,
        spec: &StartSpec,
        container: String,
        made: &mut Option<Arc<DockerInstance>>,
    ) -> Result<Option<Arc<DockerInstance>>, StartError> {
        let permit = self.starts.acquire().await;
        let id = spec.description.id;
        let instance = self.register_handle(spec, container);
        *made = Some(instance.clone());
        let Err(error) = self.start_container(&instance, spec).await else {
            return Ok(Some(instance));
        };
        drop(permit);
        tracing::debug!(instance = %id, %error, "a container that was created ahead is made anew");
        self.options.metrics.precreated_start("failed");
        // Its end is nobody's news.
        instance.state.set(InstanceState::Exited(Exit::lost()));
        instance.remove().await?;
        *made = None;
        self.forget(&instance.container);
        self.registry().ids.insert(id);
        Ok(None)
    }

    async fn create_and_start(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<DockerInstance>>,
        waiter: &StartWaiter<Arc<DockerInstance>>,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let prerequisites = self.prerequisites(spec).await?;
        let permit = self.starts.acquire().await;
        waiter.ensure_waiting()?;
        let created = self.create_container(spec, prerequisites, permit).await;
        let (container, permit) = created?;
        let instance = self.register_handle(spec, container);
        *made = Some(instance.clone());
        self.start_container(&instance, spec).await?;
        drop(permit);
        Ok(instance)
    }

    /// Creates a container without starting it.
    pub(super) async fn create(self: &Arc<Self>, spec: &StartSpec) -> Result<String, StartError> {
        let prerequisites = self.prerequisites(spec).await?;
        let permit = self.starts.acquire().await;
        let created = self.create_container(spec, prerequisites, permit).await;
        created.map(|(container, _)| container)
    }

    async fn prerequisites(
        self: &Arc<Self>,
        spec: &StartSpec,
    ) -> Result<Prerequisites, StartError> {
        let image = match self.images.known(&spec.image) {
            Some(image) => image,
            None => self.image(&spec.image).await?,
        };
        let attachment = self.networks.attach(&self.docker, spec).await?;
        Ok(Prerequisites { image, attachment })
    }

    /// Creates a container; returns it with a permit to start it.
    async fn create_container<'a>(
        self: &'a Arc<Self>,
        spec: &StartSpec,
        mut prerequisites: Prerequisites,
        mut permit: StartPermit<'a>,
    ) -> Result<(String, StartPermit<'a>), StartError> {
        let mut created = self.try_create(spec, &prerequisites).await;
        // The image was removed from the engine since it was inspected.
        if matches!(&created, Err(error) if failure::status(error) == Some(404)) {
            // Fetching it again may take minutes, in which others may start.
            drop(permit);
            self.images.forget_known(&spec.image);
            prerequisites.image = self.image(&spec.image).await?;
            permit = self.starts.acquire().await;
            created = self.try_create(spec, &prerequisites).await;
        }
        let container = created.map_err(|error| create_failure(spec, &error))?;
        Ok((container, permit))
    }

    async fn try_create(
        &self,
        spec: &StartSpec,
        prerequisites: &Prerequisites,
    ) -> Result<String, bollard::errors::Error> {
        let Prerequisites { image, attachment } = prerequisites;
        let name = create::name(&spec.description);
        let body = create::body(
            spec,
            &self.owner,
            image,
            &attachment.mode,
            attachment.port,
            &self.options,
        );
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let created = self.docker.create_container(Some(options), body).await?;
        Ok(created.id)
    }

    /// The handle for a container that is about to be started; its events are handled from now on.
    fn register_handle(&self, spec: &StartSpec, container: String) -> Arc<DockerInstance> {
        let instance = Arc::new(DockerInstance::new(
            spec.description.clone(),
            container,
            self.docker.clone(),
            spec.logs,
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        self.register(&instance);
        instance
    }

    async fn start_container(
        &self,
        instance: &DockerInstance,
        spec: &StartSpec,
    ) -> Result<(), StartError> {
        let started = self.docker.start_container(&instance.container, None).await;
        let text = || spec.image.to_string();
        started.map_err(|e| failure::start("start the container", &text(), &e))
    }

    /// Waits until a started container answers.
    async fn ready(&self, instance: &Arc<DockerInstance>) -> Result<(), StartError> {
        let link = match self.access_to(&instance.container).await {
            Ok(access) => {
                let link = instance.connect(access);
                if !instance.limit_cpu_by_group() {
                    let limited = instance.clone();
                    tokio::spawn(async move { limited.limit_cpu().await });
                }
                link
            }
            Err(error) => {
                // It had ended before it could be inspected, or the engine failed. Only the former causes an event,
                // and the event's handling itself waits for the last lines.
                let end = tokio::time::timeout(self.options.last_lines * 2, instance.state.ended());
                let exited = |exit| startup::exited(exit, &instance.log);
                return Err(end.await.map_or_else(|_| error.into(), exited));
            }
        };
        let readiness = &instance.description.readiness;
        startup::await_ready(&instance.state, &instance.log, link, readiness).await
    }

    pub(super) async fn access_to(&self, container: &str) -> Result<ContainerAccess, RuntimeError> {
        let found = self.docker.inspect_container(container, None).await;
        let found = found.map_err(|e| failure::engine("inspect the container", &e))?;
        let endpoint = self.networks.endpoint(&found)?;
        // A container paused by the engine must be resumed by the engine.
        let paused = found.state.as_ref().and_then(|state| state.paused);
        let root = self.options.cgroups.as_deref();
        let root = root.filter(|_| paused != Some(true));
        Ok(ContainerAccess {
            link: HttpLink::new(endpoint, self.options.link),
            group: root.and_then(|root| Cgroup::of(&found, root)),
        })
    }
}

fn create_failure(spec: &StartSpec, error: &bollard::errors::Error) -> StartError {
    match failure::status(error) {
        Some(409) if failure::says(error, "already in use") => StartError::Exists {
            id: spec.description.id,
        },
        _ => failure::start("create the container", &spec.image.to_string(), error),
    }
}
