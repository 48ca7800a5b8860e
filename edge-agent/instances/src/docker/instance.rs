//! One container.

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
use super::freeze::{self, Refused, Target};
use super::{create, failure};
use crate::body::{Request, Response};
use crate::call::CallFailure;
use crate::error::{InstanceError, RuntimeError};
use crate::instance::Instance;
use crate::link::HttpLink;
use crate::log::{LogLine, LogSink, LogTail};
use crate::runtime::Kind;
use crate::spec::Description;
use crate::state::{Exit, ExitReason, InstanceState, StateCell};

/// How a running container is reached.
pub(super) struct Ways {
    /// With calls.
    pub(super) link: HttpLink,
    /// With the kernel's freezer, unless only the engine can.
    pub(super) group: Option<Cgroup>,
}

/// A container of ours. Its end is noticed and written down by [`super::events`].
pub(super) struct DockerInstance {
    pub(super) description: Description,
    /// The engine's id of the container.
    pub(super) container: String,
    pub(super) docker: Docker,
    pub(super) state: StateCell,
    pub(super) log: LogTail,
    pub(super) sink: Arc<dyn LogSink>,
    /// Known once the container runs.
    link: std::sync::OnceLock<HttpLink>,
    /// The group of its processes, if the agent may freeze it; known with the link.
    group: std::sync::OnceLock<Cgroup>,
    /// Whether it was ended by us.
    pub(super) stopping: AtomicBool,
    /// True once the log stream has ended.
    pub(super) log_ended: watch::Sender<bool>,
    /// True once the engine has nothing of it any more.
    pub(super) removed: watch::Sender<bool>,
    /// Pause, resume and stop, one after another.
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

    /// The way to it. The first one given stays.
    pub(super) fn connect(&self, ways: Ways) -> &HttpLink {
        if let Some(group) = ways.group {
            self.group.get_or_init(|| group);
        }
        self.link.get_or_init(|| ways.link)
    }

    /// The group of its processes, if the agent may freeze it.
    pub(super) fn group(&self) -> Option<&Cgroup> {
        self.group.get()
    }

    pub(super) fn link(&self) -> Option<&HttpLink> {
        self.link.get()
    }

    /// Removes the container, whatever it does. Not being there is what is wanted.
    pub(super) async fn remove(&self) -> Result<(), RuntimeError> {
        // Whoever comes second waits for the first: when this returns, nothing is left.
        let _turn = self.removing.lock().await;
        if *self.removed.borrow() {
            return Ok(());
        }
        // On older kernels not even SIGKILL reaches a process that stands still.
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
            // 404: gone. 409: somebody else is removing it.
            Err(error) if matches!(failure::status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failure::engine("remove the container", &error)),
        }
        self.removed.send_replace(true);
        Ok(())
    }

    /// As [`DockerInstance::limit_cpu`], by its control group: one write, where the engine runs a process beside the first call. False if the
    /// engine has to be asked. The engine goes on naming the limit that it was started with.
    pub(super) fn limit_cpu_by_group(&self) -> bool {
        let Some(nano_cpus) = create::cpu_once_started(&self.description) else {
            return true;
        };
        let limited = self.group().map(|group| group.limit_cpu(nano_cpus));
        matches!(limited, Some(Ok(())))
    }

    /// Brings its CPU down to what it may use, once the engine's part of its start is over. Nobody waits for that, it takes the engine as
    /// long as a pause; but without its limit none runs on.
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
        // It has ended, which the stream of events tells.
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
            // It has ended already, which the stream of events tells.
            Err(error) if matches!(failure::status(&error), Some(404 | 409)) => Ok(()),
            // The signal was sent; the engine took the container for a paused one.
            Err(error) if failure::says(&error, "cannot unpause") => Ok(()),
            Err(error) => Err(failure::engine("signal the container", &error)),
        }
    }

    /// What is said of one that the engine says has ended, before its event tells how.
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
        // Calls are turned away before the processes are frozen, or one could be handed to them and hang.
        self.state.set(InstanceState::Paused);
        match freeze::order(self, Target::Freeze).await {
            Ok(()) => Ok(()),
            Err(Refused::Gone) => Err(self.gone()),
            // Nobody knows whether it is frozen now; a resume will tell.
            Err(Refused::Because(error)) => Err(error.into()),
        }
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        let _order = self.order.lock().await;
        self.living()?;
        if self.state.get() == InstanceState::Paused {
            match freeze::order(self, Target::Thaw).await {
                Ok(()) => drop(self.state.set(InstanceState::Ready)),
                Err(Refused::Gone) => return Err(self.gone()),
                Err(Refused::Because(error)) => return Err(error.into()),
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
                // A frozen process cannot end. If it cannot be thawed, the engine's force below is all that is left.
                drop(freeze::order(self, Target::Thaw).await);
            }
            self.signal("SIGTERM").await?;
            let ended = tokio::time::timeout(grace, self.state.ended()).await;
            if ended.is_err() {
                self.signal("SIGKILL").await?;
            }
        }
        let gone = async {
            let exit = self.state.ended().await;
            let mut removed = self.removed.subscribe();
            // The sender is this instance's own.
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
    /// The engine did not tell of the end in time: remove the container by force, which tells whether it is there.
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
