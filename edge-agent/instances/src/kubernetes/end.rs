//! Handles the end of a pod: waits for its last lines, records its end, and removes what is left of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Shared;
use super::instance::PodInstance;
use super::logs::{self, LogHistory};
use super::status::Stage;
use super::tracked::PodObservation;
use crate::runtime::Kind;
use crate::state::{Exit, ExitReason, InstanceState};

/// Follows the news of one pod until its end, or until the runtime is dropped.
pub(super) async fn follow(shared: Weak<Shared>, instance: Arc<PodInstance>, history: LogHistory) {
    let Some(runtime) = shared.upgrade() else {
        return;
    };
    let mut dropped = runtime.alive.subscribe();
    drop(runtime);
    let mut observations = instance.pod.subscribe();
    let mut reading = false;
    loop {
        let seen = observations.borrow_and_update().clone();
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        if !reading && has_output(&seen) {
            reading = true;
            tokio::spawn(logs::capture(runtime.clone(), instance.clone(), history));
        }
        if let Some(exit) = end(&seen, instance.pod.is_stopping()) {
            return finish(&runtime, &instance, exit, reading).await;
        }
        drop(runtime);
        tokio::select! {
            changed = observations.changed() => if changed.is_err() { return },
            _ = dropped.changed() => return,
        }
    }
}

fn has_output(seen: &PodObservation) -> bool {
    match seen {
        PodObservation::Present(view) => {
            matches!(view.stage, Stage::Running(_) | Stage::Ended(_, None))
        }
        PodObservation::Unknown | PodObservation::Gone(_) => false,
    }
}

/// How it ended; `None` if it has not.
fn end(seen: &PodObservation, stopping: bool) -> Option<Exit> {
    let stopped = |code| Exit {
        code,
        reason: ExitReason::Stopped,
    };
    match seen {
        PodObservation::Unknown => None,
        PodObservation::Gone(_) => Some(if stopping {
            stopped(None)
        } else {
            Exit::lost()
        }),
        PodObservation::Present(view) => match &view.stage {
            Stage::Ended(exit, _) if stopping => Some(stopped(exit.code)),
            Stage::Ended(exit, _) => Some(exit.clone()),
            // Somebody else deletes it. Running calls may end within its grace; it gets no new ones.
            Stage::Waiting(_) | Stage::Blocked(_) | Stage::Running(_) => {
                (view.deleting && !stopping).then(Exit::lost)
            }
        },
    }
}

/// Records how a pod ended, and removes what is left of it.
async fn finish(runtime: &Arc<Shared>, instance: &PodInstance, exit: Exit, reading: bool) {
    if reading && instance.pod.has_ended() {
        // The last lines may still be arriving; they are worth a short wait.
        let mut log = instance.log_ended.subscribe();
        let limit = runtime.options.last_lines;
        drop(tokio::time::timeout(limit, log.wait_for(|ended| *ended)).await);
    }
    if instance.state.set(InstanceState::Exited(exit.clone())) {
        runtime.options.metrics.exited(Kind::Kubernetes, &exit);
    }
    if let Err(error) = instance.pod.remove(Duration::ZERO).await {
        // `collect` will find it.
        tracing::warn!(pod = instance.pod.name, %error, "an ended pod stays for now");
    }
    runtime.forget(instance);
}
