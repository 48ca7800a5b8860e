//! One container as an instance.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::models::ContainerUpdateBody;
use bollard::query_parameters::{KillContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use tokio::sync::{Mutex, watch};

use super::cgroup::Cgroup;
use super::freeze::{self, FreezeError, Target};
use super::{create, failure, signals};
use crate::body::{Request, Response};
use crate::call::CallFailure;
use crate::error::{InstanceError, RuntimeError};
use crate::instance::Instance;
use crate::link::HttpLink;
use crate::log::{LogLine, LogSink, LogTail};
use crate::runtime::Kind;
use crate::spec::Description;
use crate::state::{Exit, ExitReason, InstanceState, StateCell};

/// The means of access to a running container.
pub(super) struct ContainerAccess {
    /// For calls.
    pub(super) link: HttpLink,
    /// For the kernel's freezer; `None` if only the engine can freeze it.
    pub(super) group: Option<Cgroup>,
}

/// A container of the agent. Its end is detected and recorded by [`super::events`].
pub(super) struct DockerInstance {
    pub(super) description: Description,
    /// The engine's id of the container.
    pub(super) container: String,
    pub(super) docker: Docker,
    pub(super) state: StateCell,
    pub(super) log: LogTail,
    pub(super) sink: Arc<dyn LogSink>,
    /// Set once the container runs.
    link: std::sync::OnceLock<HttpLink>,
    /// The control group of its processes, if the agent may freeze it; set with the link.
    group: std::sync::OnceLock<Cgroup>,
    /// Whether the agent is ending it.
    pub(super) stopping: AtomicBool,
    /// True once the log stream has ended.
    pub(super) log_ended: watch::Sender<bool>,
    /// True once the engine has nothing left of it.
    pub(super) removed: watch::Sender<bool>,
    /// Serializes pause, resume and stop.
    order: Mutex<()>,
    /// Held while it is removed.
    removing: Mutex<()>,
    engine_timeout: Duration,
}

impl fmt::Debug for DockerInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DockerInstance")
            .field("id", &self.description.id)
            .field("container", &self.container)
            .field("state", &self.state.get())
            .finish_non_exhaustive()
    }
}

impl DockerInstance {
    pub(super) fn new(
        description: Description,
        container: String,
        docker: Docker,
        logs: crate::log::LogLimits,
        sink: Arc<dyn LogSink>,
        engine_timeout: Duration,
    ) -> Self {
        Self {
            description,
            container,
            docker,
            state: StateCell::new(InstanceState::Starting),
            log: LogTail::new(logs),
            sink,
            link: std::sync::OnceLock::new(),
            group: std::sync::OnceLock::new(),
            stopping: AtomicBool::new(false),
            log_ended: watch::Sender::new(false),
            removed: watch::Sender::new(false),
            order: Mutex::new(()),
            removing: Mutex::new(()),
            engine_timeout,
        }
    }

    /// Sets the means of access to it. The first ones stay.
    pub(super) fn connect(&self, access: ContainerAccess) -> &HttpLink {
        if let Some(group) = access.group {
            self.group.get_or_init(|| group);
        }
        self.link.get_or_init(|| access.link)
    }

    /// The control group of its processes, if the agent may freeze it.
    pub(super) fn group(&self) -> Option<&Cgroup> {
        self.group.get()
    }

    pub(super) fn link(&self) -> Option<&HttpLink> {
        self.link.get()
    }

    /// Removes the container, whatever its state. A missing one counts as removed.
    pub(super) async fn remove(&self) -> Result<(), RuntimeError> {
        // A second caller waits for the first: when this returns, nothing is left.
        let _turn = self.removing.lock().await;
        if *self.removed.borrow() {
            return Ok(());
        }
        // On older kernels not even SIGKILL reaches a frozen process.
        if let Some(group) = self.group() {
            drop(group.thaw());
        }
        let options = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        let removed = self.docker.remove_container(&self.container, Some(options));
        match removed.await {
            Ok(()) => {}
            // 404: gone. 409: already being removed by somebody else.
            Err(error) if matches!(failure::status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failure::engine("remove the container", &error)),
        }
        self.removed.send_replace(true);
        Ok(())
    }

    /// Like [`DockerInstance::limit_cpu`], through its control group: one write, where the engine would run a process beside the first call. `false`
    /// if the engine has to be asked. The engine's own record keeps the limit of the start.
    pub(super) fn limit_cpu_by_group(&self) -> bool {
        let Some(nano_cpus) = create::cpu_once_started(&self.description) else {
            return true;
        };
        let limited = self.group().map(|group| group.limit_cpu(nano_cpus));
        matches!(limited, Some(Ok(())))
    }

    /// Lowers its CPU limit to its final value once the engine's part of the start is over. Nobody waits for this, which takes the engine as
    /// long as a pause; but a container whose limit cannot be set is removed.
    pub(super) async fn limit_cpu(&self) {
        let Some(nano_cpus) = create::cpu_once_started(&self.description) else {
            return;
        };
        let _order = self.order.lock().await;
        if self.living().is_err() {
            return;
        }
        let limits = ContainerUpdateBody {
            nano_cpus: Some(nano_cpus),
            ..ContainerUpdateBody::default()
        };
        let limited = self.docker.update_container(&self.container, limits).await;
        let Err(error) = limited else { return };
        // It has ended, which the stream of events reports.
        let has_ended = matches!(failure::status(&error), Some(404 | 409))
            || failure::says(&error, "stopped container")
            || self.living().is_err();
        if has_ended {
            return;
        }
        let error = failure::engine("limit the container's CPU", &error);
        tracing::warn!(instance = %self.description.id, %error, "it is removed");
        drop(self.remove().await);
    }

    /// Whether its program ignores SIGTERM now, so that there is no point in waiting for it.
    async fn ignores_sigterm(&self) -> bool {
        let container = self.docker.inspect_container(&self.container, None).await;
        container.is_ok_and(|container| signals::ignores_sigterm(&container))
    }

    async fn signal(&self, signal: &str) -> Result<(), RuntimeError> {
        let options = KillContainerOptionsBuilder::default()
            .signal(signal)
            .build();
        match self
            .docker
            .kill_container(&self.container, Some(options))
            .await
        {
            Ok(()) => Ok(()),
            // It has already ended, which the stream of events reports.
            Err(error) if matches!(failure::status(&error), Some(404 | 409)) => Ok(()),
            // The signal was sent; the engine took the container for a paused one.
            Err(error) if failure::says(&error, "cannot unpause") => Ok(()),
            Err(error) => Err(failure::engine("signal the container", &error)),
        }
    }

    /// The error for a container that has ended according to the engine, before the event says how.
    fn gone(&self) -> InstanceError {
        let exit = self.state.get().exit().cloned();
        InstanceError::Ended(exit.unwrap_or_else(Exit::lost))
    }

    fn living(&self) -> Result<(), InstanceError> {
        match self.state.get() {
            InstanceState::Exited(exit) => Err(InstanceError::Ended(exit)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Instance for DockerInstance {
    fn description(&self) -> &Description {
        &self.description
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        self.state.watch()
    }

    async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        let refuse = match self.state.get() {
            InstanceState::Ready | InstanceState::Unresponsive { .. } => None,
            InstanceState::Starting => Some("it has not answered yet".to_owned()),
            InstanceState::Paused => Some("it is paused".to_owned()),
            InstanceState::Exited(exit) => Some(exit.to_string()),
        };
        match (refuse, self.link()) {
            (None, Some(link)) => link.call(request).await,
            (Some(reason), _) => Err(CallFailure::not_sent(request, reason)),
            (None, None) => Err(CallFailure::not_sent(request, "it has no address yet")),
        }
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        let _order = self.order.lock().await;
        self.living()?;
        if self.state.get() == InstanceState::Paused {
            return Ok(());
        }
        // Calls are refused before the processes are frozen; otherwise one could be passed to them and hang.
        self.state.set(InstanceState::Paused);
        match freeze::order(self, Target::Freeze).await {
            Ok(()) => Ok(()),
            Err(FreezeError::Gone) => Err(self.gone()),
            // It is unknown whether it is frozen now; a resume will settle that.
            Err(FreezeError::Runtime(error)) => Err(error.into()),
        }
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        let _order = self.order.lock().await;
        self.living()?;
        if self.state.get() == InstanceState::Paused {
            match freeze::order(self, Target::Thaw).await {
                Ok(()) => drop(self.state.set(InstanceState::Ready)),
                Err(FreezeError::Gone) => return Err(self.gone()),
                Err(FreezeError::Runtime(error)) => return Err(error.into()),
            }
            self.living()?;
        }
        Ok(())
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        let _order = self.order.lock().await;
        if self.state.get().exit().is_none() {
            self.stopping.store(true, Ordering::SeqCst);
            if self.state.get() == InstanceState::Paused {
                // A frozen process cannot end. If it cannot be thawed, only the forced removal below is left.
                drop(freeze::order(self, Target::Thaw).await);
            }
            // Calls may finish within the grace. The program is looked at before the signal: a handler may take itself back when it is called.
            let is_idle = self.link().is_none_or(|link| link.in_flight() == 0);
            let grace = if is_idle && self.ignores_sigterm().await {
                Duration::ZERO
            } else {
                grace
            };
            self.signal("SIGTERM").await?;
            let ended = tokio::time::timeout(grace, self.state.ended()).await;
            if ended.is_err() {
                self.signal("SIGKILL").await?;
            }
        }
        let gone = async {
            let exit = self.state.ended().await;
            let mut removed = self.removed.subscribe();
            // Never fails: the sender is this instance's own.
            drop(removed.wait_for(|removed| *removed).await);
            exit
        };
        match tokio::time::timeout(self.engine_timeout, gone).await {
            Ok(exit) => Ok(exit),
            Err(_) => self.give_up().await,
        }
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.log.lines()
    }
}

impl DockerInstance {
    /// Handles an engine that did not report the end in time: removes the container by force, which shows whether it is there.
    async fn give_up(&self) -> Result<Exit, InstanceError> {
        self.remove().await?;
        self.state.set(InstanceState::Exited(Exit {
            code: None,
            reason: ExitReason::Stopped,
        }));
        let exit = self.state.get().exit().cloned();
        exit.ok_or_else(|| {
            RuntimeError::Unreachable {
                kind: Kind::Docker,
                reason: "no word of the container's end".to_owned(),
            }
            .into()
        })
    }
}
