//! A handle to an instance on another node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::ErrorCode;
use fdn_instances::{
    CallFailure, Description, Exit, Instance, InstanceError, InstanceState, LogLine, Request,
    Response, RuntimeError, empty_body,
};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::watch;

use super::connections::{Connections, SendError};
use super::followed::{Followed, Following};
use super::metrics::PeerMetrics;
use super::replay::{ReplayBuffer, buffered};
use super::wire::{self, LINE_MAX, OUTCOME, OrderResult, Verb};

/// An instance on another node.
#[derive(Debug)]
pub(super) struct RemoteInstance {
    pub(super) description: Description,
    pub(super) following: Following,
    pub(super) connections: Arc<Connections>,
    pub(super) metrics: PeerMetrics,
    /// The instance's share of the room that this node counts with.
    pub(super) _share: Share,
}

/// A share of the cluster's room that counts as held until dropped.
#[derive(Debug)]
pub(super) struct Share {
    held: Arc<AtomicU64>,
    weight: u64,
}

impl Share {
    pub(super) fn new(held: &Arc<AtomicU64>, weight: u64) -> Self {
        held.fetch_add(weight, Ordering::Relaxed);
        Self {
            held: Arc::clone(held),
            weight,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

impl RemoteInstance {
    fn exit(&self) -> Option<Exit> {
        self.following.followed.state.borrow().exit().cloned()
    }

    async fn order(&self, verb: Verb, rest: &str) -> Result<Exit, InstanceError> {
        order(&self.connections, &self.following.followed, verb, rest).await
    }

    /// Waits for the answer to an order, or for the end of the instance (such as the loss of its node), which settles every order.
    async fn until_lost<T>(
        &self,
        order: impl Future<Output = Result<T, InstanceError>>,
    ) -> Result<T, InstanceError> {
        let mut state = self.state();
        let lost = async {
            let gone = state.wait_for(|state| state.exit().is_some()).await;
            let exit = gone.ok().and_then(|state| state.exit().cloned());
            exit.unwrap_or_else(Exit::lost)
        };
        tokio::select! {
            biased;
            done = order => done,
            exit = lost => Err(InstanceError::Ended(exit)),
        }
    }
}

#[async_trait]
impl Instance for RemoteInstance {
    fn description(&self) -> &Description {
        &self.description
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        self.following.followed.state.subscribe()
    }

    async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        if let Some(exit) = self.exit() {
            return Err(CallFailure::not_sent(request, exit.to_string()));
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let followed = &self.following.followed;
        let uri = match wire::target(Verb::Call, followed.task, path) {
            Ok(uri) => uri,
            Err(error) => return Err(CallFailure::not_sent(request, error.to_string())),
        };
        let (parts, body) = request.into_parts();
        let (body, replay) = buffered(body);
        let mut sent = Request::new(body);
        *sent.method_mut() = parts.method.clone();
        *sent.headers_mut() = parts.headers.clone();
        wire::strip(sent.headers_mut());
        *sent.uri_mut() = uri;
        let not_sent = |replay: ReplayBuffer, reason: String| match replay.recover() {
            Some(body) => CallFailure::not_sent(Request::from_parts(parts, body), reason),
            None => CallFailure::interrupted(reason),
        };
        let result = match self.connections.send(&followed.node, sent).await {
            Ok(response) => answered(response).map_err(|refused| match refused {
                CallRejection::NotSent(reason) => not_sent(replay, reason),
                CallRejection::Interrupted(reason, code) => {
                    CallFailure::Interrupted { reason, code }
                }
            }),
            Err(SendError::NotSent(reason)) => Err(not_sent(replay, reason)),
            Err(SendError::Interrupted(reason)) => Err(CallFailure::interrupted(reason)),
        };
        let label = match &result {
            Ok(_) => "answered",
            Err(CallFailure::NotSent { .. }) => "not_sent",
            Err(_) => "interrupted",
        };
        self.metrics.calls.with_label_values(&[label]).inc();
        result
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        let order = self.order(Verb::Pause, "");
        self.until_lost(order).await.map(drop)
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        let order = self.order(Verb::Resume, "");
        self.until_lost(order).await.map(drop)
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        if let Some(exit) = self.exit() {
            return Ok(exit);
        }
        let order = end(&self.connections, &self.following.followed, grace);
        let exit = match self.until_lost(order).await {
            Ok(exit) | Err(InstanceError::Ended(exit)) => exit,
            Err(error) => return Err(error),
        };
        let followed = &self.following.followed;
        followed.set(InstanceState::Exited(exit.clone()));
        Ok(self.exit().unwrap_or(exit))
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.following.followed.lines()
    }
}

/// Sends an order to the node of an instance and returns the answer.
pub(super) async fn order(
    connections: &Connections,
    followed: &Followed,
    verb: Verb,
    rest: &str,
) -> Result<Exit, InstanceError> {
    let failed = |reason: String| {
        InstanceError::Engine(RuntimeError::Unreachable {
            kind: connections.kind,
            reason: format!("node {}: {reason}", followed.node),
        })
    };
    let uri = wire::target(verb, followed.task, rest);
    let uri = uri.map_err(|error| failed(error.to_string()))?;
    let mut request = Request::new(empty_body());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let sent = connections.send(&followed.node, request).await;
    let response = sent.map_err(|unsent| match unsent {
        SendError::NotSent(reason) | SendError::Interrupted(reason) => failed(reason),
    })?;
    match response.status() {
        http::StatusCode::OK => {}
        // The instance is gone, or its node has restarted and holds nothing for this node.
        http::StatusCode::NOT_FOUND => return Err(InstanceError::Ended(Exit::lost())),
        other => return Err(failed(format!("status {}", other.as_u16()))),
    }
    let body = Limited::new(response.into_body(), LINE_MAX).collect().await;
    let bytes = body.map_err(|error| failed(error.to_string()))?.to_bytes();
    let done: OrderResult =
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
    done.result(verb.as_str())
}

/// Requests the end of an instance that this node will not call again.
async fn end(
    connections: &Connections,
    followed: &Followed,
    grace: Duration,
) -> Result<Exit, InstanceError> {
    let rest = format!("?{}", grace.as_millis());
    order(connections, followed, Verb::Stop, &rest).await
}

/// Leaves an instance that this node will not call again to the node that runs it.
pub(super) async fn release(
    connections: &Connections,
    followed: &Followed,
) -> Result<(), InstanceError> {
    let left = order(connections, followed, Verb::Release, "").await;
    left.map(drop)
}

/// The other node's answer when the instance gave none.
enum CallRejection {
    NotSent(String),
    Interrupted(String, ErrorCode),
}

fn answered(response: http::Response<Incoming>) -> Result<Response, CallRejection> {
    let outcome = response.headers().get(OUTCOME).cloned();
    let text = |headers: &HeaderMap, name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let headers = response.headers();
    let reason = || text(headers, wire::REASON).unwrap_or_else(|| "no reason given".to_owned());
    match outcome {
        Some(outcome) if outcome == wire::ANSWERED => {}
        Some(outcome) if outcome == wire::NOT_SENT => return Err(CallRejection::NotSent(reason())),
        Some(_) => {
            let code = text(headers, wire::CODE);
            let code = code.and_then(|code| serde_json::from_value(code.into()).ok());
            let code = code.unwrap_or(ErrorCode::InstanceLost);
            return Err(CallRejection::Interrupted(reason(), code));
        }
        None => {
            let reason = format!("the node answered status {}", response.status().as_u16());
            return Err(CallRejection::Interrupted(reason, ErrorCode::InstanceLost));
        }
    }
    let mut response = response.map(|body| body.map_err(Into::into).boxed_unsync());
    wire::strip(response.headers_mut());
    *response.version_mut() = http::Version::HTTP_11;
    Ok(response)
}
