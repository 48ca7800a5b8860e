//! Starting a container: create, start, wait until it answers; or take everything back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bollard::query_parameters::CreateContainerOptionsBuilder;
use fdn_core::InstanceId;
use tokio::sync::oneshot;

use super::events::{self, Past};
use super::instance::DockerInstance;
use super::{Shared, create, failure};
use crate::error::{RuntimeError, StartError};
use crate::link::{HttpLink, health};
use crate::runtime::Kind;
use crate::spec::StartSpec;
use crate::state::{Exit, InstanceState};

/// Where the outcome of a start goes; closed when nobody waits for it any more.
type Reply = oneshot::Sender<Result<Arc<DockerInstance>, StartError>>;

impl Shared {
    /// Starts an instance on a task of its own, so that no order to the engine is ever cut in the middle: a container whose
    /// creation nobody waited for would be known to nobody. A start that was dropped is undone when it next waits.
    pub(super) async fn start(
        self: Arc<Self>,
        spec: StartSpec,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let id = spec.description.id;
        if !self.book().ids.insert(id) {
            return Err(StartError::Exists { id });
        }
        let (mut reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let mut made = None;
            let started = self.bring_up(&spec, &mut made, &mut reply).await;
            let failed = started.is_err();
            if failed {
                self.take_back(id, made.as_deref()).await;
            }
            if reply.send(started).is_err() && !failed {
                self.take_back(id, made.as_deref()).await;
            }
        });
        answer.await.unwrap_or_else(|_| {
            Err(StartError::Engine(RuntimeError::Unusable {
                kind: Kind::Docker,
                reason: "the start failed in itself".to_owned(),
            }))
        })
    }

    /// Undoes a start.
    async fn take_back(&self, id: InstanceId, made: Option<&DockerInstance>) {
        if let Some(instance) = made {
            instance.stopping.store(true, Ordering::SeqCst);
            if let Err(error) = instance.remove().await {
                tracing::warn!(instance = %id, %error, "what a failed start left stays for now");
            }
            instance.state.set(InstanceState::Exited(Exit::lost()));
            self.forget(&instance.container);
        }
        self.book().ids.remove(&id);
    }

    async fn bring_up(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<DockerInstance>>,
        reply: &mut Reply,
    ) -> Result<Arc<DockerInstance>, StartError> {
        let timeout = self.options.image_timeout;
        let image = self
            .images
            .prepare(&self.docker, &spec.image, timeout)
            .await?;
        let attachment = self.networks.attach(&self.docker, spec).await?;
        let permit = self.starts.acquire().await;
        if reply.is_closed() {
            return Err(unwanted());
        }
        let name = create::name(&spec.description);
        let body = create::body(
            spec,
            &self.owner,
            &image,
            &attachment.mode,
            attachment.port,
            &self.options,
        );
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let text = spec.image.to_string();
        let created = self.docker.create_container(Some(options), body).await;
        let created = created.map_err(|error| match failure::status(&error) {
            Some(409) if failure::says(&error, "already in use") => StartError::Exists {
                id: spec.description.id,
            },
            _ => failure::start("create the container", &text, &error),
        })?;
        let instance = Arc::new(DockerInstance::new(
            spec.description.clone(),
            created.id,
            self.docker.clone(),
            spec.logs,
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        self.hold(&instance);
        *made = Some(instance.clone());
        self.docker
            .start_container(&instance.container, None)
            .await
            .map_err(|e| failure::start("start the container", &text, &e))?;
        drop(permit);
        tokio::spawn(events::capture(instance.clone(), Past::FromTheStart));
        tokio::select! {
            ready = self.ready(&instance) => ready?,
            () = reply.closed() => return Err(unwanted()),
        }
        self.watch_over(&instance);
        Ok(instance)
    }

    /// Waits until a started container answers.
    async fn ready(&self, instance: &Arc<DockerInstance>) -> Result<(), StartError> {
        let exited = |exit: Exit| StartError::Exited {
            exit,
            log: instance.log.lines(),
        };
        let link = match self.link_of(&instance.container).await {
            Ok(link) => instance.connect(link),
            Err(error) => {
                // It had ended before it could be looked at, or the engine failed. Only the first brings an event.
                // The event itself waits for the last lines.
                let end = tokio::time::timeout(events::LAST_LINES * 2, instance.state.ended());
                return Err(end.await.map_or_else(|_| error.into(), exited));
            }
        };
        let readiness = &instance.description.readiness;
        let outcome = tokio::select! {
            biased;
            exit = instance.state.ended() => return Err(exited(exit)),
            outcome = health::until_ready(link, readiness) => outcome,
        };
        match outcome {
            Ok(()) if instance.state.set(InstanceState::Ready) => Ok(()),
            Ok(()) => Err(exited(instance.state.ended().await)),
            Err(reason) => Err(StartError::NotReady {
                after: readiness.timeout,
                reason,
                log: instance.log.lines(),
            }),
        }
    }

    pub(super) async fn link_of(&self, container: &str) -> Result<HttpLink, RuntimeError> {
        let found = self.docker.inspect_container(container, None).await;
        let found = found.map_err(|e| failure::engine("inspect the container", &e))?;
        let endpoint = self.networks.endpoint(&found)?;
        Ok(HttpLink::new(endpoint, self.options.link))
    }
}

/// The outcome of a start that nobody waits for any more.
const fn unwanted() -> StartError {
    StartError::Exited {
        exit: Exit::lost(),
        log: Vec::new(),
    }
}
