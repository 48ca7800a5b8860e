//! The state of instances on other nodes: one stream of JSON lines per instance, which also tells that node that the instance is still wanted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use fdn_cluster::TaskId;
use fdn_core::{ErrorCode, NodeId};
use fdn_instances::{Description, Exit, InstanceState, LogLine, empty_body};
use fdn_service::CancellationToken;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::sleep;

use super::connections::{Connections, SendError};
use super::wire::{self, Failure, InstanceReport, LINE_MAX, Verb};

/// The number of consecutive broken streams after which an instance counts as unresponsive, and the pause between attempts, which grows.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);
/// When the cluster reports an end, how long to wait for the instance's own last line, which has the reason.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The result of starting an instance.
#[derive(Clone, Debug)]
pub(super) enum StartResult {
    /// Not known yet.
    Waiting,
    /// The instance was started.
    Started(Box<Description>),
    /// The instance was not started.
    Failed(Failure),
}

/// The known state of an instance on another node.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) task: TaskId,
    pub(super) node: NodeId,
    pub(super) start_result: watch::Sender<StartResult>,
    pub(super) state: watch::Sender<InstanceState>,
    log: Mutex<Vec<LogLine>>,
    /// Cancelled when the instance's node is lost.
    lost: CancellationToken,
    /// Cancelled when nobody here uses the instance any more.
    left: CancellationToken,
}

/// Why a stream ended.
enum Broken {
    /// It ended with its last line.
    Over,
    /// There is no such instance.
    Unknown,
    /// The connection broke or could not be made.
    Cut(String),
}

impl Followed {
    pub(super) fn lines(&self) -> Vec<LogLine> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn keep(&self, log: Vec<LogLine>) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }

    /// Sets the state; an end is final.
    pub(super) fn set(&self, next: InstanceState) {
        self.state.send_if_modified(|state| {
            let change = state.exit().is_none() && *state != next;
            if change {
                *state = next;
            }
            change
        });
    }

    fn gone(&self, exit: Exit) {
        self.start_result.send_if_modified(|start_result| {
            let waits = matches!(start_result, StartResult::Waiting);
            if waits {
                *start_result = StartResult::Failed(Failure {
                    code: ErrorCode::InstanceLost,
                    reason: exit.to_string(),
                    log: Vec::new(),
                    elsewhere: true,
                });
            }
            waits
        });
        self.set(InstanceState::Exited(exit));
    }

    fn apply(&self, report: InstanceReport) -> Result<(), Broken> {
        match report {
            InstanceReport::Starting => {}
            InstanceReport::Failed(failure) => {
                self.start_result.send_replace(StartResult::Failed(failure));
                self.set(InstanceState::Exited(Exit::lost()));
                return Err(Broken::Over);
            }
            InstanceReport::Started(description) => {
                self.start_result
                    .send_replace(StartResult::Started(description));
            }
            InstanceReport::Ready => self.set(InstanceState::Ready),
            InstanceReport::Paused => self.set(InstanceState::Paused),
            InstanceReport::Unresponsive { reason, log } => {
                self.keep(log);
                self.set(InstanceState::Unresponsive { reason });
            }
            InstanceReport::Exited { exit, log } => {
                self.keep(log);
                self.gone(exit);
                return Err(Broken::Over);
            }
        }
        Ok(())
    }

    /// Follows the instance until it is gone or nobody uses it.
    async fn run(&self, connections: &Connections) {
        let mut tries = 0;
        loop {
            let is_new = matches!(*self.start_result.borrow(), StartResult::Waiting);
            let mut received = false;
            let broken = tokio::select! {
                broken = self.listen(connections, is_new, &mut received) => broken,
                () = self.lost.cancelled() => return self.gone(Exit::lost()),
                () = self.left.cancelled() => return,
            };
            let reason = match broken {
                Broken::Over => return,
                Broken::Unknown => return self.gone(Exit::lost()),
                Broken::Cut(reason) => reason,
            };
            tries = if received { 1 } else { tries + 1 };
            if tries >= TRIES {
                if is_new {
                    return self.gone(Exit::lost());
                }
                // The pool takes another instance; if the node still runs this one, it learns that this one is not wanted.
                self.set(InstanceState::Unresponsive { reason });
            }
            tokio::select! {
                () = sleep(PAUSE * tries.min(50)) => {}
                () = self.lost.cancelled() => return self.gone(Exit::lost()),
                () = self.left.cancelled() => return,
            }
        }
    }

    async fn listen(&self, connections: &Connections, is_new: bool, received: &mut bool) -> Broken {
        let rest = if is_new { "?new" } else { "" };
        let uri = match wire::target(Verb::Watch, self.task, rest) {
            Ok(uri) => uri,
            Err(error) => return Broken::Cut(error.to_string()),
        };
        let mut request = Request::new(empty_body());
        *request.uri_mut() = uri;
        let response = match connections.send(&self.node, request).await {
            Ok(response) => response,
            Err(SendError::NotSent(reason) | SendError::Interrupted(reason)) => {
                return Broken::Cut(reason);
            }
        };
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Broken::Unknown,
            other => return Broken::Cut(format!("status {}", other.as_u16())),
        }
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        loop {
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let line = bytes.split_to(end);
                bytes.advance(1);
                *received = true;
                let report = serde_json::from_slice::<InstanceReport>(&line);
                let report = report.map_err(|error| Broken::Cut(error.to_string()));
                if let Err(broken) = report.and_then(|report| self.apply(report)) {
                    return broken;
                }
            }
            if bytes.len() > LINE_MAX {
                return Broken::Cut("a line is too long".to_owned());
            }
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        bytes.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Broken::Cut(super::chain(&error)),
                None => return Broken::Cut("the stream ended".to_owned()),
            }
        }
    }
}

/// The instances that this node follows, by task.
#[derive(Debug, Default)]
pub(super) struct Follows(Mutex<BTreeMap<u64, Weak<Followed>>>);

/// Follows an instance until dropped.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) followed: Arc<Followed>,
    follows: Arc<Follows>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.followed.left.cancel();
        let mut all = self
            .follows
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.followed.task.0);
    }
}

impl Follows {
    /// Starts following an instance.
    pub(super) fn begin(
        self: &Arc<Self>,
        task: TaskId,
        node: NodeId,
        connections: &Arc<Connections>,
        runtime: &tokio::runtime::Handle,
    ) -> Following {
        let followed = Arc::new(Followed {
            task,
            node,
            start_result: watch::Sender::new(StartResult::Waiting),
            state: watch::Sender::new(InstanceState::Starting),
            log: Mutex::default(),
            lost: CancellationToken::new(),
            left: CancellationToken::new(),
        });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(task.0, Arc::downgrade(&followed));
        drop(all);
        let (listens, connections) = (Arc::clone(&followed), Arc::clone(connections));
        runtime.spawn(async move { listens.run(&connections).await });
        Following {
            followed,
            follows: Arc::clone(self),
        }
    }

    fn get(&self, task: TaskId) -> Option<Arc<Followed>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&task.0)?.upgrade()
    }

    /// All followed instances.
    pub(super) fn all(&self) -> Vec<Arc<Followed>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }

    /// The number of followed instances.
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Handles the loss of an instance's node; returns the node.
    pub(super) fn lost(&self, task: TaskId) -> Option<NodeId> {
        let followed = self.get(task)?;
        followed.lost.cancel();
        Some(followed.node.clone())
    }

    /// Handles the cluster's report that an instance has ended.
    pub(super) fn ended(&self, task: TaskId, runtime: &tokio::runtime::Handle) {
        if let Some(followed) = self.get(task) {
            runtime.spawn(async move {
                tokio::select! {
                    () = sleep(LAST_LINE) => followed.gone(Exit::lost()),
                    () = followed.left.cancelled() => {}
                }
            });
        }
    }
}
