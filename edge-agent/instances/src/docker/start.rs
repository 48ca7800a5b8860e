//! Starts a container: creates one or takes one created ahead, starts it, and waits until it answers; or undoes everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bollard::query_parameters::CreateContainerOptionsBuilder;
use fdn_core::InstanceId;

use super::ahead::Created;
use super::cgroup::Cgroup;
use super::events::{self, Past};
use super::image::LocalImage;
use super::instance::{DockerInstance, Ways};
use super::network::Attachment;
use super::{Shared, create, failure};
use crate::error::{RuntimeError, StartError};
use crate::link::HttpLink;
use crate::runtime::Kind;
use crate::spec::StartSpec;
use crate::startup::{self, Starter, Wanted};
use crate::state::{Exit, InstanceState};

/// What must exist before a container can be created.
struct Ground {
    image: LocalImage,
    attachment: Attachment,
}

impl Starter for Shared {
    type Instance = DockerInstance;
    const KIND: Kind = Kind::Docker;

    fn begin(&self, spec: &StartSpec) -> bool {
        // The id of one created ahead was registered at its creation.
        self.stock.begin(spec) || self.registry().ids.insert(spec.description.id)
    }

    async fn bring_up(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<DockerInstance>>,
        wanted: &mut Wanted<Arc<DockerInstance>>,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let started = match self.stock.claim(spec.description.id) {
            Some(container) => self.start_ahead(spec, container, made).await,
            None => None,
        };
        let instance = match started {
            Some(instance) => instance,
            None => self.start_anew(spec, made, wanted).await?,
        };
        tokio::spawn(events::capture(instance.clone(), Past::FromTheStart));
        wanted.while_still(self.ready(&instance)).await?;
        self.watch_over(&instance);
        Ok(instance)
    }

    async fn take_back(&self, id: InstanceId, made: Option<&DockerInstance>) {
        if let Some(instance) = made {
            instance.stopping.store(true, Ordering::SeqCst);
            if let Err(error) = instance.remove().await {
                tracing::warn!(instance = %id, %error, "what a failed start left stays for now");
            }
            instance.state.set(InstanceState::Exited(Exit::lost()));
            self.forget(&instance.container);
        }
        self.registry().ids.remove(&id);
    }
}

impl Shared {
    /// Starts a container that was created ahead. If that fails it is removed: it may be gone, or something that it needs may be.
    async fn start_ahead(
        self: &Arc<Self>,
        spec: &StartSpec,
        container: String,
        made: &mut Option<Arc<DockerInstance>>,
    ) -> Option<Arc<DockerInstance>> {
        let permit = self.starts.acquire().await;
        let id = spec.description.id;
        let instance = self.handle(spec, container.clone());
        let Err(error) = self.order_start(&instance, spec).await else {
            *made = Some(instance.clone());
            return Some(instance);
        };
        drop(permit);
        tracing::debug!(instance = %id, %error, "a container that was created ahead is made anew");
        self.options.metrics.started_ahead("failed");
        self.forget(&container);
        self.discard(Created { id, container }).await;
        self.registry().ids.insert(id);
        None
    }

    async fn start_anew(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<DockerInstance>>,
        wanted: &Wanted<Arc<DockerInstance>>,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let ground = self.ground(spec).await?;
        let permit = self.starts.acquire().await;
        wanted.still()?;
        let container = self.order_create(spec, ground).await?;
        let instance = self.handle(spec, container);
        *made = Some(instance.clone());
        self.order_start(&instance, spec).await?;
        drop(permit);
        Ok(instance)
    }

    /// Creates a container without starting it.
    pub(super) async fn create(self: &Arc<Self>, spec: &StartSpec) -> Result<String, StartError> {
        let ground = self.ground(spec).await?;
        let _permit = self.starts.acquire().await;
        self.order_create(spec, ground).await
    }

    async fn ground(self: &Arc<Self>, spec: &StartSpec) -> Result<Ground, StartError> {
        let image = match self.images.known(&spec.image) {
            Some(image) => image,
            None => self.image(&spec.image).await?,
        };
        let attachment = self.networks.attach(&self.docker, spec).await?;
        Ok(Ground { image, attachment })
    }

    async fn order_create(
        self: &Arc<Self>,
        spec: &StartSpec,
        mut ground: Ground,
    ) -> Result<String, StartError> {
        match self.try_create(spec, &ground).await {
            // The image was removed from the engine since it was inspected.
            Err(error) if failure::status(&error) == Some(404) => {}
            created => return created.map_err(|error| create_failure(spec, &error)),
        }
        self.images.forget_known(&spec.image);
        ground.image = self.image(&spec.image).await?;
        let created = self.try_create(spec, &ground).await;
        created.map_err(|error| create_failure(spec, &error))
    }

    async fn try_create(
        &self,
        spec: &StartSpec,
        ground: &Ground,
    ) -> Result<String, bollard::errors::Error> {
        let Ground { image, attachment } = ground;
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
    fn handle(&self, spec: &StartSpec, container: String) -> Arc<DockerInstance> {
        let instance = Arc::new(DockerInstance::new(
            spec.description.clone(),
            container,
            self.docker.clone(),
            spec.logs,
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        self.hold(&instance);
        instance
    }

    async fn order_start(
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
        let link = match self.ways_to(&instance.container).await {
            Ok(ways) => {
                let link = instance.connect(ways);
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
        startup::answers(&instance.state, &instance.log, link, readiness).await
    }

    pub(super) async fn ways_to(&self, container: &str) -> Result<Ways, RuntimeError> {
        let found = self.docker.inspect_container(container, None).await;
        let found = found.map_err(|e| failure::engine("inspect the container", &e))?;
        let endpoint = self.networks.endpoint(&found)?;
        // A container paused by the engine must be resumed by the engine.
        let paused = found.state.as_ref().and_then(|state| state.paused);
        let root = self.options.cgroups.as_deref();
        let root = root.filter(|_| paused != Some(true));
        Ok(Ways {
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
