//! Starts a pod: creates it, waits until it runs, and waits until it answers; or undoes everything.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::InstanceId;
use k8s_openapi::api::core::v1::Pod;

use super::instance::PodInstance;
use super::logs::LogHistory;
use super::tracked::TrackedPod;
use super::{Shared, end, failure, image, pod, status};
use crate::error::{RuntimeError, StartError};
use crate::runtime::Kind;
use crate::spec::{Outbound, StartSpec};
use crate::startup::{self, StartWaiter, Starter};
use crate::state::{Exit, InstanceState};

impl Starter for Shared {
    type Instance = PodInstance;
    const KIND: Kind = Kind::Kubernetes;

    fn begin(&self, spec: &StartSpec) -> bool {
        self.registry().ids.insert(spec.description.id)
    }

    async fn launch(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<PodInstance>>,
        waiter: &mut StartWaiter<Arc<PodInstance>>,
    ) -> Result<Arc<PodInstance>, StartError> {
        self.can_be_kept(&spec.outbound)?;
        let image = image::reference(&spec.image, &self.options).await?;
        let instance = Arc::new(PodInstance::new(
            spec.description.clone(),
            Arc::new(TrackedPod::new(
                pod::name(&spec.description),
                self.server.clone(),
                self.options.engine_timeout,
            )),
            spec.logs,
            self.options.sink.clone(),
            self.options.engine_timeout,
        ));
        waiter.ensure_waiting()?;
        // Registered before it is created, because news of it may arrive before the answer.
        self.register(&instance);
        let start = uuid::Uuid::new_v4().to_string();
        drop(instance.start.set(start.clone()));
        let body = pod::body(spec, &self.owner, &image, &start, &self.options);
        let view = match self.create(spec.description.id, &body, &start).await {
            Ok(view) => view,
            Err(NotCreated { error, may_exist }) => {
                if may_exist {
                    *made = Some(instance);
                } else {
                    self.forget(&instance);
                }
                return Err(error);
            }
        };
        instance.pod.set_identity(view);
        *made = Some(instance.clone());
        let history = LogHistory::FromStart;
        tokio::spawn(end::follow(Arc::downgrade(self), instance.clone(), history));
        let uid = instance.pod.uid().unwrap_or_default();
        if let Some(secret) = pod::secret(spec, &self.owner, uid, &start) {
            let made = self.server.create_secret(&secret).await;
            made.map_err(|fault| failure::start("create the secret", &fault))?;
        }
        waiter
            .run_while_waiting(self.ready(&instance, &image))
            .await?;
        self.monitor_health(&instance);
        Ok(instance)
    }

    async fn roll_back(
        &self,
        id: InstanceId,
        made: Option<&PodInstance>,
    ) -> Result<(), RuntimeError> {
        if let Some(instance) = made {
            instance.pod.set_stopping(true);
            if instance.pod.uid().is_none() {
                self.look_for(instance).await?;
            }
            instance.pod.remove(Duration::ZERO).await?;
            instance.state.set(InstanceState::Exited(Exit::lost()));
            self.forget(instance);
        }
        self.registry().ids.remove(&id);
        Ok(())
    }
}

/// Why there is no pod, as far as is known.
struct NotCreated {
    error: StartError,
    /// Whether the API server could not be asked if there is one after all.
    may_exist: bool,
}

impl From<StartError> for NotCreated {
    fn from(error: StartError) -> Self {
        Self {
            error,
            may_exist: false,
        }
    }
}

/// Whether a pod was created by this start.
fn is_of(pod: &Pod, start: &str) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let of = annotations.and_then(|all| all.get(pod::START));
    of.is_some_and(|of| of == start)
}

impl Shared {
    /// Looks for the pod of a start whose creation got no clear answer; one that is found can be removed.
    async fn look_for(&self, instance: &PodInstance) -> Result<(), RuntimeError> {
        let found = self.server.get_once(&instance.pod.name).await;
        let found = found.map_err(|fault| failure::engine("look for the pod", &fault))?;
        let start = instance.start.get();
        let ours = found.filter(|pod| start.is_some_and(|start| is_of(pod, start)));
        if let Some(view) = ours.as_ref().and_then(status::view) {
            instance.pod.set_identity(view);
        }
        Ok(())
    }

    /// Refuses outbound rules that cannot be enforced on a pod.
    fn can_be_kept(&self, outbound: &Outbound) -> Result<(), StartError> {
        let reason = match outbound {
            Outbound::Hosts(_) => {
                "a pod cannot be held to a list of hosts; allow all of them or none, or make it a component"
            }
            Outbound::Denied if !self.options.network_policies => {
                "nothing keeps a pod from connecting anywhere; apply deploy/kubernetes/network.yaml on a cluster whose network \
                 enforces policies and set kubernetes.network_policies, or let the function connect anywhere"
            }
            Outbound::Denied | Outbound::Open => return Ok(()),
        };
        Err(StartError::Unsupported {
            reason: reason.to_owned(),
        })
    }

    /// Creates the pod. An earlier attempt may have succeeded although its answer was lost: then the name is taken, by this very start.
    async fn create(
        &self,
        id: InstanceId,
        body: &Pod,
        start: &str,
    ) -> Result<status::PodView, NotCreated> {
        let unreadable = || RuntimeError::Refused {
            kind: Kind::Kubernetes,
            operation: "create the pod",
            reason: "the answer names no uid".to_owned(),
        };
        let fault = match self.server.create(body).await {
            Ok(pod) => {
                let view = status::view(&pod);
                return Ok(view.ok_or_else(|| StartError::from(unreadable()))?);
            }
            Err(fault) => fault,
        };
        if !fault.is_taken() && !fault.passes() {
            return Err(failure::start("create the pod", &fault).into());
        }
        let name = body.metadata.name.as_deref().unwrap_or_default();
        let found = self.server.get_once(name).await;
        let there = found.as_ref().ok().and_then(Option::as_ref);
        let ours = there.filter(|pod| is_of(pod, start));
        if let Some(view) = ours.and_then(status::view) {
            return Ok(view);
        }
        let may_exist = found.is_err();
        let error = match found {
            Ok(_) if fault.is_taken() => StartError::Exists { id },
            Err(unknown) if fault.is_taken() => failure::start("look for the pod", &unknown),
            Ok(_) | Err(_) => failure::start("create the pod", &fault),
        };
        Err(NotCreated { error, may_exist })
    }

    /// Waits until a pod runs and answers.
    async fn ready(&self, instance: &Arc<PodInstance>, image: &str) -> Result<(), StartError> {
        let exited = |exit: Exit| startup::exited(exit, &instance.log);
        let limit = self.options.image_timeout;
        let address = tokio::select! {
            biased;
            address = tokio::time::timeout(limit, instance.pod.address()) => address,
            exit = instance.state.ended() => return Err(exited(exit)),
        };
        let address = match address {
            Ok(Ok(address)) => address,
            Ok(Err(blocked)) => return Err(blocked.error(image)),
            Err(_) => {
                return Err(StartError::NotReady {
                    after: limit,
                    reason: instance.pod.waits_for(),
                    log: instance.log.lines(),
                });
            }
        };
        let link = instance.connect(address, self.options.link);
        let readiness = &instance.description.readiness;
        startup::await_ready(&instance.state, &instance.log, link, readiness).await
    }
}
