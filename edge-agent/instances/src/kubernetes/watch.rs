//! News of all pods of this owner: one list, then watches from the list's version on.
//!
//! A watch is resumed after the last version that was seen, which bookmarks advance while nothing happens. If the API server has
//! forgotten a version (410), the pods are listed again and compared with what is held: this detects ends that were not reported.
//! While the API server is unreachable nothing is concluded; instances continue to be called.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::WatchEvent;
use tokio::time::Instant;

use super::failure::Fault;
use super::tracked::{PodObservation, TrackedPod};
use super::{Shared, pod, status};

/// The pauses between attempts to reach the API server again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How much longer than requested a watch may last before its connection counts as lost.
const LATE: Duration = Duration::from_secs(5);

/// What to do after a watch.
enum NextStep {
    /// Watch again from the last version on.
    Resume,
    /// Watch again after a pause, because it failed.
    Wait,
    /// List again.
    List,
}

/// Follows the API server until the runtime is dropped.
pub(super) async fn follow(shared: Weak<Shared>) {
    let Some(runtime) = shared.upgrade() else {
        return;
    };
    let mut dropped = runtime.alive.subscribe();
    drop(runtime);
    tokio::select! {
        () = run(&shared) => {}
        _ = dropped.changed() => {}
    }
}

async fn run(shared: &Weak<Shared>) {
    let mut pause = FIRST_PAUSE;
    let mut version = None;
    loop {
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        let next = match version.take() {
            None => match list(&runtime).await {
                Ok(listed) => {
                    version = Some(listed);
                    NextStep::Resume
                }
                Err(_) => NextStep::Wait,
            },
            Some(mut from) => {
                let since = Instant::now();
                // A watch must not keep the runtime alive.
                let metrics = runtime.options.metrics.clone();
                let next = watch(runtime, shared, &mut from).await;
                metrics.watch_ended(match next {
                    NextStep::Resume => "resumed",
                    NextStep::Wait => "broken",
                    NextStep::List => "relisted",
                });
                if since.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                version = (!matches!(next, NextStep::List)).then_some(from);
                next
            }
        };
        match next {
            NextStep::List => {}
            NextStep::Resume => pause = FIRST_PAUSE,
            NextStep::Wait => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Lists the pods, passes them on as news, and returns the list's version.
async fn list(runtime: &Arc<Shared>) -> Result<String, Fault> {
    // Only pods known to exist before the list was requested can be missing in it.
    let known = |pod: Arc<TrackedPod>| pod.uid().map(str::to_owned).map(|uid| (pod, uid));
    let before: Vec<_> = runtime.tracked().into_iter().filter_map(known).collect();
    let (pods, version) = runtime.server.list().await?;
    for pod in &pods {
        apply(runtime, pod, false);
    }
    for (tracked, uid) in before {
        let listed = pods
            .iter()
            .any(|pod| pod.metadata.uid.as_deref() == Some(uid.as_str()));
        if !listed {
            tracked.update(PodObservation::Gone(uid));
        }
    }
    Ok(version)
}

fn apply(runtime: &Shared, pod: &Pod, gone: bool) {
    // A server that does not know the selector ignores it. Nothing that is not ours may pass this line.
    if !pod::is_owned(pod, &runtime.owner) {
        return;
    }
    let (Some(view), Some(name)) = (status::view(pod), &pod.metadata.name) else {
        return;
    };
    let Some(tracked) = runtime.registry().tracked.get(name).cloned() else {
        return;
    };
    if gone {
        let uid = view.uid.clone();
        // Its last status must be known before its end.
        tracked.update(PodObservation::Present(view));
        tracked.update(PodObservation::Gone(uid));
    } else {
        tracked.update(PodObservation::Present(view));
    }
}

async fn watch(runtime: Arc<Shared>, shared: &Weak<Shared>, version: &mut String) -> NextStep {
    let longest = runtime.options.watch + LATE;
    let stream = match runtime.server.watch(version).await {
        Ok(stream) => stream,
        Err(fault) if fault.is_gone() => return NextStep::List,
        Err(_) => return NextStep::Wait,
    };
    drop(runtime);
    let mut stream = pin!(stream);
    let mut any = false;
    loop {
        let event = match tokio::time::timeout(longest, stream.next()).await {
            Ok(Some(event)) => event,
            // It lasted as long as requested. One that ended without any event is not requested again at once.
            Ok(None) => {
                return if any {
                    NextStep::Resume
                } else {
                    NextStep::Wait
                };
            }
            Err(_) => return NextStep::Wait,
        };
        let Some(runtime) = shared.upgrade() else {
            return NextStep::Resume;
        };
        let (pod, gone) = match event {
            Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => (pod, false),
            Ok(WatchEvent::Deleted(pod)) => (pod, true),
            Ok(WatchEvent::Bookmark(mark)) => {
                version.clone_from(&mark.metadata.resource_version);
                any = true;
                continue;
            }
            Ok(WatchEvent::Error(status)) => return next_step(&Fault::Status(status)),
            Err(error) => return next_step(&Fault::from(error)),
        };
        any = true;
        if let Some(seen) = &pod.metadata.resource_version {
            version.clone_from(seen);
        }
        apply(&runtime, &pod, gone);
    }
}

/// What to do after an error in the middle of a watch: only a forgotten version requires a new list.
fn next_step(fault: &Fault) -> NextStep {
    if fault.is_gone() {
        NextStep::List
    } else {
        NextStep::Wait
    }
}
