//! Serves other nodes' requests about the instances that run here for them.
//!
//! Only the node that requested an instance may call, follow or stop it; any other node is told that there is none.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use fdn_cluster::TaskId;
use fdn_cluster::peer::{Answering, PeerBody, Peers, StillWelcome};
use fdn_core::enrol::NodeIdentity;
use fdn_core::{Coded, NodeId};
use fdn_instances::{
    BoxError, CallFailure, Exit, InstanceState, Kind, LogLine, empty_body, full_body,
};
use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::Node;
use super::table::{EndReason, Entry, Progress};
use super::wire::{self, InstanceReport, OUTCOME, OrderResult, REASON, Verb};

/// How long a new request about an instance waits for the instance's order to arrive here.
const ORDER: Duration = Duration::from_secs(5);
/// The number of lines that may wait to be sent to a follower of an instance.
const LINES: usize = 4;

/// Answers other nodes.
pub(super) struct Service(pub(super) Weak<Node>);

impl Peers for Service {
    fn welcome(&self, peer: &NodeIdentity, certificate: &[u8]) -> Option<StillWelcome> {
        let node = self.0.upgrade()?;
        let view = node.fleet.view();
        let serial = node.gate.admit(&view, &peer.node, certificate)?;
        let node = Weak::clone(&self.0);
        // By this connection's certificate, not by the name: a node that was reinstalled has another one, and the old one stays revoked.
        Some(Arc::new(move || {
            let node = node.upgrade();
            node.is_some_and(|node| !node.fleet.view().is_revoked(&serial))
        }))
    }

    fn answer(&self, peer: NodeId, request: Request<Incoming>) -> Answering {
        let node = self.0.upgrade();
        Box::pin(async move {
            match node {
                Some(node) => node.answer(&peer, request).await,
                None => status(StatusCode::SERVICE_UNAVAILABLE),
            }
        })
    }
}

fn status(status: StatusCode) -> Response<PeerBody> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = status;
    response
}

impl Node {
    async fn answer(
        self: &Arc<Self>,
        peer: &NodeId,
        request: Request<Incoming>,
    ) -> Response<PeerBody> {
        let Some((verb, task, rest)) = wire::read(request.uri()) else {
            return status(StatusCode::NOT_FOUND);
        };
        let rest = rest.to_owned();
        match verb {
            Verb::Call => self.called(peer, task, &rest, request).await,
            Verb::Watch if request.method() == Method::GET => {
                // The order arrives on another path, possibly later.
                let patience = if rest == "?new" {
                    ORDER
                } else {
                    Duration::ZERO
                };
                let entry = self.table.find(task, patience).await;
                match entry.filter(|entry| entry.requester == *peer) {
                    Some(entry) => follow(&entry),
                    None => status(StatusCode::NOT_FOUND),
                }
            }
            Verb::Stop | Verb::Release | Verb::Pause | Verb::Resume
                if request.method() == Method::POST =>
            {
                let entry = self.table.get(task);
                let Some(entry) = entry.filter(|entry| entry.requester == *peer) else {
                    return status(StatusCode::NOT_FOUND);
                };
                let done = order(&entry, verb, wire::grace(&rest), self.local.kind()).await;
                let bytes = serde_json::to_vec(&done).unwrap_or_default();
                Response::new(full_body(bytes))
            }
            Verb::Watch | Verb::Stop | Verb::Release | Verb::Pause | Verb::Resume => {
                status(StatusCode::METHOD_NOT_ALLOWED)
            }
        }
    }

    /// Passes a call to an instance.
    async fn called(
        self: &Arc<Self>,
        peer: &NodeId,
        task: TaskId,
        rest: &str,
        request: Request<Incoming>,
    ) -> Response<PeerBody> {
        let entry = self
            .table
            .get(task)
            .filter(|entry| entry.requester == *peer);
        let there = entry.and_then(|entry| entry.instance().map(|instance| (entry, instance)));
        let Some((entry, instance)) = there else {
            return unanswered(wire::NOT_SENT, "there is no such instance", None);
        };
        let Ok(uri) = rest.parse::<Uri>() else {
            return unanswered(wire::NOT_SENT, "the call has no path", None);
        };
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        *request.uri_mut() = uri;
        wire::strip(request.headers_mut());
        let served = self.serving(entry);
        match instance.call(request).await {
            Ok(response) => {
                let mut response = response.map(|body| {
                    body.map_frame(move |frame| {
                        // The call counts as running until its body has ended.
                        let _ = &served;
                        frame
                    })
                    .boxed_unsync()
                });
                wire::strip(response.headers_mut());
                response.headers_mut().insert(OUTCOME, wire::ANSWERED);
                *response.version_mut() = http::Version::HTTP_2;
                self.metrics.served.with_label_values(&["answered"]).inc();
                response
            }
            Err(CallFailure::NotSent { reason, .. }) => {
                self.metrics.served.with_label_values(&["not_sent"]).inc();
                unanswered(wire::NOT_SENT, &reason, None)
            }
            Err(failure) => {
                self.metrics
                    .served
                    .with_label_values(&["interrupted"])
                    .inc();
                unanswered(
                    wire::INTERRUPTED,
                    &failure.to_string(),
                    Some(failure.code().as_str()),
                )
            }
        }
    }
}

fn unanswered(outcome: HeaderValue, reason: &str, code: Option<&str>) -> Response<PeerBody> {
    let mut response = status(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(OUTCOME, outcome);
    headers.insert(REASON, wire::field(reason));
    if let Some(code) = code {
        headers.insert(wire::CODE, wire::field(code));
    }
    response
}

/// Stops, releases, pauses or resumes an instance.
async fn order(entry: &Arc<Entry>, verb: Verb, grace: Duration, kind: Kind) -> OrderResult {
    if verb == Verb::Stop {
        entry.end.send_replace(Some(EndReason::Requested(grace)));
        let mut progress = entry.progress.subscribe();
        let gone = progress
            .wait_for(|progress| matches!(progress, Progress::Gone(..) | Progress::Failed(_)));
        return match gone.await.as_deref() {
            Ok(Progress::Gone(exit, _)) => OrderResult::Stopped(exit.clone()),
            Ok(_) | Err(_) => OrderResult::Stopped(Exit::lost()),
        };
    }
    if verb == Verb::Release {
        entry.end.send_replace(Some(EndReason::Unfollowed));
        return OrderResult::Changed;
    }
    let Some(instance) = entry.instance() else {
        return OrderResult::Ended(Exit::lost());
    };
    let done = match verb {
        Verb::Pause => instance.pause().await,
        _ => instance.resume().await,
    };
    match done {
        Ok(()) => OrderResult::Changed,
        Err(error) => OrderResult::of(&error, kind),
    }
}

/// Streams an instance's changes until it is gone or the follower disconnects.
fn follow(entry: &Arc<Entry>) -> Response<PeerBody> {
    let (sender, lines) = mpsc::channel(LINES);
    let watching = entry.follow();
    let entry = Arc::clone(entry);
    tokio::spawn(async move {
        let closed = sender.clone();
        tokio::select! {
            () = report_states(&entry, &sender) => {}
            () = closed.closed() => {}
        }
        drop(watching);
    });
    let lines = ReceiverStream::new(lines).map(|line| Ok::<_, BoxError>(Frame::data(line)));
    Response::new(StreamBody::new(lines).boxed_unsync())
}

/// A line that cannot be sent has no reader.
async fn send(sender: &mpsc::Sender<Bytes>, report: InstanceReport) {
    drop(sender.send(report.line()).await);
}

async fn report_states(entry: &Entry, sender: &mpsc::Sender<Bytes>) {
    let mut progress = entry.progress.subscribe();
    send(sender, InstanceReport::Starting).await;
    let instance = match begun(&mut progress).await {
        Some(Progress::Started(instance)) => instance,
        Some(Progress::Failed(failure)) => {
            return send(sender, InstanceReport::Failed((*failure).clone())).await;
        }
        Some(Progress::Gone(exit, log)) => {
            return send(sender, InstanceReport::Exited { exit, log }).await;
        }
        Some(Progress::Starting) | None => return,
    };
    let description = Box::new(instance.description().clone());
    send(sender, InstanceReport::Started(description)).await;
    let mut state = instance.state();
    loop {
        let now: InstanceState = state.borrow_and_update().clone();
        send(sender, InstanceReport::of(&now, || instance.log_tail())).await;
        if now.exit().is_some() {
            return;
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            exited = gone(&mut progress) => {
                if let Some((exit, log)) = exited {
                    send(sender, InstanceReport::Exited { exit, log }).await;
                }
                return;
            }
        }
    }
}

async fn begun(progress: &mut watch::Receiver<Progress>) -> Option<Progress> {
    let begun = progress.wait_for(|progress| !matches!(progress, Progress::Starting));
    begun.await.ok().map(|begun| begun.clone())
}

async fn gone(progress: &mut watch::Receiver<Progress>) -> Option<(Exit, Vec<LogLine>)> {
    let gone = progress.wait_for(|progress| matches!(progress, Progress::Gone(..)));
    match &*gone.await.ok()? {
        Progress::Gone(exit, log) => Some((exit.clone(), log.clone())),
        _ => None,
    }
}
