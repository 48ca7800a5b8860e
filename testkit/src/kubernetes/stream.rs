//! Streaming answers: watches, and the output of containers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::api::{self, Call};
use super::http::Body;
use super::objects::{Status, bad_request, gone, not_found, selects};
use super::store::{Event, Resource};

/// The most pieces of an answer that wait for their reader.
const QUEUE: usize = 64;
/// The interval of bookmarks while nothing happens. Real servers send one about every minute.
const BOOKMARK: Duration = Duration::from_millis(500);

/// A response whose pieces come from a task; it ends with the task.
fn streamed(pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    let pieces = futures::stream::unfold(pieces, async |mut pieces| {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    Response::new(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync())
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}

pub(super) fn watch(shared: &Arc<Shared>, call: &Call) -> Result<Response<Body>, Status> {
    let from = api::version(call)?;
    let seconds = call.number("timeoutSeconds").unwrap_or(300);
    let watcher = Watcher {
        resource: call.resource,
        namespace: call.namespace.clone(),
        selector: call.text("labelSelector").to_owned(),
        bookmarks: call.text("allowWatchBookmarks") == "true",
        until: Instant::now() + Duration::from_secs(seconds),
        shared: shared.clone(),
    };
    let revision = from.unwrap_or_else(|| shared.store.revision());
    if shared.faults.gone_by_status() {
        shared.store.since(revision)?;
    }
    let (sender, pieces) = mpsc::channel(QUEUE);
    let present = from
        .is_none()
        .then(|| shared.store.all(call.resource, &call.namespace));
    tokio::spawn(async move {
        for object in present.into_iter().flatten() {
            if selects(&watcher.selector, &object) {
                drop(sender.send(line("ADDED", &object)).await);
            }
        }
        watcher.run(revision, &sender).await;
    });
    Ok(streamed(pieces))
}

struct Watcher {
    shared: Arc<Shared>,
    resource: Resource,
    namespace: String,
    selector: String,
    bookmarks: bool,
    until: Instant,
}

impl Watcher {
    async fn run(&self, mut revision: u64, sender: &mpsc::Sender<Bytes>) {
        let mut changes = self.shared.store.changes();
        let mut cuts = self.shared.faults.cuts();
        cuts.mark_unchanged();
        loop {
            changes.mark_unchanged();
            let Ok(events) = self.shared.store.since(revision) else {
                drop(sender.send(line("ERROR", &gone().body)).await);
                return;
            };
            for event in events {
                revision = event.revision;
                if self.wants(&event) && sender.send(line(event.kind, &event.object)).await.is_err()
                {
                    return;
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                _ = cuts.changed() => return,
                () = sender.closed() => return,
                () = tokio::time::sleep_until(self.until) => return,
                () = tokio::time::sleep(BOOKMARK), if self.bookmarks => {
                    let mark = json!({
                        "apiVersion": "v1", "kind": self.resource.kind(),
                        "metadata": { "resourceVersion": revision.to_string(), "creationTimestamp": null }
                    });
                    if sender.send(line("BOOKMARK", &mark)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn wants(&self, event: &Event) -> bool {
        event.resource == self.resource
            && event.namespace() == self.namespace
            && selects(&self.selector, &event.object)
    }
}

pub(super) fn log(shared: &Arc<Shared>, call: &Call) -> Result<Response<Body>, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let pod = shared.store.get(Resource::Pods, &call.namespace, name);
    let pod = pod.ok_or_else(|| not_found(Resource::Pods, name))?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let container = shared
        .kubelets()
        .iter()
        .find_map(|kubelet| kubelet.container(uid));
    let Some(container) = container else {
        let message = format!(
            "container \"function\" in pod \"{name}\" is waiting to start: ContainerCreating"
        );
        return Err(bad_request(&message));
    };
    let since = call.query.get("sinceTime");
    let since = since.map(|text| humantime::parse_rfc3339(text));
    let since = since.transpose().map_err(|e| bad_request(&e.to_string()))?;
    let tail = call
        .number("tailLines")
        .and_then(|lines| usize::try_from(lines).ok());
    let (follow, stamps) = (
        call.text("follow") == "true",
        call.text("timestamps") == "true",
    );
    let (sender, pieces) = mpsc::channel(QUEUE);
    let shared = shared.clone();
    tokio::spawn(async move {
        let mut cuts = shared.faults.cuts();
        cuts.mark_unchanged();
        let mut at = tail.map_or(0, |lines| container.lines().saturating_sub(lines));
        let mut output_changes = container.output_changes();
        loop {
            output_changes.mark_unchanged();
            let (lines, ended) = container.from(at);
            at += lines.len();
            for (time, text) in lines {
                if since.is_none_or(|since| time >= since)
                    && sender.send(output(time, &text, stamps)).await.is_err()
                {
                    return;
                }
            }
            if ended || !follow {
                return;
            }
            tokio::select! {
                changed = output_changes.changed() => if changed.is_err() { return },
                _ = cuts.changed() => return,
                () = sender.closed() => return,
            }
        }
    });
    Ok(streamed(pieces))
}

fn output(time: SystemTime, text: &str, stamps: bool) -> Bytes {
    let stamp = if stamps {
        format!("{} ", humantime::format_rfc3339_nanos(time))
    } else {
        String::new()
    };
    Bytes::from(format!("{stamp}{text}\n"))
}
