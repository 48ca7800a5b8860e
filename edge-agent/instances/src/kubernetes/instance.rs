//! One pod as an instance.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};

use super::tracked::TrackedPod;
use crate::body::{Request, Response};
use crate::call::CallFailure;
use crate::error::InstanceError;
use crate::instance::Instance;
use crate::link::{Endpoint, HttpLink, LinkLimits};
use crate::log::{LogLimits, LogLine, LogSink, LogTail};
use crate::runtime::Kind;
use crate::spec::Description;
use crate::state::{Exit, ExitReason, InstanceState, StateCell};

/// A pod of the agent. Its end is detected and recorded by [`super::end`].
pub(super) struct PodInstance {
    pub(super) description: Description,
    pub(super) pod: Arc<TrackedPod>,
    /// The start that creates its pod, as the pod's annotation names it; unset for one that was adopted.
    pub(super) start: OnceLock<String>,
    pub(super) state: StateCell,
    pub(super) log: LogTail,
    /// The most bytes of a line that are kept.
    pub(super) line_limit: usize,
    pub(super) sink: Arc<dyn LogSink>,
    /// Set once the pod runs.
    link: OnceLock<HttpLink>,
    /// True once the log stream has ended.
    pub(super) log_ended: watch::Sender<bool>,
    /// Serializes stops.
    order: Mutex<()>,
    engine_timeout: Duration,
}

impl fmt::Debug for PodInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodInstance")
            .field("id", &self.description.id)
            .field("pod", &self.pod.name)
            .field("state", &self.state.get())
            .finish_non_exhaustive()
    }
}

impl PodInstance {
    pub(super) fn new(
        description: Description,
        pod: Arc<TrackedPod>,
        logs: LogLimits,
        sink: Arc<dyn LogSink>,
        engine_timeout: Duration,
    ) -> Self {
        Self {
            description,
            pod,
            start: OnceLock::new(),
            state: StateCell::new(InstanceState::Starting),
            log: LogTail::new(logs),
            line_limit: logs.line,
            sink,
            link: OnceLock::new(),
            log_ended: watch::Sender::new(false),
            order: Mutex::new(()),
            engine_timeout,
        }
    }

    /// Sets the connection to it. The first one stays.
    pub(super) fn connect(&self, address: IpAddr, limits: LinkLimits) -> &HttpLink {
        let endpoint = Endpoint::Address(SocketAddr::new(address, self.description.port.get()));
        self.link.get_or_init(|| HttpLink::new(endpoint, limits))
    }

    pub(super) fn link(&self) -> Option<&HttpLink> {
        self.link.get()
    }
}

const fn unsupported(operation: &'static str) -> InstanceError {
    InstanceError::Unsupported {
        kind: Kind::Kubernetes,
        operation,
    }
}

#[async_trait]
impl Instance for PodInstance {
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
        Err(unsupported("pause"))
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        Err(unsupported("resume"))
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        let _order = self.order.lock().await;
        if self.state.get().exit().is_none() {
            self.pod.set_stopping(true);
        }
        if let Err(error) = self.pod.remove(grace).await {
            // It was not stopped, so an end that comes now was not caused by the agent.
            self.pod.set_stopping(false);
            return Err(error.into());
        }
        // Its end is recorded from the same news, with its last lines, a moment later.
        let told = tokio::time::timeout(self.engine_timeout, self.state.ended()).await;
        Ok(told.unwrap_or_else(|_| {
            let exit = Exit {
                code: None,
                reason: ExitReason::Stopped,
            };
            self.state.set(InstanceState::Exited(exit.clone()));
            self.state.get().exit().cloned().unwrap_or(exit)
        }))
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.log.lines()
    }
}
