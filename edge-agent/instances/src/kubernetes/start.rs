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
        let body = pod::body(spec, &self.owner, &image, &start, &self.options);
        let view = match self.create(spec.description.id, &body, &start).await {
            Ok(view) => view,
            Err(error) => {
                self.forget(&instance);
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

    async fn roll_back(&self, id: InstanceId, made: Option<&PodInstance>) {
        if let Some(instance) = made {
            instance.pod.set_stopping(true);
            if let Err(error) = instance.pod.remove(Duration::ZERO).await {
                tracing::warn!(instance = %id, %error, "what a failed start left stays for now");
            }
            instance.state.set(InstanceState::Exited(Exit::lost()));
            self.forget(instance);
        }
        self.registry().ids.remove(&id);
    }
}

impl Shared {
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
    ) -> Result<status::PodView, StartError> {
        let unreadable = || RuntimeError::Refused {
            kind: Kind::Kubernetes,
            operation: "create the pod",
            reason: "the answer names no uid".to_owned(),
        };
        let fault = match self.server.create(body).await {
            Ok(pod) => return Ok(status::view(&pod).ok_or_else(unreadable)?),
            Err(fault) => fault,
        };
        if !fault.is_taken() && !fault.passes() {
            return Err(failure::start("create the pod", &fault));
        }
        let name = body.metadata.name.as_deref().unwrap_or_default();
        let found = self.server.get_once(name).await;
        let ours = found.as_ref().ok().and_then(Option::as_ref).filter(|pod| {
            let annotations = pod.metadata.annotations.as_ref();
            annotations
                .and_then(|all| all.get(pod::START))
                .map(String::as_str)
                == Some(start)
        });
        match (ours.and_then(status::view), found) {
            (Some(view), _) => Ok(view),
            (None, Ok(_)) if fault.is_taken() => Err(StartError::Exists { id }),
            (None, Err(unknown)) if fault.is_taken() => {
                Err(failure::start("look for the pod", &unknown))
            }
            (None, _) => Err(failure::start("create the pod", &fault)),
        }
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
